//! What a pool and its files have done, for the operator.

use std::sync::atomic::{AtomicU64, Ordering};

/// Events of a pool since it was made.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) fetched: AtomicU64,
    pub(crate) ahead: AtomicU64,
    pub(crate) zeros: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) bypassed: AtomicU64,
    pub(crate) failures: AtomicU64,
}

/// The state of a pool at one moment. Pages have 4096 bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PoolStats {
    /// Most bytes that pages and what belongs to them may take.
    pub budget: u64,
    /// Bytes of pages in memory.
    pub resident: u64,
    /// Bytes of pages whose bytes are not in their files yet.
    pub dirty: u64,
    /// Pages read because somebody waited for them.
    pub fetched: u64,
    /// Pages read ahead.
    pub ahead: u64,
    /// Pages of holes that were answered without a read.
    pub zeros: u64,
    /// Pages that made room for others.
    pub evictions: u64,
    /// Pages written back.
    pub written: u64,
    /// Placements that waited for the write-back.
    pub waits: u64,
    /// Pages that were read without a place in memory, because there was none.
    pub bypassed: u64,
    /// Pages whose write-back has failed.
    pub failures: u64,
}

impl Counters {
    pub(crate) fn stats(&self, budget: u64, resident: u64, dirty: u64) -> PoolStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PoolStats {
            budget,
            resident,
            dirty,
            fetched: of(&self.fetched).saturating_sub(of(&self.ahead)),
            ahead: of(&self.ahead),
            zeros: of(&self.zeros),
            evictions: of(&self.evictions),
            written: of(&self.written),
            waits: of(&self.waits),
            bypassed: of(&self.bypassed),
            failures: of(&self.failures),
        }
    }
}

/// The state of a file in flash at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FileStats {
    /// Accesses that found their page in memory.
    pub hits: u64,
    /// Accesses that had to wait for a page.
    pub misses: u64,
    /// Pages that came from the faster directory of the share.
    pub from_tier: u64,
    /// Reads of pages that engines began themselves.
    pub engine_fetches: u64,
    /// Bytes of pages whose bytes are not in the file yet.
    pub dirty: u64,
    /// Pages whose write-back has failed.
    pub lost: u64,
    /// The page cache of the kernel is not used.
    pub is_direct: bool,
    /// Batches go by io_uring.
    pub is_ring: bool,
}

pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
