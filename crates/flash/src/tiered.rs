//! A file of a share that has a tier ([`crate::Tier`]) as a device: reads look there first.
//!
//! A copy in the tier is what the file has: a write has a number before and after it, and a read whose bytes were fetched while
//! such a number changed offers nothing. Whoever reads a page past the budget may do so while another thread writes it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pmem::{Backing, MediumError};

use crate::device::{Device, Extent, How, Transfer};
use crate::pieces::{PAGE, pages_of, wide};
use crate::pool::FRAME;
use crate::stats::count;
use crate::tier::Tier;

/// See the module.
#[derive(Debug)]
pub(crate) struct Tiered {
    below: Box<dyn Device>,
    tier: Arc<Tier>,
    file: u32,
    /// Changes begun and ended.
    changes: AtomicU64,
    hits: AtomicU64,
}

impl Tiered {
    pub(crate) fn new(below: Box<dyn Device>, tier: Arc<Tier>) -> Self {
        let file = tier.enter();
        Self { below, tier, file, changes: AtomicU64::new(0), hits: AtomicU64::new(0) }
    }

    fn changes(&self, offset: u64, len: u64) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.tier.forget(self.file, pages_of(offset, len));
    }
}

impl Drop for Tiered {
    fn drop(&mut self) {
        self.tier.forget(self.file, 0..u64::MAX);
    }
}

impl Device for Tiered {
    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        // Reads are of whole pages (the trait says so); anything else is the file's.
        if !offset.is_multiple_of(FRAME) || !out.len().is_multiple_of(PAGE) || out.is_empty() {
            return self.below.read(offset, out);
        }
        let first = offset / FRAME;
        // The file may have become shorter, which the tier does not know.
        let whole = self.below.len()?.saturating_sub(offset) / FRAME;
        let here = usize::try_from(whole).unwrap_or(usize::MAX).min(out.len() / PAGE) * PAGE;
        let came = self.tier.read(self.file, first, &mut out[..here]);
        if came > 0 {
            count(&self.hits, wide(came));
            // The caller asks again for the rest.
            return Ok(came * PAGE);
        }
        let pages = self.tier.missing(self.file, first, wide(out.len() / PAGE)).max(1);
        let len = usize::try_from(pages).map_or(out.len(), |pages| (pages * PAGE).min(out.len()));
        let before = self.changes.load(Ordering::SeqCst);
        let got = self.below.read(offset, &mut out[..len])?;
        let is_now = || self.changes.load(Ordering::SeqCst) == before;
        self.tier.offer(self.file, first, &out[..got], is_now);
        Ok(got)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.changes(offset, wide(bytes.len()));
        let outcome = self.below.write(offset, bytes);
        self.changes(offset, wide(bytes.len()));
        outcome
    }

    fn transfer(&self, batch: &mut [Transfer]) {
        if batch.first().is_none_or(|first| !first.is_write) {
            batch.iter_mut().for_each(|transfer| transfer.carry_out(self));
            return;
        }
        let changed = |batch: &[Transfer]| {
            batch.iter().for_each(|transfer| self.changes(transfer.offset, wide(transfer.len)));
        };
        changed(batch);
        self.below.transfer(batch);
        changed(batch);
    }

    fn changed_below(&self, offset: u64, len: u64) {
        self.changes(offset, len);
    }

    fn persist(&self) -> Result<(), MediumError> {
        self.below.persist()
    }

    fn is_poisoned(&self) -> bool {
        self.below.is_poisoned()
    }

    fn poison(&self) {
        self.below.poison();
    }

    // No `direct`: an engine that read past the tier would read the slow device. Its misses go to workers.

    fn extent_at(&self, offset: u64) -> Option<Extent> {
        self.below.extent_at(offset)
    }

    fn backing(&self) -> Option<Backing> {
        self.below.backing()
    }

    fn tier_bytes(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    fn how(&self) -> How {
        self.below.how()
    }
}
