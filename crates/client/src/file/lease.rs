//! A lease on an open file, and its breaks.
//!
//! ```text
//!   granted(state) --next_break()--> LeaseBreak --acknowledge()--> state shrinks
//! ```
//!
//! The connection listens for breaks before the client asks for the lease, so that no break is lost
//! between the server's answer and the first call of [`Lease`].
//!
//! Spec: MS-SMB2 §3.2.4.8 (keys), §3.2.5.19.2.

use std::sync::Arc;

use smb::create::{Lease as WireLease, LeaseKey, LeaseState, LeaseVersion};
use smb::{Command, LeaseBreakAck};

use crate::connection::{BreakCount, BreakReceiver, LeaseBreak};
use crate::error::{ClientError, ConnectionError};
use crate::tree::Tree;

/// Caching rights on a file.
#[derive(Debug)]
pub struct Lease {
    tree: Arc<Tree>,
    key: LeaseKey,
    state: LeaseState,
    epoch: u16,
    breaks: BreakReceiver,
    count: BreakCount,
}

impl Lease {
    /// Draws a key and listens for its breaks.
    pub(super) fn new(tree: &Arc<Tree>) -> Result<Self, ClientError> {
        let mut key = [0; 16];
        tree.connection().random().fill(&mut key).map_err(|_| ClientError::HostRandom)?;
        Ok(Self::again(tree, LeaseKey(key)))
    }

    /// Listens for the breaks of a key that the client has had on another connection.
    pub(super) fn again(tree: &Arc<Tree>, key: LeaseKey) -> Self {
        let (breaks, count) = tree.connection().breaks().listen(key);
        let state = LeaseState::empty();
        Self { tree: Arc::clone(tree), key, state, epoch: 0, breaks, count }
    }

    pub(super) fn granted(mut self, lease: &WireLease) -> Self {
        self.state = lease.state;
        if let LeaseVersion::V2 { epoch, .. } = lease.version {
            self.epoch = epoch;
        }
        self
    }

    /// Counts the changes of the lease, as the server does.
    pub(crate) fn epoch(&self) -> u16 {
        self.epoch
    }

    /// The key that names the lease to the server.
    pub fn key(&self) -> LeaseKey {
        self.key
    }

    /// The rights that the client has.
    pub fn state(&self) -> LeaseState {
        self.state
    }

    /// Counts the breaks of the lease as they arrive.
    pub(crate) fn break_count(&self) -> BreakCount {
        self.count.clone()
    }

    /// Waits until the server breaks the lease.
    ///
    /// # Errors
    /// The connection is lost, and the lease with it.
    pub async fn next_break(&mut self) -> Result<LeaseBreak, ClientError> {
        self.breaks.recv().await.ok_or_else(|| ConnectionError::Closed.into())
    }

    /// A break that has arrived, without waiting.
    pub fn try_next_break(&mut self) -> Option<LeaseBreak> {
        self.breaks.try_recv().ok()
    }

    /// Tells the server that the client no longer caches what the break took.
    ///
    /// # Errors
    /// The server's status.
    pub async fn acknowledge(&mut self, found: LeaseBreak) -> Result<(), ClientError> {
        self.state = found.left_of(self.state);
        self.epoch = found.epoch;
        if found.ack_required {
            let ack = LeaseBreakAck { lease_key: self.key, state: self.state };
            self.tree.call(Command::OPLOCK_BREAK, 0, |out| ack.emit(out)).await?;
        }
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.tree.connection().breaks().forget(self.key);
    }
}
