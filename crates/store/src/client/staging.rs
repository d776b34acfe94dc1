//! Memory of this end for the answers to reads: two sizes of slots in one medium, registered for each connection.

use std::sync::Arc;

use pmem::Medium;

/// A piece of staging memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Slot {
    pub(super) offset: u64,
    is_large: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Staging {
    medium: Arc<dyn Medium>,
    small: Vec<u64>,
    large: Vec<u64>,
}

impl Staging {
    pub(super) fn new() -> Result<Self, String> {
        let medium = pmem::anonymous(BYTES).map_err(|error| error.to_string())?;
        // The pages are present before an answer arrives: an engine never waits for a page.
        medium.prepare(0, SMALL_COUNT * SMALL).map_err(|error| error.to_string())?;
        let small = (0..SMALL_COUNT).map(|at| at * SMALL).collect();
        let large = (0..LARGE_COUNT).map(|at| SMALL_COUNT * SMALL + at * LARGE).collect();
        Ok(Self { medium, small, large })
    }

    pub(super) fn medium(&self) -> &Arc<dyn Medium> {
        &self.medium
    }

    pub(super) fn reserve(&mut self, len: usize) -> Option<Slot> {
        let is_small = len <= usize::try_from(SMALL).expect("8 KiB");
        if is_small && let Some(offset) = self.small.pop() {
            return Some(Slot { offset, is_large: false });
        }
        let offset = self.large.pop()?;
        // Touched when first used: most clients need few of these.
        let prepared = self.medium.prepare(offset, LARGE);
        debug_assert!(prepared.is_ok(), "the slot lies in the medium");
        Some(Slot { offset, is_large: true })
    }

    pub(super) fn take(&mut self, slot: Slot, out: &mut [u8]) {
        let read = self.medium.read(slot.offset, out);
        debug_assert!(read.is_ok(), "anonymous memory neither ends nor fails");
        self.free(slot);
    }

    pub(super) fn free(&mut self, slot: Slot) {
        if slot.is_large { self.large.push(slot.offset) } else { self.small.push(slot.offset) }
    }
}

/// The longest part of an operation in bytes: what one slot holds.
pub(super) const PART_MAX: usize = 256 << 10;
pub(super) const BYTES: u64 = SMALL_COUNT * SMALL + LARGE_COUNT * LARGE;
const SMALL: u64 = 8 << 10;
const SMALL_COUNT: u64 = 128;
const LARGE: u64 = 256 << 10;
const LARGE_COUNT: u64 = 16;
