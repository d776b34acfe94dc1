//! Faults that a test plants to check that it would find them.
//!
//! A planted fault applies to regions that the planting thread drives.

basics::planted! {
    /// A fault.
    pub(super) enum Planted {
        /// The replay writes uncommitted bytes although another client may hold the lease.
        ReplaysWithoutLease,
        /// A region is mapped while bytes written by messages are not flushed.
        MapsUnflushed,
    }
}
