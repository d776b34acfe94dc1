//! Counts the regions of an engine. The region itself holds its place, so that each way in which a region ends
//! gives the place back: the owner's, the end of the connection, and an invalidation by the peer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The regions that are registered.
#[derive(Debug, Default)]
pub(super) struct RegionCount(Arc<AtomicU32>);

/// The place of a region, until it is dropped.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicU32>);

impl RegionCount {
    /// Counts one more; `None` if there are `max`.
    pub(super) fn take(&self, max: u32) -> Option<Counted> {
        // One owner drives the engine, so nobody counts in between.
        if self.0.load(Ordering::Relaxed) >= max {
            return None;
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        Some(Counted(Arc::clone(&self.0)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_that_ends_in_any_way_gives_its_place_back() {
        let count = RegionCount::default();
        let mut held: Vec<_> = std::iter::from_fn(|| count.take(3)).collect();
        assert_eq!(held.len(), 3);
        drop(held.pop());
        assert!(count.take(3).is_some());
    }
}
