//! Runs a daemon of a store: alone, or beside the shares of `landfast serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use store::host::record_of;
use store::{ServerOptions, StoreKey, StoreServer};

use super::args::{ServeStore, Serving};
use super::failure::StoreFailure;
use super::opened::{key, key_of_daemon, key_path};
use crate::failure::Failure;
use crate::{interrupt, notify, output};

/// Runs a daemon until a signal ends it.
pub(super) fn run(options: &ServeStore) -> Result<(), Failure> {
    interrupt::run(async |stops| {
        let meta = store::meta::open(&options.which.meta).map_err(StoreFailure::from)?;
        let key = key_of_daemon(options.which.key_file.as_deref(), &options.which.meta, &*meta)?;
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
        output::tell(&format!(
            "store server {name} control={control} rdma={rdma} class={}\n",
            server.class()
        ));
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
    let key = key_of_daemon(options.store_key.as_deref(), place, &*meta)?;
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

/// What of that daemon no share may contain: its key, its metadata and its pieces.
pub(crate) fn private(options: &Serving) -> Vec<PathBuf> {
    let (Some(directory), Some(place)) = (&options.store, &options.store_meta) else {
        return Vec::new();
    };
    let key = key_path(options.store_key.as_deref(), place).ok();
    let meta = (!place.contains("://")).then(|| place.into());
    [Some(directory.clone()), key, meta].into_iter().flatten().collect()
}

/// What that daemon would serve, in a line; it makes and changes nothing.
pub(crate) fn look(options: &Serving) -> Result<Option<String>, Failure> {
    let (Some(directory), Some(place)) = (&options.store, &options.store_meta) else {
        return Ok(None);
    };
    store::host::look(directory).map_err(StoreFailure::from)?;
    let path = key_path(options.store_key.as_deref(), place)?;
    let is_there = place.contains("://") || Path::new(place).join("records").is_dir();
    let record = match is_there {
        true => {
            let meta = store::meta::open(place).map_err(StoreFailure::from)?;
            record_of(&*meta).map_err(StoreFailure::from)?
        }
        false => None,
    };
    let state = match record {
        Some(_) => {
            key(options.store_key.as_deref(), place)?;
            ""
        }
        None if path.exists() => {
            StoreKey::read(&path).map_err(StoreFailure::from)?;
            ", a new store"
        }
        None => ", a new store with a new key",
    };
    let (pieces, key) = (directory.display(), path.display());
    Ok(Some(format!("store: pieces in {pieces}, metadata in {place}, key {key}{state}\n")))
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
