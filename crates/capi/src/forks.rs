//! How often the process was forked since the library watches.

use std::sync::atomic::{AtomicU64, Ordering};

/// Forks between this process and the first that used the library.
pub(crate) fn count() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// This process is a child.
pub(crate) fn add_one() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

static FORKS: AtomicU64 = AtomicU64::new(0);
