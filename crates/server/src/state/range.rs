//! A range of bytes that is locked, read or changed.

/// A range of bytes; it may reach to the very end of the number line.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct LockRange {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl LockRange {
    /// All of a file.
    pub(crate) const WHOLE: Self = Self { offset: 0, length: u64::MAX };

    /// From `offset` to the end of the number line.
    pub(crate) fn from(offset: u64) -> Self {
        Self { offset, length: u64::MAX - offset }
    }

    /// `None` if the range wraps: MS-SMB2 §3.3.5.14 answers INVALID_LOCK_RANGE.
    pub(crate) fn new(offset: u64, length: u64) -> Option<Self> {
        // offset + length - 1 must not pass the last byte.
        let last = length.saturating_sub(1);
        offset.checked_add(last).map(|_| Self { offset, length })
    }

    /// The last byte; of a range of no length its offset.
    pub(super) fn last(self) -> u64 {
        self.offset + self.length.saturating_sub(1)
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        // A zero-length lock conflicts with a range it lies strictly inside.
        match (self.length, other.length) {
            (0, 0) => false,
            (0, _) => other.offset < self.offset && self.offset - other.offset < other.length,
            (_, 0) => other.overlaps(self),
            _ => self.offset.max(other.offset) <= self.last().min(other.last()),
        }
    }
}
