//! The server: listens, and gives each connection a thread of its own.
//!
//! A connection whose device answers from memory is served by its one thread: it takes every request that has arrived,
//! answers all of them, and sends the answers at once. Where the device may wait for a disk, requests go to more threads
//! of the same connection, so that writes that wait for the same flush share it, and no client waits for another.

mod address;
mod connection;
mod input;
mod listen;
mod memory;
mod patience;
mod requests;
mod shared;
mod tls;
mod wire;
mod workers;

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;

use crate::Exports;
pub use address::{Address, ListenError};
use listen::Listener;
use shared::{Offer, Shared};
pub use tls::{TlsError, TlsFiles};

/// A server of block devices.
#[derive(Debug)]
pub struct Server {
    offer: Offer,
}

impl Server {
    /// A server of these devices. With TLS nobody is told or given anything without it.
    ///
    /// # Errors
    ///
    /// The files of TLS cannot be used.
    pub fn new(exports: Exports, tls: Option<&TlsFiles>) -> Result<Self, TlsError> {
        let tls = tls.map(TlsFiles::load).transpose()?;
        Ok(Self { offer: Offer { exports: Arc::new(exports), tls } })
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
        let shared = Arc::new(Shared::new(self.offer, stop));
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
                    // The path of its socket goes before the server counts as ended.
                    drop(listener);
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

/// A server that listens. Dropping it ends the server: what clients have sent is carried out and answered first. A
/// client that does not read its replies within two seconds loses them.
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
        let limit = Instant::now() + ENDING_LIMIT;
        while state.threads > 0 {
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // Wakes the threads that wait for a client to read.
                state.connections.values().for_each(|wire| wire.cut());
                state = self.shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                let waited = self.shared.ended.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
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

/// Time that clients have to read the replies of a server that ends.
const ENDING_LIMIT: Duration = Duration::from_secs(2);
