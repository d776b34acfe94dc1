//! Faults that a test plants to check that it would find them.
//!
//! A planted fault applies to engines that the planting thread opens and drives.

use std::cell::Cell;

/// A fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Planted {
    /// The result of a worker is credited to the oldest request at work.
    CreditsTheOldest,
    /// An answer that finds no room is not tried again.
    ForgetsAFullBuffer,
    /// A commit also counts for batches that were laid aside while it ran.
    CommitsForLatecomers,
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
