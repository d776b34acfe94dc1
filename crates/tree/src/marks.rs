//! What an entry knows of its file's facts, so that a change of bytes need not look.
//!
//! A backup clears ARCHIVE of what it has fetched. An entry remembers that it saw ARCHIVE set, and one count for all
//! files says that some client has cleared ARCHIVE of some file since. So a WRITE pays for a look at the attributes
//! once for each handle, and once more after each such change.
//!
//! Rejected: a mark for each file, because the handles of a file and of its streams, which share the attributes, have
//! no object in common here.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::attributes::DosAttributes;

/// What an entry knows of its file for the next change.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// [`CLEARED`] when ARCHIVE was last seen set; 0: never.
    archived_at: AtomicU64,
    keeps_write_time: AtomicBool,
}

impl Marks {
    /// The count of clearings, if ARCHIVE may have been cleared since it was last seen set.
    pub(super) fn may_lack_archive(&self) -> Option<u64> {
        let cleared = CLEARED.load(Ordering::Acquire);
        (self.archived_at.load(Ordering::Relaxed) != cleared).then_some(cleared)
    }

    /// ARCHIVE was seen set after the count of clearings was read.
    pub(super) fn note_archive(&self, cleared: u64) {
        self.archived_at.store(cleared, Ordering::Relaxed);
    }

    /// Whether changes of bytes by this handle leave the time of last write alone from now on.
    pub(super) fn keep_write_time(&self, keeps: bool) {
        self.keeps_write_time.store(keeps, Ordering::Relaxed);
    }

    pub(super) fn keeps_write_time(&self) -> bool {
        self.keeps_write_time.load(Ordering::Relaxed)
    }
}

/// A client has set the attributes of a file, with ARCHIVE or without. To be called when they are set.
pub(super) fn note_attributes(set: DosAttributes) {
    if !set.contains(DosAttributes::ARCHIVE) {
        CLEARED.fetch_add(1, Ordering::Release);
    }
}

/// How often clients have cleared ARCHIVE, of any file.
static CLEARED: AtomicU64 = AtomicU64::new(1);
