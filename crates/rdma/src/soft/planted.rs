//! Faults that a test plants, to see that it would find them.
//!
//! They hold for engines that the planting thread opens and drives.

use std::cell::Cell;

/// A fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Planted {
    /// What a worker has done counts for the oldest request at work.
    CreditsTheOldest,
    /// Who finds no room for an answer is not asked again.
    ForgetsAFullBuffer,
    /// A commit counts for those too who were laid aside while it ran.
    CommitsForLatecomers,
}

impl Planted {
    /// Whether it is planted.
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
