//! Marks which operations of a worker's batch an engine withdraws: those on a region that ended, or all.
//!
//! A worker checks the marks before each operation and within long ones; the check is a load while nothing
//! was withdrawn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug, Default)]
pub(in super::super) struct Withdrawn {
    is_any: AtomicBool,
    what: Mutex<What>,
}

#[derive(Debug, Default)]
struct What {
    all: bool,
    /// Tags of the regions that ended; a batch refers to [`super::OPERATIONS_MAX`] at most.
    tags: Vec<u32>,
}

impl Withdrawn {
    /// The region has ended, and no further operation on it begins.
    pub(in super::super) fn region(&self, tag: u32) {
        self.lock().tags.push(tag);
        self.is_any.store(true, Ordering::Release);
    }

    /// The connection has ended, and no further operation begins.
    pub(in super::super) fn all(&self) {
        self.lock().all = true;
        self.is_any.store(true, Ordering::Release);
    }

    /// Whether an operation on the region must not begin.
    pub(in super::super) fn covers(&self, tag: u32) -> bool {
        if !self.is_any.load(Ordering::Acquire) {
            return false;
        }
        let what = self.lock();
        what.all || what.tags.contains(&tag)
    }

    /// Clears the marks for the next batch.
    pub(super) fn clear(&self) {
        if self.is_any.swap(false, Ordering::Relaxed) {
            let mut what = self.lock();
            what.all = false;
            what.tags.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, What> {
        self.what.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
