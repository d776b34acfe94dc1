//! Byte-range locks of one file.
//!
//! Locks belong to an open, not to a client. Exclusive locks exclude every other open's reads and
//! writes; shared locks exclude everyone's writes. Ranges may lie beyond the end of the file.
//!
//! Spec: MS-FSA §2.1.4.10, §2.1.5.8, MS-SMB2 §3.3.5.14.

/// Names the open a lock belongs to, unique in the server's lifetime.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct OpenSerial(pub(crate) u64);

/// A range of bytes; it may reach to the very end of the number line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LockRange {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl LockRange {
    /// `None` if the range wraps: MS-SMB2 §3.3.5.14 answers INVALID_LOCK_RANGE.
    pub(crate) fn new(offset: u64, length: u64) -> Option<Self> {
        // offset + length - 1 must not pass the last byte.
        let last = length.saturating_sub(1);
        offset.checked_add(last).map(|_| Self { offset, length })
    }

    fn overlaps(self, other: Self) -> bool {
        // A zero-length lock conflicts with a range it lies strictly inside.
        match (self.length, other.length) {
            (0, 0) => false,
            (0, _) => other.offset < self.offset && self.offset - other.offset < other.length,
            (_, 0) => other.overlaps(self),
            _ => {
                self.offset.max(other.offset)
                    <= (self.offset + (self.length - 1)).min(other.offset + (other.length - 1))
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    range: LockRange,
    exclusive: bool,
    owner: OpenSerial,
}

/// All locks of one file, in the order they were taken.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    locks: Vec<Lock>,
}

impl LockTable {
    /// Where the first of the locked ranges begins.
    pub(crate) fn first_offset(&self) -> Option<u64> {
        self.locks.iter().map(|lock| lock.range.offset).min()
    }

    /// Takes a lock, or says no. Locks of one open may overlap unless exclusive.
    pub(crate) fn lock(
        &mut self,
        owner: OpenSerial,
        range: LockRange,
        exclusive: bool,
    ) -> Result<(), LockRefused> {
        if self.locks.len() >= LOCKS_MAX {
            return Err(LockRefused::TableFull);
        }
        let conflict = |held: &Lock| {
            // A shared lock may be stacked on one's own exclusive lock, not the reverse.
            let stacks = held.owner == owner && held.exclusive && !exclusive;
            held.range.overlaps(range) && (exclusive || held.exclusive) && !stacks
        };
        if self.locks.iter().any(conflict) {
            return Err(LockRefused::Conflict);
        }
        self.locks.push(Lock { range, exclusive, owner });
        Ok(())
    }

    /// Puts back a lock of an open that survived the server. Those it was granted beside are put
    /// back too, so nothing is asked.
    pub(crate) fn restore(&mut self, owner: OpenSerial, range: LockRange, exclusive: bool) {
        if self.locks.len() < LOCKS_MAX {
            self.locks.push(Lock { range, exclusive, owner });
        }
    }

    /// How many locks of this range an open holds.
    pub(crate) fn count(&self, owner: OpenSerial, range: LockRange) -> usize {
        self.locks.iter().filter(|lock| lock.owner == owner && lock.range == range).count()
    }

    /// Gives exactly one lock of this range back; the oldest first.
    pub(crate) fn unlock(&mut self, owner: OpenSerial, range: LockRange) -> bool {
        let held = self.locks.iter().position(|lock| lock.owner == owner && lock.range == range);
        held.map(|at| self.locks.remove(at)).is_some()
    }

    /// Gives back everything an open holds.
    pub(crate) fn release(&mut self, owner: OpenSerial) -> bool {
        let before = self.locks.len();
        self.locks.retain(|lock| lock.owner != owner);
        before != self.locks.len()
    }

    /// Whether `owner` may read the range.
    pub(crate) fn allows_read(&self, owner: OpenSerial, offset: u64, length: u64) -> bool {
        self.locks.is_empty()
            || self.allows(offset, length, |lock| lock.exclusive && lock.owner != owner)
    }

    /// Whether `owner` may write the range. A shared lock keeps even its owner from writing.
    pub(crate) fn allows_write(&self, owner: OpenSerial, offset: u64, length: u64) -> bool {
        self.locks.is_empty()
            || self.allows(offset, length, |lock| !lock.exclusive || lock.owner != owner)
    }

    fn allows(&self, offset: u64, length: u64, forbids: impl Fn(&Lock) -> bool) -> bool {
        // Nothing read or written meets no lock.
        if length == 0 {
            return true;
        }
        let Some(range) = LockRange::new(offset, length) else { return false };
        !self.locks.iter().any(|lock| forbids(lock) && lock.range.overlaps(range))
    }
}

/// Why a lock was not granted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LockRefused {
    /// Another lock stands in the way.
    Conflict,
    /// The file has [`LOCKS_MAX`] locks.
    TableFull,
}

/// Locks on one file; a request carries at most a few, a database some hundreds.
pub(crate) const LOCKS_MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    const A: OpenSerial = OpenSerial(1);
    const B: OpenSerial = OpenSerial(2);

    fn range(offset: u64, length: u64) -> LockRange {
        LockRange::new(offset, length).unwrap()
    }

    #[test]
    fn an_exclusive_lock_excludes_the_others() {
        let mut table = LockTable::default();
        table.lock(A, range(0, 10), true).unwrap();
        assert_eq!(table.lock(B, range(9, 1), false), Err(LockRefused::Conflict));
        assert_eq!(table.lock(A, range(0, 10), true), Err(LockRefused::Conflict));
        table.lock(B, range(10, 10), true).unwrap();
        assert!(table.allows_read(A, 0, 10) && !table.allows_read(B, 5, 1));
        assert!(table.allows_write(A, 0, 10) && !table.allows_write(A, 5, 10));
    }

    #[test]
    fn shared_locks_share_and_keep_everyone_from_writing() {
        let mut table = LockTable::default();
        table.lock(A, range(0, 10), false).unwrap();
        table.lock(B, range(5, 10), false).unwrap();
        assert!(table.allows_read(B, 0, 15));
        assert!(!table.allows_write(A, 0, 1), "even the owner");
    }

    #[test]
    fn unlocking_needs_the_exact_range_and_closing_frees_all() {
        let mut table = LockTable::default();
        table.lock(A, range(0, 10), true).unwrap();
        assert!(!table.unlock(A, range(0, 5)));
        assert!(!table.unlock(B, range(0, 10)));
        assert!(table.unlock(A, range(0, 10)));
        table.lock(A, range(0, 1), true).unwrap();
        assert!(table.release(A));
        table.lock(B, range(0, 1), true).unwrap();
    }

    #[test]
    fn ranges_at_the_end_of_the_number_line_do_not_wrap() {
        assert!(LockRange::new(u64::MAX, 1).is_some());
        assert!(LockRange::new(u64::MAX, 2).is_none());
        let mut table = LockTable::default();
        table.lock(A, range(0, u64::MAX), true).unwrap();
        table.lock(B, range(u64::MAX, 1), true).unwrap();
        assert!(!table.allows_read(B, 0, 1));
    }

    #[test]
    fn an_empty_range_conflicts_only_from_inside() {
        let mut table = LockTable::default();
        table.lock(A, range(10, 10), true).unwrap();
        table.lock(B, range(10, 0), true).unwrap();
        assert_eq!(table.lock(B, range(15, 0), true), Err(LockRefused::Conflict));
    }
}
