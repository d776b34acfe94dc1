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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smb::create::{Lease as WireLease, LeaseKey, LeaseState, LeaseVersion};
use smb::{Command, LeaseBreakAck};

use crate::connection::{BreakReceiver, LeaseBreak};
use crate::error::{ClientError, ConnectionError};
use crate::tree::Tree;

/// Caching rights on a file.
#[derive(Debug)]
pub struct Lease {
    tree: Arc<Tree>,
    key: LeaseKey,
    known: Known,
    breaks: BreakReceiver,
}

/// What a client knows of its lease: the state, and the epoch, which counts the changes of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Arc<Mutex<(u16, Rights)>>);

impl Known {
    /// The epoch and the state.
    pub(crate) fn now(&self) -> (u16, LeaseState) {
        let (epoch, Rights(state)) = *self.lock();
        (epoch, state)
    }

    /// Takes the answer to another open under the same key, which may have widened the lease.
    pub(crate) fn hear(&self, epoch: u16, state: LeaseState) {
        let mut known = self.lock();
        if (1..=EPOCHS_AHEAD).contains(&epoch.wrapping_sub(known.0)) {
            *known = (epoch, Rights(state));
        }
    }

    fn set(&self, epoch: u16, state: LeaseState) {
        *self.lock() = (epoch, Rights(state));
    }

    fn lock(&self) -> MutexGuard<'_, (u16, Rights)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A state, at first an empty one.
#[derive(Clone, Copy, Debug)]
struct Rights(LeaseState);

impl Default for Rights {
    fn default() -> Self {
        Self(LeaseState::empty())
    }
}

/// The epoch of a granted lease; 0 where its version has none.
pub(super) fn epoch_of(lease: &WireLease) -> u16 {
    match lease.version {
        LeaseVersion::V2 { epoch, .. } => epoch,
        LeaseVersion::V1 => 0,
    }
}

/// An epoch that is at most so much ahead of another is newer: they wrap.
const EPOCHS_AHEAD: u16 = 0x7fff;

impl Lease {
    /// Draws a key and listens for its breaks.
    pub(super) fn new(tree: &Arc<Tree>) -> Result<Self, ClientError> {
        let mut key = [0; 16];
        tree.connection().random().fill(&mut key).map_err(|_| ClientError::HostRandom)?;
        Ok(Self::again(tree, LeaseKey(key)))
    }

    /// Listens for the breaks of a key that the client has had on another connection.
    pub(super) fn again(tree: &Arc<Tree>, key: LeaseKey) -> Self {
        let breaks = tree.connection().breaks().listen(key);
        Self { tree: Arc::clone(tree), key, known: Known::default(), breaks }
    }

    pub(super) fn granted(self, lease: &WireLease) -> Self {
        self.known.set(epoch_of(lease), lease.state);
        self
    }

    /// What the client knows of the lease, also while a task waits for its breaks.
    pub(crate) fn known(&self) -> Known {
        self.known.clone()
    }

    /// The key that names the lease to the server.
    pub fn key(&self) -> LeaseKey {
        self.key
    }

    /// The rights that the client has.
    pub fn state(&self) -> LeaseState {
        self.known.now().1
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
        let state = found.left_of(self.state());
        self.known.set(found.epoch, state);
        if found.ack_required {
            let ack = LeaseBreakAck { lease_key: self.key, state };
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
