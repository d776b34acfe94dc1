//! Registering and deregistering memory, for the control side of a program.
//!
//! A trait, so that a test of a control side needs no engine.

use std::fmt::Debug;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use pmem::Medium;
use rdma::{Access, MemoryRegion, Rkey};

use super::handle::{HostError, HostHandle, PushConnection};

/// An operation in progress at the owner of the queue pairs.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Owns the queue pairs of push connections.
pub trait Registrar: Debug + Send + Sync {
    /// Whether media that are not memory of this process can be registered.
    fn reaches_files(&self) -> bool;

    /// Lets the peer of `connection` use a range. Constant time for any length.
    fn register(
        &self,
        connection: PushConnection,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
    ) -> Later<Result<MemoryRegion, HostError>>;

    /// Ends a registration: resolves when no operation touches the region any more, at once if it
    /// or its connection is gone already.
    fn deregister(&self, connection: PushConnection, rkey: Rkey) -> Later<()>;

    /// Ends a connection and all its registrations.
    fn disconnect(&self, connection: PushConnection);
}

impl Registrar for HostHandle {
    fn reaches_files(&self) -> bool {
        Self::reaches_files(self)
    }

    fn register(
        &self,
        connection: PushConnection,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
    ) -> Later<Result<MemoryRegion, HostError>> {
        let handle = self.clone();
        Box::pin(async move { handle.register(connection, medium, range, access).await })
    }

    fn deregister(&self, connection: PushConnection, rkey: Rkey) -> Later<()> {
        let handle = self.clone();
        Box::pin(async move {
            // An engine that has stopped no longer touches the region either.
            let _ = handle.deregister(connection, rkey).await;
        })
    }

    fn disconnect(&self, connection: PushConnection) {
        let handle = self.clone();
        self.runtime().spawn(async move { handle.disconnect(connection).await });
    }
}
