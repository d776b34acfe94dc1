//! Carries the server's recall of a region to the thread that uses the region.
//!
//! ```text
//!            ask (control task)            leave (owner, after a commit)
//!  Granted ------------------> Asked --------------------------------------> Left
//!     ^                          |  leave (control task: the owner was idle)   |
//!     |                          '---------------------------------------------|
//!     '------------------------------ grant (mapped again) --------------------'
//! ```
//!
//! The owner looks at one atomic word before each operation. An owner that makes no calls cannot
//! answer, so the control task returns the region in the owner's name when half of the grace is
//! over; the side that takes the step to `Left` sends the unmapping.

use std::fmt::Debug;
use std::sync::{OnceLock, PoisonError};

use rdma::Waker;

use crate::shared::{AtomicU8, Mutex, Ordering};

/// One region's recall state, shared by its owner and the control task.
#[derive(Debug)]
pub struct Recall {
    state: AtomicU8,
    waker: Mutex<Option<Waker>>,
    /// Wakes an owner that sleeps on something other than its channel.
    bell: OnceLock<Box<dyn Bell>>,
}

/// Wakes an owner for a recall.
pub(crate) trait Bell: Debug + Send + Sync {
    /// Must not wait.
    fn ring(&self);
}

impl Recall {
    /// Not recalled.
    pub(crate) fn new() -> Self {
        Self { state: AtomicU8::new(GRANTED), waker: Mutex::new(None), bell: OnceLock::new() }
    }

    /// From now on each recall rings `bell` too. An owner has one bell.
    pub(crate) fn ring_also(&self, bell: Box<dyn Bell>) {
        let set = self.bell.set(bell);
        debug_assert!(set.is_ok(), "a region is handed to one thread once");
    }

    /// The region was mapped (again); `waker` ends the owner's waits.
    pub(crate) fn grant(&self, waker: Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
        self.state.store(GRANTED, Ordering::Release);
    }

    /// The server wants the region back.
    pub fn ask(&self) {
        let asked =
            self.state.compare_exchange(GRANTED, ASKED, Ordering::AcqRel, Ordering::Acquire);
        if asked.is_ok() {
            self.wake_owner();
            self.bell.get().into_iter().for_each(|bell| bell.ring());
        }
    }

    /// Ends the owner's wait, on whatever channel it waits now.
    pub(crate) fn wake_owner(&self) {
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake();
        }
    }

    /// Whether the owner may go on using the region. One load.
    pub fn is_granted(&self) -> bool {
        self.state.load(Ordering::Acquire) == GRANTED
    }

    /// Takes the step to `Left`; `true` for the side that took it.
    pub fn leave(&self) -> bool {
        self.state.swap(LEFT, Ordering::AcqRel) != LEFT
    }
}

impl Default for Recall {
    fn default() -> Self {
        Self::new()
    }
}

const GRANTED: u8 = 0;
const ASKED: u8 = 1;
const LEFT: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_side_returns_a_region() {
        let recall = Recall::new();
        recall.ask();
        assert!(!recall.is_granted());
        assert!(recall.leave());
        assert!(!recall.leave());
    }

    #[test]
    fn a_recall_of_a_returned_region_has_no_effect() {
        let recall = Recall::new();
        assert!(recall.leave());
        recall.ask();
        assert!(!recall.leave());
    }
}
