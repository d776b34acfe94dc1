//! Addresses and generations of records.

use std::fmt;

/// A log sequence number: the address of a record's first byte, counted from the creation of the log.
///
/// LSNs grow by the bytes of the records and are never used twice by one generation. An end of a range is the LSN
/// of the record that follows.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The LSN of the first record of a new log.
    pub const FIRST: Self = Self(0);

    /// Bytes from `earlier` to this LSN.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The LSN `bytes` further on, or the greatest of all.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// One ownership of a log. Each opening for writing has a greater one, which is durable before its first record.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Generation(pub u32);
