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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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

/// How many breaks of a lease have arrived, whether or not the holder has taken them. A break that
/// arrived before an answer is counted before that answer is handed out. What has not arrived may have been sent all the same,
/// and long ago.
#[derive(Clone, Debug, Default)]
pub(crate) struct BreakCount(Arc<AtomicU64>);

impl BreakCount {
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    #[cfg(test)]
    pub(crate) fn arrive(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[derive(Debug)]
struct Listener {
    sender: mpsc::Sender<LeaseBreak>,
    count: BreakCount,
}

#[derive(Debug, Default)]
pub(crate) struct Breaks(Mutex<HashMap<LeaseKey, Listener>>);

impl Breaks {
    /// Listens for breaks of a key, before the lease is asked for.
    pub(crate) fn listen(&self, key: LeaseKey) -> (BreakReceiver, BreakCount) {
        let (sender, receiver) = mpsc::channel(BREAKS_MAX);
        let count = BreakCount::default();
        self.lock().insert(key, Listener { sender, count: count.clone() });
        (receiver, count)
    }

    /// Stops listening.
    pub(crate) fn forget(&self, key: LeaseKey) {
        self.lock().remove(&key);
    }

    /// Hands a break to its listener; `false` if no listener could take it.
    pub(super) fn deliver(&self, found: LeaseBreak) -> bool {
        let mut listeners = self.lock();
        let taken = listeners.get(&found.key).is_some_and(|listener| {
            listener.count.0.fetch_add(1, Ordering::Release);
            listener.sender.try_send(found).is_ok()
        });
        if !taken {
            listeners.remove(&found.key);
        }
        taken
    }

    pub(super) fn close(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<LeaseKey, Listener>> {
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
