//! The header of a frame: the page that it holds, its state, and how many threads are at its bytes.
//!
//! ```text
//!   state:  | flags: resident dirty queued writing fetching lost ahead main | uses: 4 bits | pins: 32 bits |
//!
//!   (free) --claim--> FETCHING --arrive--> RESIDENT --place--> RESIDENT DIRTY QUEUED
//!      ^                 |                    |   ^                       | write-back begins
//!      |                 | the read failed    |   |                       v
//!      +-----------------+                    |   +---- ended ---- RESIDENT WRITING (DIRTY QUEUED, if placed again)
//!      +--------- evicted, while nothing else is set and nobody has a pin
//! ```
//!
//! A thread that wants the bytes pins the frame with one addition and looks at the flags that the addition returned;
//! an eviction is one compare-and-swap of the whole word, which fails while there is a pin or a dirty byte. So no
//! thread waits for another, and the owner of the word is never in doubt. A pin on a frame that was evicted in the
//! meantime meets no RESIDENT, or another page, and is given back.

use crate::shared::{AtomicU32, AtomicU64, Ordering};

/// A page of a file of the pool.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Key {
    /// The file's number in the pool.
    pub(crate) file: u32,
    /// The page's number in the file.
    pub(crate) page: u64,
}

impl Key {
    /// Spreads pages that follow each other.
    pub(crate) fn hash(self) -> u64 {
        let mixed = self.page.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(self.file) << 40);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) state: AtomicU64,
    page: AtomicU64,
    file: AtomicU32,
    /// The next frame of the bucket.
    pub(crate) next: AtomicU32,
    /// The next frame of the file's stack of pages that became dirty.
    pub(crate) dirty_next: AtomicU32,
}

impl Header {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            page: AtomicU64::new(0),
            file: AtomicU32::new(NONE),
            next: AtomicU32::new(NONE),
            dirty_next: AtomicU32::new(NONE),
        }
    }

    /// The page, which stays the same as long as the caller has a pin, or the lock of the cache.
    pub(crate) fn key(&self) -> Key {
        let page = self.page.load(Ordering::Relaxed);
        Key { file: self.file.load(Ordering::Relaxed), page }
    }

    pub(crate) fn set_key(&self, key: Key) {
        self.page.store(key.page, Ordering::Relaxed);
        self.file.store(key.file, Ordering::Relaxed);
    }

    /// Pins the frame, unless it has no bytes of the page; returns the word before.
    pub(crate) fn pin(&self, key: Key) -> Option<u64> {
        let before = self.state.fetch_add(1, Ordering::AcqRel);
        let is_here = before & (RESIDENT | LOST) == RESIDENT && self.key() == key;
        if !is_here {
            self.state.fetch_sub(1, Ordering::AcqRel);
        }
        is_here.then_some(before)
    }

    /// Gives a pin back, and counts the use in the same step.
    pub(crate) fn unpin(&self, before: u64) {
        if before & USES < USES_MAX {
            self.state.fetch_add(ONE_USE - 1, Ordering::AcqRel);
        } else {
            self.state.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Bytes were placed by the holder of a pin, or of a page that nobody else can reach; returns the word before.
    pub(crate) fn placed(&self) -> u64 {
        // After the bytes: a write-back that clears the flags before this reads the bytes after it, or finds the flags again.
        self.set(DIRTY | QUEUED)
    }

    /// [`Header::placed`], if the page waits for a write-back already; `false`: it does not, and nothing was noted.
    pub(crate) fn placed_again(&self) -> bool {
        let mut found = self.state.load(Ordering::Acquire);
        while found & QUEUED != 0 {
            let noted = self.state.compare_exchange_weak(
                found,
                found | DIRTY,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match noted {
                Ok(_) => return true,
                Err(now) => found = now,
            }
        }
        false
    }

    /// A write-back begins, and reads the bytes from here on.
    pub(crate) fn begin_write(&self) {
        self.set(WRITING);
        // From here on a placement makes the page dirty again.
        self.clear(DIRTY | QUEUED);
    }

    pub(crate) fn flags(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, flags: u64) -> u64 {
        self.state.fetch_or(flags, Ordering::AcqRel)
    }

    pub(crate) fn clear(&self, flags: u64) -> u64 {
        self.state.fetch_and(!flags, Ordering::AcqRel)
    }

    /// The page has its bytes.
    pub(crate) fn arrive(&self) {
        let before = self.state.fetch_xor(FETCHING | RESIDENT, Ordering::AcqRel);
        debug_assert!(before & (FETCHING | RESIDENT) == FETCHING, "it was being fetched");
    }

    /// How often the page was used since it came, 3 at most, or a little more.
    pub(crate) fn uses(&self) -> u64 {
        (self.flags() & USES) >> USES_SHIFT
    }

    pub(crate) fn forget_uses(&self) {
        self.clear(USES);
    }

    /// One use less.
    pub(crate) fn age(&self) {
        if self.uses() > 0 {
            self.state.fetch_sub(ONE_USE, Ordering::AcqRel);
        }
    }

    /// Takes the page out of use, unless somebody is at it or it is not in the file yet.
    pub(crate) fn try_evict(&self) -> bool {
        self.try_take().is_some()
    }

    /// [`Header::try_evict`]; returns the flags before.
    pub(crate) fn try_take(&self) -> Option<u64> {
        let found = self.flags();
        let is_quiet = found & (BUSY | PINS) == 0 && found & RESIDENT != 0;
        let taken = is_quiet
            && self.state.compare_exchange(found, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        taken.then_some(found)
    }
}

/// No frame.
pub(crate) const NONE: u32 = u32::MAX;
pub(crate) const PINS: u64 = (1 << 32) - 1;
const USES_SHIFT: u32 = 32;
pub(crate) const ONE_USE: u64 = 1 << USES_SHIFT;
pub(crate) const USES: u64 = 15 << USES_SHIFT;
/// Uses that are counted. Threads that use a page at the same moment may count one more each.
pub(crate) const USES_MAX: u64 = 3 << USES_SHIFT;
/// The page has its bytes.
pub(crate) const RESIDENT: u64 = 1 << 40;
/// Bytes were placed that no write-back has begun to write.
pub(crate) const DIRTY: u64 = 1 << 41;
/// The frame is in the file's stack or list of dirty pages.
pub(crate) const QUEUED: u64 = 1 << 42;
/// A write-back is under way.
pub(crate) const WRITING: u64 = 1 << 43;
/// The page is being fetched, or made by a placement.
pub(crate) const FETCHING: u64 = 1 << 44;
/// A write-back of the page has failed: its bytes are given to nobody.
pub(crate) const LOST: u64 = 1 << 45;
/// A use of this page asks for more read-ahead.
pub(crate) const AHEAD: u64 = 1 << 46;
/// The frame is in the main queue of its policy. Only holders of the cache's lock set it.
pub(crate) const IN_MAIN: u64 = 1 << 47;
/// Eviction has to wait.
const BUSY: u64 = DIRTY | QUEUED | WRITING | FETCHING;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_pinned_or_dirty_is_not_evicted() {
        let header = Header::new();
        header.set(FETCHING);
        assert!(!header.try_evict());
        header.arrive();
        header.state.fetch_add(1, Ordering::AcqRel);
        assert!(!header.try_evict(), "somebody is at it");
        header.state.fetch_sub(1, Ordering::AcqRel);
        for flag in [DIRTY, QUEUED, WRITING] {
            header.set(flag);
            assert!(!header.try_evict());
            header.clear(flag);
        }
        assert!(header.try_evict());
        assert!(!header.try_evict(), "it is free");
    }
}
