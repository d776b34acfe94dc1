//! A server with one share in this process, and clients of it.
//!
//! They connect over provider `soft` and loopback, unless the environment says otherwise:
//! `LANDFAST_RDMA_PROVIDER=verbs LANDFAST_RDMA_ADDR=ADDRESS` is what `cargo xtask guest verbs` sets,
//! and `LANDFAST_RDMA_SERVER=soft` if the server's provider is another.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use client::{ConnectOptions, OpenOptions, RegionSettings, SmbUrl, blocking};
use rdma::ProviderChoice;
use server::{Running, Server, ServerConfig, ShareConfig, Users};
use smb::push::{Durability, PushRequest, Rights};

pub(crate) struct Fixture {
    pub(crate) running: Running,
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) share: tempfile::TempDir,
}

impl Fixture {
    /// A server whose share lies in `parent`; volatile memory emulates persistence.
    pub(crate) fn start(parent: &str, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let share = tempfile::tempdir_in(parent).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        config.rdma_listen = Some(rdma_address());
        config.rdma_provider = server_provider();
        let mut exported = ShareConfig::new("share", share.path());
        exported.emulate_persistence = true;
        config.shares.push(exported);
        config.users = Users::with_passwords([("user", "secret")]);
        change(&mut config);
        let running = runtime.block_on(Server::start(config)).unwrap();
        Self { running, runtime, share }
    }

    pub(crate) fn url(&self) -> SmbUrl {
        let port = self.running.tcp_address().port();
        format!("smb://user:secret@127.0.0.1:{port}/share").parse().unwrap()
    }

    pub(crate) fn client(&self) -> blocking::Client {
        blocking::Client::connect(&self.url(), &ConnectOptions::default()).unwrap()
    }

    /// The file `region`, all zeros.
    pub(crate) fn file(&self, len: u64) -> PathBuf {
        self.file_named("region", len)
    }

    pub(crate) fn file_named(&self, name: &str, len: u64) -> PathBuf {
        let path = self.share.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(len).unwrap();
        path
    }
}

/// The provider under test, which the client uses.
pub(crate) fn provider() -> ProviderChoice {
    named("LANDFAST_RDMA_PROVIDER").unwrap_or(ProviderChoice::Soft)
}

/// The server's provider, the same unless the environment names another.
pub(crate) fn server_provider() -> ProviderChoice {
    named("LANDFAST_RDMA_SERVER").unwrap_or_else(provider)
}

fn named(variable: &str) -> Option<ProviderChoice> {
    std::env::var(variable).ok().map(|name| name.parse().unwrap())
}

fn rdma_address() -> SocketAddr {
    let ip = std::env::var("LANDFAST_RDMA_ADDR").unwrap_or_else(|_| "127.0.0.1".into());
    SocketAddr::new(ip.parse().unwrap(), 0)
}

/// A region's settings, for the provider under test.
pub(crate) fn settings() -> RegionSettings {
    RegionSettings { provider: provider(), ..RegionSettings::default() }
}

pub(crate) fn pushing() -> OpenOptions {
    pushing_with(Rights::READ | Rights::WRITE | Rights::FLUSH | Rights::ATOMIC_WRITE)
}

pub(crate) fn pushing_with(rights: Rights) -> OpenOptions {
    OpenOptions::read_write().with_push(PushRequest {
        rights,
        durability: Durability::ANY,
        accept_emulated: true,
        regions_max: 1,
    })
}

pub(crate) fn bytes_at(path: &Path, offset: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    std::fs::File::open(path).unwrap().read_exact_at(&mut out, offset).unwrap();
    out
}
