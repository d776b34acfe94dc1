//! Requests that wait for locks of one file.
//!
//! ```text
//!  behind lock 7:  3 4 9 ..        each waits behind one lock that is in its way, in the order they came
//!  behind lock 8:  5 6
//!  freed:          7               locks that have been given back: those behind them look again, one after another
//!  awake:          3               looks now; takes its lock, leaves, or waits behind another lock: then 4 is woken
//! ```
//!
//! A change of locks wakes one request at most, however many wait. Each of them looks in its own turn, so that
//! requests of others are served in between. As with Windows, a request that meets no lock when it comes is granted
//! at once, whoever waits: if it had to wait behind requests that wait, two opens could wait for each other for ever.
//!
//! Spec: MS-FSA §2.1.5.8, MS-SMB2 §3.3.5.14.2.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;

use super::lock_index::LockId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LockWaiters {
    arrivals: u64,
    behind: HashMap<LockId, BTreeMap<u64, Arc<Notify>>>,
    freed: VecDeque<LockId>,
    pub(super) awake: Option<u64>,
}

impl LockWaiters {
    pub(super) fn arrive(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    pub(super) fn wait(&mut self, waiting: &mut Waiting, lock: LockId) {
        self.detach(waiting);
        waiting.behind = lock;
        self.behind.entry(lock).or_default().insert(waiting.arrival, Arc::clone(&waiting.woken));
        self.wake();
    }

    pub(super) fn leave(&mut self, waiting: &Waiting) {
        self.detach(waiting);
        self.wake();
    }

    fn detach(&mut self, waiting: &Waiting) {
        if self.awake == Some(waiting.arrival) {
            self.awake = None;
        } else if let Some(queue) = self.behind.get_mut(&waiting.behind) {
            queue.remove(&waiting.arrival);
            if queue.is_empty() {
                self.behind.remove(&waiting.behind);
            }
        }
    }

    /// A lock has been given back. [`LockWaiters::wake`] is due.
    pub(super) fn free(&mut self, lock: LockId) {
        if self.behind.contains_key(&lock) {
            self.freed.push_back(lock);
        }
    }

    /// Has the next request look again, unless one does.
    pub(super) fn wake(&mut self) {
        while self.awake.is_none()
            && let Some(lock) = self.freed.front()
        {
            let next = self.behind.get_mut(lock).and_then(BTreeMap::pop_first);
            let Some((arrival, woken)) = next else {
                self.behind.remove(lock);
                self.freed.pop_front();
                continue;
            };
            self.awake = Some(arrival);
            woken.notify_one();
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.behind.is_empty() && self.freed.is_empty() && self.awake.is_none()
    }
}

/// A request, as the queue knows it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) arrival: u64,
    /// Behind which lock, unless it is awake.
    pub(super) behind: LockId,
    pub(super) woken: Arc<Notify>,
}
