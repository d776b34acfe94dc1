//! The control side's end of an engine thread.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use pmem::Medium;
use rdma::{Access, MemoryRegion, RegisterError, Rkey};
use thiserror::Error;
use tokio::sync::oneshot;

use super::command::Command;
use super::lanes::Lanes;

/// One admitted push connection. The number never names another connection later.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PushConnection(pub u64);

impl PushConnection {
    /// The number as bytes, little-endian: what a gate may tell the peer.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// The connection that [`PushConnection::to_bytes`] made `bytes` of. Any number names a connection, though
    /// perhaps one that is gone.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }
}

impl fmt::Display for PushConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "push connection {}", self.0)
    }
}

/// Sends commands to the engine threads. Clones are cheap, and may outlive the threads.
#[derive(Clone, Debug)]
pub struct HostHandle {
    lanes: Lanes,
    facts: Facts,
}

/// What is known of the engines once they listen.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) address: SocketAddr,
    pub(super) same_host: Option<SocketAddr>,
    pub(super) reaches_files: bool,
    pub(super) runtime: tokio::runtime::Handle,
}

impl HostHandle {
    pub(super) fn new(lanes: Lanes, facts: Facts) -> Self {
        Self { lanes, facts }
    }

    /// The queues to the threads.
    pub(super) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The address where the engine listens, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.facts.address
    }

    /// The name under which processes of this host find an engine through shared memory, with its real port.
    pub fn same_host(&self) -> Option<SocketAddr> {
        self.facts.same_host
    }

    /// Whether media that are not memory of this process can be registered: an RDMA device reaches only
    /// memory.
    pub fn reaches_files(&self) -> bool {
        self.facts.reaches_files
    }

    /// The runtime in whose context gate and handlers are called.
    pub(super) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.facts.runtime
    }

    /// Lets the peer of `connection` use a range of `medium`. Constant time for any length.
    ///
    /// Dropping the returned future before it is done removes the registration.
    pub async fn register(
        &self,
        connection: PushConnection,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
    ) -> Result<MemoryRegion, HostError> {
        let (reply, answer) = oneshot::channel();
        let mut registration = Registration { handle: self, connection, answer };
        self.ask(connection, Command::Register { connection, medium, range, access, reply })
            .await?;
        (&mut registration.answer).await.map_err(|_| HostError::EngineStopped)?
    }

    /// Ends a region, and returns when no operation of the peer touches it any more. From the
    /// moment the engine takes the command no new operation on the region begins. A region or
    /// connection that is gone already is no error.
    ///
    /// Dropping the future does not cancel a command that was queued.
    pub async fn deregister(
        &self,
        connection: PushConnection,
        rkey: Rkey,
    ) -> Result<(), HostError> {
        let (reply, answer) = oneshot::channel();
        self.ask(connection, Command::Deregister { connection, rkey, reply }).await?;
        answer.await.map_err(|_| HostError::EngineStopped)
    }

    /// Ends a connection, and returns when it is gone with all its regions ([`super::Gate::gone`]
    /// was called before). A connection that is gone already is no error.
    pub async fn disconnect(&self, connection: PushConnection) -> Result<(), HostError> {
        let (reply, answer) = oneshot::channel();
        self.ask(connection, Command::Disconnect { connection, reply }).await?;
        answer.await.map_err(|_| HostError::EngineStopped)
    }

    async fn ask(&self, connection: PushConnection, command: Command) -> Result<(), HostError> {
        let lane = self.lanes.of(connection);
        lane.commands.send(command).await.map_err(|_| HostError::EngineStopped)?;
        lane.waker.wake();
        Ok(())
    }
}

/// A registration whose answer has not been taken; it is undone if the waiting future is dropped.
#[derive(Debug)]
struct Registration<'a> {
    handle: &'a HostHandle,
    connection: PushConnection,
    answer: oneshot::Receiver<Result<MemoryRegion, HostError>>,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        // The engine itself undoes a registration that it answers from here on.
        self.answer.close();
        if let Ok(Ok(region)) = self.answer.try_recv() {
            let (reply, _) = oneshot::channel();
            let (connection, rkey) = (self.connection, region.rkey);
            // If the queue is full the region stays until its connection ends.
            let lane = self.handle.lanes.of(connection);
            let _ = lane.commands.try_send(Command::Deregister { connection, rkey, reply });
            lane.waker.wake();
        }
    }
}

/// Why an engine thread did not carry out a command.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum HostError {
    /// The connection has ended.
    #[error("the push connection has ended")]
    PeerGone,
    /// The engine refused.
    #[error(transparent)]
    Refused(#[from] RegisterError),
    /// The thread has stopped, and the engine with all its connections and regions is gone.
    #[error("the engine has stopped")]
    EngineStopped,
}

impl HostError {
    /// Whether no attempt can succeed: the provider never registers such memory.
    pub fn is_for_good(&self) -> bool {
        matches!(self, Self::Refused(refused) if refused.is_for_good())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_no_device_reaches_is_not_reported_as_a_shortage() {
        assert!(HostError::Refused(RegisterError::MediumNotMemory).is_for_good());
        assert!(!HostError::Refused(RegisterError::RegionsExhausted { max: 1 }).is_for_good());
        assert!(!HostError::PeerGone.is_for_good());
    }
}
