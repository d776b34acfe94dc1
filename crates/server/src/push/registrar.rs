//! The seam to the owner of the queue pairs: registering and deregistering memory.

use std::fmt::Debug;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use pmem::Medium;
use rdma::{Access, MemoryRegion, Rkey};

/// The name of an accepted push connection at its owner.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct EngineConnection(pub(crate) u64);

/// An operation in progress at the owner of the queue pairs.
pub(crate) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Why a range was not registered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NotRegistered {
    /// The connection is gone, or a limit is reached.
    Resources,
    /// The provider can never register such memory.
    Unreachable,
}

/// Owns the queue pairs of push connections.
pub(crate) trait Registrar: Debug + Send + Sync {
    /// Whether media that are not memory of this process can be registered.
    fn reaches_files(&self) -> bool;

    /// Lets the peer of `connection` use a range.
    fn register(
        &self,
        connection: EngineConnection,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
    ) -> Later<Result<MemoryRegion, NotRegistered>>;

    /// Ends a registration: resolves when no operation touches the region any more, at once if it
    /// or its connection is gone already.
    fn deregister(&self, connection: EngineConnection, rkey: Rkey) -> Later<()>;

    /// Ends a connection and all its registrations.
    fn disconnect(&self, connection: EngineConnection);
}
