//! Faults that a test plants to check that it would find them.
//!
//! A planted fault applies to what the planting thread does.

basics::planted! {
    /// A fault.
    pub(crate) enum Planted {
        /// Records count as durable although nothing was made durable.
        SkipsPersist,
        /// What a scan finds is used before it is durable.
        SkipsPersistOfFound,
        /// A label names records as committed before they are durable.
        LabelBeforeRecords,
        /// A record counts although its epoch is not the one that the label has there.
        TakesOldEpochs,
        /// A record counts although it does not name the record before it.
        SkipsChain,
        /// A record counts although its payload has another checksum.
        SkipsPayloadSum,
        /// Room is used again before the label that frees it is durable.
        FreesBeforeLabel,
        /// All labels are stored in one slot.
        UsesOneSlot,
        /// What a crash left of a label stays when a member opens its memory.
        KeepsTornLabels,
        /// Room is used again before the dirty bits of what was there are durable.
        DirtyAfterReuse,
        /// A page of a dirty map counts although its checksum is wrong.
        TakesTornPages,
        /// A source that starts uses the epoch of the last start again.
        ReusesEpoch,
    }
}
