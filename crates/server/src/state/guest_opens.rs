//! What guests have open, all together: they prove nothing, so whoever comes shares one bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::session::Identity;

/// Counts the files that guests have open.
#[derive(Debug, Default)]
pub(crate) struct GuestOpens(Arc<AtomicUsize>);

/// The place of one open, given back when dropped; of a user's there is none.
#[derive(Debug)]
pub(crate) struct GuestOpen(Option<Arc<AtomicUsize>>);

impl GuestOpens {
    /// A place for an open of somebody, among at most `max` of guests; `None` when those are taken.
    pub(crate) fn take(&self, whose: &Identity, max: usize) -> Option<GuestOpen> {
        if !whose.is_guest() {
            return Some(GuestOpen(None));
        }
        let more = |count: usize| (count < max).then_some(count + 1);
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.is_ok().then(|| GuestOpen(Some(Arc::clone(&self.0))))
    }
}

impl GuestOpen {
    /// Of an open from before a restart: guests leave none behind.
    pub(crate) fn none() -> Self {
        Self(None)
    }
}

impl Drop for GuestOpen {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
