//! The server: listens, and gives each connection a thread of its own.
//!
//! A connection whose device answers from memory is served by its one thread: it takes every request that has arrived,
//! answers all of them, and sends the answers at once. Where the device may wait for a disk, requests go to more threads
//! of the same connection, so that writes that wait for the same flush share it, and no client waits for another.

mod connection;
mod input;
mod listen;
mod patience;
mod tls;
mod wire;
mod workers;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::EventfdFlags;

use crate::Exports;
use listen::Listener;
pub use tls::{TlsError, TlsFiles};
use wire::Wire;

/// A server of block devices.
#[derive(Debug)]
pub struct Server {
    exports: Arc<Exports>,
    tls: Option<Arc<rustls::ServerConfig>>,
}

/// Where a server listens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    /// Anybody who reaches it may read and write, unless TLS asks for a client's certificate.
    Tcp(SocketAddr),
    /// Only the server's own user may connect. A socket that nobody listens on any more is replaced.
    Unix(PathBuf),
}

/// Why a server does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is in use, not of this machine, or not allowed.
    #[error("{address}: {source}")]
    ConfigAddress {
        /// Which.
        address: Address,
        /// What the operating system said.
        source: io::Error,
    },
    /// The machine has no more threads or descriptors.
    #[error("a server cannot be started: {0}")]
    HostResources(#[source] io::Error),
}

impl Server {
    /// A server of these devices. With TLS nobody is told or given anything without it.
    ///
    /// # Errors
    ///
    /// The files of TLS cannot be used.
    pub fn new(exports: Exports, tls: Option<&TlsFiles>) -> Result<Self, TlsError> {
        Ok(Self { exports: Arc::new(exports), tls: tls.map(TlsFiles::load).transpose()? })
    }

    /// Listens, until the handle is dropped.
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn listen(self, addresses: &[Address]) -> Result<Handle, ListenError> {
        let failed = |address: &Address| {
            let address = address.clone();
            move |source| ListenError::ConfigAddress { address, source }
        };
        let listeners: Vec<Listener> = addresses
            .iter()
            .map(|address| Listener::bind(address).map_err(failed(address)))
            .collect::<Result<_, _>>()?;
        let resources = |errno: rustix::io::Errno| ListenError::HostResources(errno.into());
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(resources)?;
        let shared =
            Arc::new(Shared { server: self, stop, state: Mutex::default(), ended: Condvar::new() });
        let handle = Handle {
            addresses: listeners.iter().map(Listener::address).collect(),
            shared: Arc::clone(&shared),
        };
        for listener in listeners {
            let shared = Arc::clone(&shared);
            shared.lock().threads += 1;
            let name = "nbd-listen".to_owned();
            let run = {
                let shared = Arc::clone(&shared);
                move || {
                    listener.run(&shared);
                    shared.end_thread();
                }
            };
            if let Err(error) = std::thread::Builder::new().name(name).spawn(run) {
                shared.end_thread();
                return Err(ListenError::HostResources(error));
            }
        }
        Ok(handle)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A server that listens. Dropping it ends the server: what clients have sent is carried out and answered first.
#[derive(Debug)]
pub struct Handle {
    addresses: Vec<Address>,
    shared: Arc<Shared>,
}

impl Handle {
    /// Where the server listens, with the ports that the operating system has chosen.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Connections there are.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections.len()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The counter stays above zero, so every listener finds it.
        let _ = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes_of_host());
        let mut state = self.shared.lock();
        state.is_stopping = true;
        state.connections.values().for_each(|wire| wire.stop_receiving());
        while state.threads > 0 {
            state = self.shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What all threads of a server share.
#[derive(Debug)]
struct Shared {
    server: Server,
    /// Readable once the server ends.
    stop: std::os::fd::OwnedFd,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    connections: HashMap<u64, Arc<Wire>>,
    next: u64,
    /// Threads that listen or serve a connection.
    threads: usize,
    is_stopping: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a connection and its thread; `None` if there are too many, or the server ends.
    fn enter(&self, wire: &Arc<Wire>) -> Option<u64> {
        let mut state = self.lock();
        if state.is_stopping || state.connections.len() >= CONNECTIONS_MAX {
            return None;
        }
        let number = state.next;
        state.next += 1;
        state.threads += 1;
        state.connections.insert(number, Arc::clone(wire));
        Some(number)
    }

    fn leave(&self, number: u64) {
        self.lock().connections.remove(&number);
        self.end_thread();
    }

    fn end_thread(&self) {
        self.lock().threads -= 1;
        self.ended.notify_all();
    }
}

/// The bytes of a word as system calls take it.
trait HostBytes {
    fn to_ne_bytes_of_host(self) -> [u8; 8];
}

impl HostBytes for u64 {
    #[expect(clippy::host_endian_bytes, reason = "an eventfd counts in the order of the host")]
    fn to_ne_bytes_of_host(self) -> [u8; 8] {
        self.to_ne_bytes()
    }
}

/// Connections of a server, each with a thread. A client with several connections uses 4 to 16.
const CONNECTIONS_MAX: usize = 256;
