//! Numbers for the status report.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Numbers for the status report.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicUsize,
    pub(crate) refused: AtomicU64,
    pub(crate) logons_failed: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) stagings: AtomicUsize,
}

impl Counters {
    /// Counts a panic that was caught.
    pub(crate) fn note_panic(&self, place: &'static str) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        tracing::error!(place, "a bug: this panicked, and is given up");
    }
}
