//! The count of exclusive locks of a file, which a read compares before and after: see [`super::reads`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many exclusive locks of a file have been taken. Counted under the lock of the node, asked without.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExclusiveLocks(Arc<AtomicU64>);

impl ExclusiveLocks {
    /// One more, before anybody hears of it.
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// How many have been taken so far.
    pub(super) fn so_far(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
