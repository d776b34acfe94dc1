//! What an entry remembers for the next change of its file: whether ARCHIVE is set, and whether the time of last write stays.
//!
//! Spec: MS-FSA §2.1.4.17, §2.1.5.15.2 (UserSetModificationTime).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What an entry knows of its file.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// [`CLEARED`] when ARCHIVE was last seen set; 0: never.
    archived_at: AtomicU64,
    keeps_write_time: AtomicBool,
}

impl Marks {
    /// Whether ARCHIVE has certainly been set since a client cleared it of any file, as counted by [`cleared`].
    pub(super) fn is_archived(&self, cleared: u64) -> bool {
        self.archived_at.load(Ordering::Relaxed) == cleared
    }

    /// ARCHIVE was seen set after the count was taken.
    pub(super) fn note_archived(&self, cleared: u64) {
        self.archived_at.store(cleared, Ordering::Relaxed);
    }

    /// Whether changes of bytes by this handle leave the time of last write alone.
    pub(super) fn keeps_write_time(&self) -> bool {
        self.keeps_write_time.load(Ordering::Relaxed)
    }

    /// Whether they do from now on.
    pub(super) fn keep_write_time(&self, keeps: bool) {
        self.keeps_write_time.store(keeps, Ordering::Relaxed);
    }
}

/// How often clients have cleared ARCHIVE, of any file. To be asked before the attributes of a file are looked at.
pub(super) fn cleared() -> u64 {
    CLEARED.load(Ordering::Acquire)
}

/// A client has cleared ARCHIVE of a file. To be called when that is done.
pub(super) fn note_cleared() {
    CLEARED.fetch_add(1, Ordering::Release);
}

static CLEARED: AtomicU64 = AtomicU64::new(1);
