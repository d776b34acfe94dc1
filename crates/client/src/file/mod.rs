//! Open files.

mod io;
mod lease;
mod meta;
mod open;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use lease::Lease;
pub use open::{FileStat, OpenOptions};
use smb::push::PushResponse;
use smb::{CloseRequest, Command, FileId};

use crate::error::ClientError;
use crate::tree::Tree;

/// An open file or directory. Dropping it closes it without waiting for the server.
#[derive(Debug)]
pub struct File {
    tree: Arc<Tree>,
    id: FileId,
    opened_as: FileStat,
    lease: Option<Lease>,
    push: Option<PushResponse>,
    closed: AtomicBool,
}

impl File {
    /// The server's name for this open.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Sizes, times and attributes at the moment of opening.
    pub fn opened_as(&self) -> FileStat {
        self.opened_as
    }

    /// What the server said about push mode; none if it was not asked for or it knows none.
    pub fn push(&self) -> Option<&PushResponse> {
        self.push.as_ref()
    }

    /// The lease, if one was asked for.
    pub fn lease(&mut self) -> Option<&mut Lease> {
        self.lease.as_mut()
    }

    /// Takes the lease away, to listen for its breaks elsewhere.
    pub(crate) fn take_lease(&mut self) -> Option<Lease> {
        self.lease.take()
    }

    /// Closes the file.
    ///
    /// # Errors
    /// The server's status. The file is closed all the same.
    pub async fn close(self) -> Result<(), ClientError> {
        self.closed.store(true, Ordering::Relaxed);
        let request = CloseRequest { query_attributes: false, file_id: self.id };
        self.tree.call(Command::CLOSE, 0, |out| request.emit(out)).await.map(drop)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Relaxed) {
            let request = CloseRequest { query_attributes: false, file_id: self.id };
            // Without a free credit the server closes it with the session.
            let _ = self.tree.try_submit(Command::CLOSE, |out| request.emit(out));
        }
    }
}
