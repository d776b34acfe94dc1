//! Faults that a test plants to check that it would find them.
//!
//! A planted fault applies to regions that the planting thread drives.

use std::cell::Cell;

/// A fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Planted {
    /// The replay writes uncommitted bytes although another client may hold the lease.
    ReplaysWithoutLease,
    /// A region is mapped while bytes written by messages are not flushed.
    MapsUnflushed,
}

impl Planted {
    /// Whether the fault is planted in this thread.
    pub(super) fn is_here(self) -> bool {
        PLANTED.get() == Some(self)
    }

    /// Runs `test` with the fault.
    pub(super) fn during<T>(self, test: impl FnOnce() -> T) -> T {
        PLANTED.set(Some(self));
        let outcome = test();
        PLANTED.set(None);
        outcome
    }
}

thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}
