//! Counters of regions by which clients wake each other. They live as long as the daemon does.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::ids::RegionId;
use crate::wire::Status;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Notes {
    counts: Mutex<HashMap<(RegionId, u32), u64>>,
    /// Notified with every change.
    changed: Notify,
}

impl Notes {
    /// Adds to a counter and returns its value.
    pub(super) fn add(&self, region: RegionId, channel: u32, add: u64) -> Result<u64, Status> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= CHANNELS_MAX && !counts.contains_key(&(region, channel)) {
            return Err(Status::LIMIT);
        }
        let count = counts.entry((region, channel)).or_default();
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
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|(of, _), _| *of != region);
    }

    fn count(&self, region: RegionId, channel: u32) -> u64 {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&(region, channel)).copied().unwrap_or(0)
    }
}

/// Counters of one daemon at most.
pub const CHANNELS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_keeps_a_bounded_number_of_counters() {
        let notes = Notes::default();
        let last = u32::try_from(CHANNELS_MAX).unwrap();
        for channel in 0..last {
            notes.add(RegionId(1), channel, 1).unwrap();
        }
        assert_eq!(notes.add(RegionId(2), 0, 1), Err(Status::LIMIT));
        assert_eq!(notes.add(RegionId(1), 5, 2), Ok(3), "those that are there go on");
        notes.forget(RegionId(1));
        assert_eq!(notes.add(RegionId(2), 0, 1), Ok(1));
    }
}
