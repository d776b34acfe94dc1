//! Registered memory of this end for the answers to reads.

use std::sync::Arc;

use pmem::Medium;
use rdma::{Access, LocalSlice, MemoryRegion};

use super::channel::ChannelError;
use super::engine::Attachment;

/// A piece of staging memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Slot {
    offset: u64,
    len: u32,
    /// Where the free part of the ring began before this slot.
    start: u64,
    /// Room of the slot, with the bytes left unused at the end of the ring.
    taken: u64,
}

/// Registered memory for the answers to reads: a ring, freed from its oldest or its newest end, so
/// that the used part is always contiguous.
#[derive(Debug)]
pub(super) struct Staging {
    medium: Arc<dyn Medium>,
    region: MemoryRegion,
    next: u64,
    used: u64,
    /// Bytes whose pages are present: as much of the ring as was ever used.
    prepared: u64,
}

impl Staging {
    pub(super) fn register(engine: &mut Attachment) -> Result<Self, ChannelError> {
        let medium = pmem::anonymous(STAGING_BYTES).map_err(|_| ChannelError::HostMemory)?;
        medium.prepare(STAGING_RING, PROBE_PAGE).map_err(|_| ChannelError::HostMemory)?;
        let region = engine
            .register(Arc::clone(&medium), 0..STAGING_BYTES, Access::READ_SINK)
            .map_err(|_| ChannelError::HostMemory)?;
        Ok(Self { medium, region, next: 0, used: 0, prepared: 0 })
    }

    pub(super) fn reserve(&mut self, len: u32) -> Option<Slot> {
        let len_wide = u64::from(len);
        let to_end = STAGING_RING - self.next;
        let skipped = if len_wide > to_end { to_end } else { 0 };
        let taken = skipped + len_wide;
        if self.used + taken > STAGING_RING {
            return None;
        }
        let start = self.next;
        let offset = (start + skipped) % STAGING_RING;
        let end = offset + len_wide;
        if end > self.prepared {
            // The pages are present before the answer arrives: an engine never waits for a page. Without them it would have a
            // worker place the answer.
            let prepared = self.medium.prepare(self.prepared, end - self.prepared);
            debug_assert!(prepared.is_ok(), "the range lies in the ring");
            self.prepared = end;
        }
        self.used += taken;
        self.next = (offset + len_wide) % STAGING_RING;
        Some(Slot { offset, len, start, taken })
    }

    pub(super) fn take(&mut self, slot: Slot, out: &mut [u8]) {
        let read = self.medium.read(slot.offset, out);
        debug_assert!(read.is_ok(), "anonymous memory neither ends nor fails");
        self.used -= slot.taken;
        if (slot.offset + u64::from(slot.len)) % STAGING_RING == self.next {
            self.next = slot.start;
        }
    }

    /// One byte behind the ring, for answers whose bytes are not used.
    pub(super) fn probe(&self) -> Slot {
        Slot { offset: STAGING_RING, len: 1, start: 0, taken: 0 }
    }

    pub(super) fn slice(&self, slot: Slot) -> LocalSlice {
        self.region.slice(slot.offset, slot.len)
    }
}

// Four of the longest reads at once.
const STAGING_RING: u64 = 4 << 20;
// One page behind the ring holds the probe byte.
const STAGING_BYTES: u64 = STAGING_RING + PROBE_PAGE;
const PROBE_PAGE: u64 = 4096;
