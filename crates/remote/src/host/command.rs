//! The commands of the control side to an engine thread.

use std::ops::Range;
use std::sync::Arc;

use pmem::Medium;
use rdma::{Access, Handover, MemoryRegion, Rkey};
use tokio::sync::oneshot;

use super::handle::{HostError, PushConnection};
use super::request::Request;

/// One command. A reply is dropped if its caller no longer waits.
#[derive(Debug)]
pub(super) enum Command {
    /// See [`super::HostHandle::register`].
    Register {
        connection: PushConnection,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
        reply: oneshot::Sender<Result<MemoryRegion, HostError>>,
    },
    /// See [`super::HostHandle::deregister`].
    Deregister { connection: PushConnection, rkey: Rkey, reply: oneshot::Sender<()> },
    /// A connection request that another thread received and this thread serves.
    TakeOver { handover: Handover, request: Request },
    /// See [`super::HostHandle::disconnect`].
    Disconnect { connection: PushConnection, reply: oneshot::Sender<()> },
}

/// Commands that wait for the engine thread; a caller that finds the queue full waits too. Deep
/// enough for every session of a busy server to map or unmap at once, at about 100 bytes each.
pub(super) const COMMANDS_MAX: usize = 1024;
/// Commands handled in one turn, so that a flood of them does not delay the data path.
pub(super) const COMMANDS_PER_TURN: usize = 32;
