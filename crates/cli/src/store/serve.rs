//! Runs a daemon of a store: alone, or beside the shares of `landfast serve`.

use std::net::SocketAddr;

use store::{ServerOptions, StoreServer};

use super::args::{ServeStore, Serving};
use super::failure::StoreFailure;
use super::opened::key;
use crate::failure::Failure;
use crate::{interrupt, notify, output};

/// Runs a daemon until a signal ends it.
pub(super) fn run(options: &ServeStore) -> Result<(), Failure> {
    interrupt::run(async |stops| {
        let meta = store::meta::open(&options.which.meta).map_err(StoreFailure::from)?;
        let key = key(options.which.key_file.as_deref(), &options.which.meta)?;
        let name = options.name.clone().unwrap_or_else(host_name);
        let settings = ServerOptions {
            capacity: options.capacity,
            listen: options.listen,
            rdma_listen: options.rdma_listen,
            announce: options.announce,
            emulate_persistence: options.emulate_persistence,
            polling: options.poll.policy(),
            ..ServerOptions::new(&name, options.directory.clone(), meta, key)
        };
        let server = start(settings).await?;
        let (control, rdma) = (server.control_address(), server.rdma_address());
        output::say(&format!(
            "store server {name} control={control} rdma={rdma} class={}\n",
            server.class()
        ))?;
        notify::say(&notify::ready("serving a store"));
        let stop = stops.received().await;
        tracing::info!(?stop, "ending");
        notify::say(notify::STOPPING);
        stop_it(server).await;
        Ok(())
    })
}

/// The daemon that `landfast serve --store` asks for, if it does.
pub(crate) async fn beside(
    options: &Serving,
    listen: SocketAddr,
    emulate_persistence: bool,
) -> Result<Option<StoreServer>, Failure> {
    let (Some(directory), Some(place)) = (&options.store, &options.store_meta) else {
        return Ok(None);
    };
    let meta = store::meta::open(place).map_err(StoreFailure::from)?;
    let key = key(options.store_key.as_deref(), place)?;
    let name = options.store_name.clone().unwrap_or_else(host_name);
    let any_port = SocketAddr::new(listen.ip(), 0);
    let settings = ServerOptions {
        capacity: options.store_capacity,
        listen: options.store_listen.unwrap_or(any_port),
        rdma_listen: any_port,
        emulate_persistence,
        ..ServerOptions::new(&name, directory.clone(), meta, key)
    };
    start(settings).await.map(Some)
}

async fn start(settings: ServerOptions) -> Result<StoreServer, Failure> {
    // Each piece and each connection takes a descriptor.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays at {:?}", limit.current);
    }
    let runtime = tokio::runtime::Handle::current();
    let started = tokio::task::spawn_blocking(move || StoreServer::start(settings, &runtime)).await;
    let started = started.map_err(|error| Failure::System {
        action: "cannot start the store's daemon",
        source: std::io::Error::other(error),
    })?;
    Ok(started.map_err(StoreFailure::from)?)
}

/// Ends a daemon in good order, which blocks.
pub(crate) async fn stop_it(server: StoreServer) {
    let _ = tokio::task::spawn_blocking(move || drop(server)).await;
}

fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}
