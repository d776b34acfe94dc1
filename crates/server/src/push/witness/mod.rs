//! The time of the last write to a file whose bytes came by one-sided writes.
//!
//! A store through a mapping moves no time of the file, or only the first store does. So the engine
//! gets a mapped medium with a witness in front, which notes that bytes were placed; a request that
//! shows the time of the file, and a periodic sweep, take the note and set the time. An operation
//! costs only a look at one flag. A `storage` medium writes through the kernel, which moves the
//! time itself, unless its pages are in memory of ours and written later (crate `flash`).
//!
//! Spec: docs/push-mode.md, "Times".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pmem::{
    AtomicOp, Backing, DirectMemory, DurabilityClass, Fetcher, Medium, MediumError,
    StoreGranularity,
};

use super::region::Region;
use crate::state::Hold;
use crate::state::node::Node;

/// The medium of a region.
#[derive(Debug)]
pub(crate) struct Media {
    /// The medium that the engine places into.
    pub(crate) medium: Arc<dyn Medium>,
    pub(crate) witness: Option<Arc<Witness>>,
}

impl Media {
    /// Puts a witness in front of a mapping, which takes this much address space.
    pub(crate) fn new(medium: Arc<dyn Medium>, space: Option<Hold>) -> Self {
        if medium.class() == DurabilityClass::Storage && !medium.is_written_later() {
            return Self { medium, witness: None };
        }
        let touched = AtomicBool::new(false);
        let witness = Arc::new(Witness { inner: medium, touched, _space: space });
        Self { medium: Arc::clone(&witness) as Arc<dyn Medium>, witness: Some(witness) }
    }
}

/// A medium that notes when bytes are placed.
#[derive(Debug)]
pub(crate) struct Witness {
    inner: Arc<dyn Medium>,
    touched: AtomicBool,
    /// Given back once the medium is unmapped, whoever keeps it longest: fields are dropped in their order.
    _space: Option<Hold>,
}

impl Witness {
    // Noted after the placement: the request that takes the note sets a time at which the bytes
    // were placed. A failed placement may have placed a part.
    fn note<T>(&self, outcome: Result<T, MediumError>) -> Result<T, MediumError> {
        let nothing = matches!(outcome, Err(MediumError::WouldBlock));
        if !nothing && !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Release);
        }
        outcome
    }

    fn is_touched(&self) -> bool {
        self.touched.load(Ordering::Acquire)
    }

    fn take(&self) -> bool {
        self.is_touched() && self.touched.swap(false, Ordering::AcqRel)
    }
}

impl Medium for Witness {
    fn class(&self) -> DurabilityClass {
        self.inner.class()
    }

    fn store_granularity(&self) -> StoreGranularity {
        self.inner.store_granularity()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_emulated(&self) -> bool {
        self.inner.is_emulated()
    }

    fn backing(&self) -> Option<Backing> {
        self.inner.backing()
    }

    fn is_written_later(&self) -> bool {
        self.inner.is_written_later()
    }

    fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.note(self.inner.try_place(offset, bytes))
    }

    fn try_place_part(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.note(self.inner.try_place_part(offset, bytes))
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.inner.try_read(offset, out)
    }

    fn new_fetcher(&self) -> Option<Box<dyn Fetcher>> {
        self.inner.new_fetcher()
    }

    fn try_fetch(
        &self,
        fetcher: &mut dyn Fetcher,
        offset: u64,
        len: u64,
        tag: Option<u64>,
    ) -> bool {
        self.inner.try_fetch(fetcher, offset, len, tag)
    }

    fn try_persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.inner.try_persist(offset, len)
    }

    fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.note(self.inner.try_atomic(offset, op))
    }

    fn direct(&self) -> Option<DirectMemory> {
        self.inner.direct()
    }

    fn persist_foreign(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.inner.persist_foreign(offset, len)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.note(self.inner.place(offset, bytes))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.inner.read(offset, out)
    }

    fn write_back(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.inner.write_back(offset, len)
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.inner.persist(offset, len)
    }

    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.note(self.inner.atomic(offset, op))
    }

    fn prepare(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.inner.prepare(offset, len)
    }
}

impl Region {
    /// Sets the time of last write if bytes were placed since the last call. May block.
    pub(crate) fn settle_time(&self) {
        if self.take_note() {
            // Times are advice; a file whose time cannot be set is served all the same.
            let _ = self.entry.note_written();
        }
    }

    /// Whether bytes were placed whose time is not set.
    pub(crate) fn is_noted(&self) -> bool {
        self.witness.as_ref().is_some_and(|witness| witness.is_touched())
    }

    /// Notes that a device may have placed bytes.
    pub(crate) fn note_unseen(&self) {
        if let Some(witness) = &self.witness {
            witness.touched.store(true, Ordering::Release);
        }
    }

    fn take_note(&self) -> bool {
        self.witness.as_ref().is_some_and(|witness| witness.take())
    }
}

/// Called before the times of a file are shown: bytes that came by one-sided writes count. May
/// block.
pub(crate) fn settle_times(node: &Node) {
    for region in Region::all_of(node) {
        region.settle_time();
    }
}

/// Called before the client sets the time of last write: earlier bytes do not move it again.
pub(crate) fn forget_times(node: &Node) {
    for region in Region::all_of(node) {
        region.take_note();
    }
}

/// Makes the bytes durable that devices have placed in the regions of a file. Blocks.
pub(crate) fn persist_unseen(node: &Node) -> Result<(), MediumError> {
    let regions = Region::all_of(node);
    let unseen = regions.iter().filter(|region| region.is_unseen());
    let outcome = unseen.map(|region| region.persist(region.file_offset, region.length));
    // Volatile memory has nothing to make durable: SMB2 FLUSH succeeds on it.
    outcome.filter(|outcome| *outcome != Err(MediumError::VolatileRefused)).collect()
}

#[cfg(test)]
mod tests;
