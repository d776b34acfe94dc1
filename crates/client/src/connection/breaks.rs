//! Breaks of leases: from the connection to the holder of the lease.
//!
//! ```text
//!   OPLOCK_BREAK, message id -1 --> key known?  --> BreakReceiver of the file
//!                                       \ no, or no listener: acknowledged at once
//! ```
//!
//! A server waits for an answer: a break of a lease without holder is acknowledged with the state
//! that the server asks for, since this client caches nothing under that key.
//!
//! Spec: MS-SMB2 §3.2.5.19.2.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use smb::LeaseBreakNotification;
use smb::create::{LeaseKey, LeaseState};
use tokio::sync::mpsc;

/// The server takes caching rights back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeaseBreak {
    /// The key of the lease.
    pub key: LeaseKey,
    /// The rights that the client keeps.
    pub new: LeaseState,
    /// The server waits for an acknowledgement.
    pub ack_required: bool,
    /// Counts the changes of this lease.
    pub epoch: u16,
}

impl LeaseBreak {
    /// The rights that remain of a lease. No break is signed (MS-SMB2 §3.2.5.1.3), so a break never
    /// adds a right.
    pub(crate) fn left_of(&self, state: LeaseState) -> LeaseState {
        state.intersection(self.new)
    }
}

impl From<LeaseBreakNotification> for LeaseBreak {
    fn from(notification: LeaseBreakNotification) -> Self {
        Self {
            key: notification.lease_key,
            new: notification.new,
            ack_required: notification.ack_required,
            epoch: notification.epoch,
        }
    }
}

pub(crate) type BreakReceiver = mpsc::Receiver<LeaseBreak>;

#[derive(Debug, Default)]
pub(crate) struct Breaks(Mutex<HashMap<LeaseKey, mpsc::Sender<LeaseBreak>>>);

impl Breaks {
    /// Listens for breaks of a key, before the lease is asked for.
    pub(crate) fn listen(&self, key: LeaseKey) -> BreakReceiver {
        let (sender, receiver) = mpsc::channel(BREAKS_MAX);
        self.lock().insert(key, sender);
        receiver
    }

    /// Stops listening.
    pub(crate) fn forget(&self, key: LeaseKey) {
        self.lock().remove(&key);
    }

    /// Hands a break to its listener; `false` if no listener could take it.
    pub(super) fn deliver(&self, found: LeaseBreak) -> bool {
        let mut listeners = self.lock();
        let listener = listeners.get(&found.key);
        let taken = listener.is_some_and(|listener| listener.try_send(found).is_ok());
        if !taken {
            listeners.remove(&found.key);
        }
        taken
    }

    pub(super) fn close(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseKey, mpsc::Sender<LeaseBreak>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lease has three rights to lose, one by one at worst, and may be granted again.
const BREAKS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_adds_no_right_to_a_lease() {
        let (read, write) = (LeaseState::READ, LeaseState::WRITE);
        for (held, said, left) in [
            (read | write, read, read),
            (read, read | write, read),
            (read, write, LeaseState::empty()),
        ] {
            let key = LeaseKey([3; 16]);
            let found = LeaseBreak { key, new: said, ack_required: true, epoch: 1 };
            assert_eq!(found.left_of(held), left);
        }
    }
}
