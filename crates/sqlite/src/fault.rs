//! Faults that a test plants: the n-th call of the files of one database fails.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts calls, and says which fails.
#[derive(Debug, Default)]
pub(crate) struct Fault {
    at: Option<u64>,
    stays: bool,
    calls: AtomicU64,
}

impl Fault {
    pub(crate) fn new(at: Option<u64>, stays: bool) -> Self {
        Self { at, stays, calls: AtomicU64::new(0) }
    }

    /// Whether this call fails.
    pub(crate) fn is_here(&self) -> bool {
        let Some(at) = self.at else { return false };
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        call == at || self.stays && call > at
    }
}
