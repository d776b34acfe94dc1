//! Faults that a test plants to check that it would find them.
//!
//! A planted fault applies to engines that the planting thread opens and drives.

basics::planted! {
    /// A fault.
    pub(super) enum Planted {
        /// The result of a worker is credited to the oldest request at work.
        CreditsTheOldest,
        /// An answer that finds no room is not tried again.
        ForgetsAFullBuffer,
        /// A commit also counts for batches that were laid aside while it ran.
        CommitsForLatecomers,
    }
}
