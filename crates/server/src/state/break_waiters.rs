//! Requests that wait for the answer to a break, behind one lease each: see [`super::breaks`].

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::lease::Owner;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct BreakWaiters {
    pub(super) behind: HashMap<Owner, Arc<Notify>>,
    waits: u64,
}

impl BreakWaiters {
    /// A number below `count`, another one for each wait.
    pub(super) fn pick(&mut self, count: usize) -> usize {
        self.waits += 1;
        let random = self.behind.hasher().hash_one(self.waits);
        usize::try_from(random % count as u64).expect("less than the count")
    }

    /// Ends when the lease of `owner` has answered.
    pub(super) fn wait_behind(&mut self, owner: Owner) -> OwnedNotified {
        Arc::clone(self.behind.entry(owner).or_default()).notified_owned()
    }

    /// The lease of `owner` has answered.
    pub(super) fn end(&mut self, owner: Owner) {
        if let Some(ended) = self.behind.remove(&owner) {
            ended.notify_waiters();
        }
    }
}
