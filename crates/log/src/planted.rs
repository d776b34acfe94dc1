//! Faults that a test plants to check that it would find them.
//!
//! A planted fault applies to logs that the planting thread uses.

use std::cell::Cell;

/// A fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Planted {
    /// A batch counts as durable although no member has committed it.
    SkipsCommit,
    /// A batch counts as durable once the first member has committed it.
    AcknowledgesBeforeMembers,
    /// A record of an older generation counts although the log ended before it when the newest began.
    AcceptsOldGeneration,
    /// A log that is opened gets no new generation on its labels.
    ReusesGeneration,
    /// Room is used again before the label that frees it is durable.
    FreesBeforeLabel,
    /// A member that is behind is taken in without the records that it lacks.
    AdmitsBehind,
}

impl Planted {
    /// Whether the fault is planted in this thread.
    pub(crate) fn is_here(self) -> bool {
        PLANTED.get() == Some(self)
    }

    /// Runs `test` with the fault.
    pub(crate) fn during<T>(self, test: impl FnOnce() -> T) -> T {
        PLANTED.set(Some(self));
        let outcome = test();
        PLANTED.set(None);
        outcome
    }
}

thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}
