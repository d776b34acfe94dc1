//! Counters of regions by which clients wake each other. They live as long as the daemon does.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::ids::RegionId;
use crate::wire::Status;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Notes {
    counts: Mutex<Counts>,
    /// Notified with every change.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Counts {
    of: HashMap<RegionId, HashMap<u32, u64>>,
    /// Counters of all regions.
    total: usize,
}

impl Notes {
    /// Adds to a counter and returns its value.
    pub(super) fn add(&self, region: RegionId, channel: u32, add: u64) -> Result<u64, Status> {
        let mut counts = self.lock();
        let Counts { of, total } = &mut *counts;
        let of_region = of.get(&region);
        let is_there = of_region.is_some_and(|counts| counts.contains_key(&channel));
        let count = of_region.map_or(0, HashMap::len);
        if !is_there && (*total >= CHANNELS_MAX || count >= REGION_CHANNELS_MAX) {
            return Err(Status::LIMIT);
        }
        *total += usize::from(!is_there);
        let count = of.entry(region).or_default().entry(channel).or_default();
        *count = count.wrapping_add(add);
        let count = *count;
        drop(counts);
        self.changed.notify_waiters();
        Ok(count)
    }

    /// Waits until a counter is above `seen`, and returns it.
    pub(super) async fn above(
        &self,
        region: RegionId,
        channel: u32,
        seen: u64,
        patience: Duration,
    ) -> Result<u64, Status> {
        let is_above = || self.count(region, channel) > seen;
        let waited = tokio::time::timeout(patience, basics::until(&self.changed, is_above)).await;
        waited.map(|()| self.count(region, channel)).map_err(|_| Status::TIMEOUT)
    }

    /// The region is gone.
    pub(super) fn forget(&self, region: RegionId) {
        let mut counts = self.lock();
        let gone = counts.of.remove(&region).map_or(0, |counts| counts.len());
        counts.total -= gone;
    }

    fn count(&self, region: RegionId, channel: u32) -> u64 {
        self.lock().of.get(&region).and_then(|counts| counts.get(&channel)).copied().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters of one daemon at most.
pub const CHANNELS_MAX: usize = 65_536;
/// Counters of one region at most: the clients of one region do not take those of all others.
pub const REGION_CHANNELS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_keeps_a_bounded_number_of_counters() {
        let notes = Notes::default();
        let each = u32::try_from(REGION_CHANNELS_MAX).unwrap();
        let regions = u64::try_from(CHANNELS_MAX / REGION_CHANNELS_MAX).unwrap();
        for region in 1..=regions {
            assert!((0..each).all(|channel| notes.add(RegionId(region), channel, 1) == Ok(1)));
            assert_eq!(notes.add(RegionId(region), each, 1), Err(Status::LIMIT));
        }
        assert_eq!(notes.add(RegionId(99), 0, 1), Err(Status::LIMIT));
        assert_eq!(notes.add(RegionId(1), 5, 2), Ok(3), "those that are there go on");
        notes.forget(RegionId(1));
        assert_eq!(notes.add(RegionId(99), 0, 1), Ok(1));
    }
}
