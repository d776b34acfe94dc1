//! The destination's end: an engine that lets a source write into the ring, as long as this member wants it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use basics::Environment;
use rdma::{Access, EngineConfig, PeerOperations, Rkey};
use remote::host::{Host, HostHandle, HostOptions, OpenHost, PushConnection, PushOnly, TokenGate};
use tokio::runtime::{Builder, Runtime};

use super::channel::Target;
use super::{OneSidedError, OneSidedOptions};
use crate::message::{Peer, Ticket};
use crate::ring::Ring;

/// An engine that serves the ring to sources. It ends when this is dropped.
pub struct Hosting {
    handle: HostHandle,
    gate: Arc<TokenGate<Peer>>,
    mapped: Mutex<Vec<Mapped>>,
    host: Option<Host>,
    /// Of the engine's control side: nothing runs in it but what its callers wait for.
    runtime: Option<Runtime>,
}

/// A ring that a peer may write.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    peer: Peer,
    connection: PushConnection,
    rkey: Rkey,
}

impl Hosting {
    /// Opens an engine that listens.
    ///
    /// # Errors
    ///
    /// The provider opens no engine, or the system starts no thread.
    pub fn open(
        options: &OneSidedOptions,
        environment: &Environment,
    ) -> Result<Self, OneSidedError> {
        let system = |error: std::io::Error| OneSidedError::System(error.to_string());
        let runtime = Builder::new_current_thread().build().map_err(system)?;
        let engine = EngineConfig {
            polling: options.polling,
            qps_max: CONNECTIONS_MAX,
            handshakes_max: HANDSHAKES_MAX,
            regions_max: CONNECTIONS_MAX,
            workers_max: WORKERS_MAX,
            environment: environment.clone(),
            ..EngineConfig::default()
        };
        let open = OpenHost::open(HostOptions {
            listen: options.listen,
            same_host: None,
            provider: options.provider.provider(),
            engine,
            threads: 1,
            runtime: runtime.handle().clone(),
            stop_grace: STOP_GRACE,
        })?;
        let connections = usize::try_from(CONNECTIONS_MAX).expect("few");
        let gate = Arc::new(TokenGate::new(environment, TICKET_LIFETIME, connections));
        let handle = open.handle().clone();
        let host = open.run(Arc::clone(&gate) as _, |_| PushOnly).map_err(system)?;
        Ok(Self {
            handle,
            gate,
            mapped: Mutex::default(),
            host: Some(host),
            runtime: Some(runtime),
        })
    }

    /// Where the engine listens.
    pub fn address(&self) -> SocketAddr {
        self.handle.address()
    }

    /// A ticket for one connection of a peer; those that it had are void.
    ///
    /// # Errors
    ///
    /// Too many tickets are out, or there are no random numbers.
    pub fn invite(&self, peer: Peer) -> Result<Ticket, OneSidedError> {
        self.gate.void(|bearer| *bearer == peer);
        Ok(Ticket(*self.gate.issue(peer)?.expose()))
    }

    /// Lets a peer write into the ring by one-sided operations on a connection that shows its ticket. Only the bytes of the
    /// records can be reached, and nothing can be read.
    ///
    /// # Errors
    ///
    /// The connection is another's or gone, or the engine cannot do it.
    pub fn map(&self, peer: Peer, connection: u64, ring: &Ring) -> Result<Target, OneSidedError> {
        let connection = PushConnection(connection);
        if self.gate.bearer(connection) != Some(peer) {
            return Err(OneSidedError::OtherBearer);
        }
        if self.lock().iter().any(|it| it.peer == peer) {
            return Err(OneSidedError::OtherBearer);
        }
        let (begin, capacity) = (ring.geometry().ring(), ring.capacity());
        let access = Access::REMOTE_WRITE | Access::FLUSH_PERSISTENCE;
        let medium = Arc::clone(ring.medium());
        let registered = self.handle.register(connection, medium, begin..begin + capacity, access);
        let region = self.wait_for(registered)?;
        self.lock().push(Mapped { peer, connection, rkey: region.rkey });
        if !region.offers.contains(PeerOperations::FLUSH) {
            self.revoke(peer);
            return Err(OneSidedError::NoFlush);
        }
        Ok(Target { key: region.rkey.0, address: region.remote_addr_base })
    }

    /// Whether a peer may write into the ring.
    pub fn is_mapped(&self, peer: Peer) -> bool {
        self.lock().iter().any(|it| it.peer == peer)
    }

    /// Ends what a peer may do. When this returns no operation of it touches the ring any more, and none will.
    pub fn revoke(&self, peer: Peer) {
        self.gate.void(|bearer| *bearer == peer);
        self.revoke_those(|it| it.peer == peer);
    }

    /// [`Hosting::revoke`] of all peers.
    pub fn revoke_all(&self) {
        self.revoke_those(|_| true);
    }

    fn revoke_those(&self, is_it: impl Fn(&Mapped) -> bool) {
        let those: Vec<Mapped> = self.lock().iter().filter(|it| is_it(it)).copied().collect();
        for Mapped { connection, rkey, .. } in those {
            // An engine that has stopped touches nothing either.
            let _ = self.wait_for(self.handle.deregister(connection, rkey));
            let _ = self.wait_for(self.handle.disconnect(connection));
            // Still listed until here: who asks meanwhile waits too.
            self.lock().retain(|it| it.rkey != rkey || it.connection != connection);
        }
    }

    fn wait_for<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("there until the end").handle().block_on(what)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Mapped>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hosting {
    fn drop(&mut self) {
        drop(self.host.take());
        // Nothing runs in it; a task of the caller's may be around this.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Hosting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hosting({})", self.address())
    }
}

/// Connections of sources at once: one is in use, others are ending.
const CONNECTIONS_MAX: u32 = 32;
/// Connections that have not shown a ticket, at once.
const HANDSHAKES_MAX: u32 = 16;
/// Threads of the engine for operations that wait for a disk.
const WORKERS_MAX: u16 = 4;
/// How long a ticket is good.
const TICKET_LIFETIME: Duration = Duration::from_secs(30);
/// How long the end waits for an operation inside a file.
const STOP_GRACE: Duration = Duration::from_secs(5);
