//! Faults that a test plants to check that it would find them.
//!
//! A planted fault applies to logs that the planting thread uses.

basics::planted! {
    /// A fault.
    pub(crate) enum Planted {
        /// A batch counts as durable although no member has committed it.
        SkipsCommit,
        /// A batch counts as durable once the first member has committed it.
        AcknowledgesBeforeMembers,
        /// A record that its thread placed counts as durable before those before it are.
        PublishesOutOfOrder,
        /// A record of an older generation counts although the log ended before it when the newest began.
        AcceptsOldGeneration,
        /// A log that is opened gets no new generation on its labels.
        ReusesGeneration,
        /// A label has one copy.
        LabelsOnce,
        /// Room is used again before the label that frees it is durable.
        FreesBeforeLabel,
        /// A member that is behind is taken in without the records that it lacks.
        AdmitsBehind,
        /// The tail forgets records before the archive has them.
        TrimsBeforeArchive,
        /// The label of an archive notes a round as settled before its records are there.
        NotesBeforeSettled,
    }
}
