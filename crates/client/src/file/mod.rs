//! Open files.

mod io;
mod lease;
mod meta;
mod open;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

pub use io::RangeLock;
pub(crate) use lease::Known;
pub use lease::Lease;
pub use open::{FileStat, Instance, Lasting, OpenOptions};
use smb::create::LeaseState;
use smb::push::PushResponse;
use smb::{CloseRequest, Command, FileId};

use crate::error::{ClientError, ConnectionError};
use crate::region::listeners;
use crate::tree::Tree;

/// An open file or directory. Dropping it closes it without waiting for the server.
#[derive(Debug)]
pub struct File {
    tree: Arc<Tree>,
    id: FileId,
    opened_as: FileStat,
    lease: Option<Lease>,
    /// The epoch and state of the lease in the answer, also where another open listens for its breaks.
    joined: Option<(u16, LeaseState)>,
    push: Option<PushResponse>,
    is_persistent: bool,
    end: AtomicU8,
}

impl File {
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The id of this open at the server.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Sizes, times and attributes at the moment of opening.
    pub fn opened_as(&self) -> FileStat {
        self.opened_as
    }

    /// The server's answer to the request for push mode; none if the open did not ask or the server
    /// does not know push mode.
    pub fn push(&self) -> Option<&PushResponse> {
        self.push.as_ref()
    }

    /// The addresses that the server names for RDMA in its answer to the request for push mode: those of them that are
    /// the server's own, or that it announces as its interfaces. A client dials no other.
    pub async fn rdma_addresses(&self) -> Vec<SocketAddr> {
        match &self.push {
            Some(PushResponse::Granted(grant)) => listeners::allowed(&self.tree, grant).await,
            Some(PushResponse::Refused(_)) | None => Vec::new(),
        }
    }

    /// Whether the handle outlives its connection and its server: every change by it is durable when it is answered.
    pub fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// Lets the server keep the handle: another connection is to get it back.
    pub(crate) fn leave(&self) {
        self.end.store(LEFT, Ordering::Relaxed);
    }

    /// The epoch and state of the lease when the file was opened.
    pub(crate) fn joined(&self) -> Option<(u16, LeaseState)> {
        self.joined
    }

    /// The lease, if the open asked for one.
    pub fn lease(&mut self) -> Option<&mut Lease> {
        self.lease.as_mut()
    }

    /// Takes the lease out, for another task that listens for its breaks.
    pub(crate) fn take_lease(&mut self) -> Option<Lease> {
        self.lease.take()
    }

    /// Closes the file.
    ///
    /// # Errors
    /// The server's status. The file is closed all the same.
    pub async fn close(self) -> Result<(), ClientError> {
        self.close_once().await
    }

    /// [`File::close`] of a file that several may hold; only the first call means something. One that was left is lost with
    /// its session: whoever has it back closes it.
    pub(crate) async fn close_once(&self) -> Result<(), ClientError> {
        match self.end.load(Ordering::Relaxed) {
            OPEN => {}
            LEFT => return Err(ConnectionError::Closed.into()),
            _ => return Ok(()),
        }
        let request = CloseRequest { query_attributes: false, file_id: self.id };
        let pending = self.tree.submit(Command::CLOSE, 0, |out| request.emit(out)).await?;
        // Only now: a caller that stops waiting before has the file closed by its drop.
        self.end.store(CLOSED, Ordering::Relaxed);
        pending.await?.success().map(drop)
    }

    /// Has the file closed without waiting for the answer, unless it is closed or left.
    pub(crate) fn close_soon(&self) {
        let (from, to, relaxed) = (OPEN, CLOSED, Ordering::Relaxed);
        if self.end.compare_exchange(from, to, relaxed, relaxed).is_ok() {
            self.tree.close_file(self.id);
        }
    }
}

/// The server has it open for this client.
const OPEN: u8 = 0;
/// The server is to keep it.
const LEFT: u8 = 1;
/// The server was asked to close it.
const CLOSED: u8 = 2;

impl Drop for File {
    fn drop(&mut self) {
        self.close_soon();
    }
}
