//! Byte-range locks of one file.
//!
//! Locks belong to an open, not to a client. Exclusive locks exclude every other open's reads and
//! writes; shared locks exclude everyone's writes. Ranges may lie beyond the end of the file.
//!
//! Spec: MS-FSA §2.1.4.10, §2.1.5.8, MS-SMB2 §3.3.5.14.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::account::Hold;
use super::exclusive_locks::ExclusiveLocks;
use super::lock_index::{Lock, LockId, LockIndex};
use super::lock_queue::LockWaiters;
use super::range::LockRange;
use super::serial::OpenSerial;
use crate::limits::LOCKS_PER_FILE_MAX;

/// A lock that was granted. An open may hold several locks of one range; the id tells them apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct GrantedLock {
    pub(crate) range: LockRange,
    id: LockId,
}

/// All locks of one file, and who waits for them.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    exclusive: LockIndex,
    shared: LockIndex,
    /// How many locks each open has.
    counts: HashMap<OpenSerial, usize>,
    len: usize,
    ids: u64,
    waiters: LockWaiters,
    taken: ExclusiveLocks,
}

impl LockTable {
    /// Those taken, for who reads.
    pub(super) fn exclusive_locks(&self) -> ExclusiveLocks {
        self.taken.clone()
    }

    /// Where the first of the locked ranges begins.
    pub(crate) fn first_offset(&self) -> Option<u64> {
        let kinds = [&self.exclusive, &self.shared];
        kinds.into_iter().filter_map(LockIndex::first_offset).min()
    }

    /// Takes a lock, or says no. Locks of one open may overlap unless exclusive.
    pub(crate) fn lock(
        &mut self,
        owner: OpenSerial,
        range: LockRange,
        exclusive: bool,
        place: Option<Hold>,
    ) -> Result<GrantedLock, LockRefused> {
        if self.len >= LOCKS_PER_FILE_MAX {
            return Err(LockRefused::TableFull);
        }
        // A shared lock may be stacked on one's own exclusive lock, not the reverse.
        let held = if exclusive {
            self.exclusive.meeting(range).next().or_else(|| self.shared.meeting(range).next())
        } else {
            self.exclusive.of_others(owner, range).next()
        };
        if let Some(held) = held {
            return Err(LockRefused::Conflict(held.id));
        }
        let id = self.insert(owner, range, exclusive, place);
        Ok(GrantedLock { range, id })
    }

    fn insert(
        &mut self,
        owner: OpenSerial,
        range: LockRange,
        exclusive: bool,
        place: Option<Hold>,
    ) -> LockId {
        self.ids += 1;
        self.len += 1;
        *self.counts.entry(owner).or_default() += 1;
        let id = LockId(self.ids);
        let lock = Lock { range, owner, id, place };
        if exclusive {
            self.taken.count();
            self.exclusive.insert(lock);
        } else {
            self.shared.insert(lock);
        }
        id
    }

    /// Puts back a lock of an open that survived the server. Those it was granted beside are put
    /// back too, so nothing is asked.
    pub(crate) fn restore(&mut self, owner: OpenSerial, range: LockRange, exclusive: bool) {
        if self.len < LOCKS_PER_FILE_MAX {
            self.insert(owner, range, exclusive, None);
        }
    }

    pub(super) fn waiters(&mut self) -> &mut LockWaiters {
        &mut self.waiters
    }

    /// How many locks of each of these ranges an open holds.
    pub(crate) fn count(
        &self,
        owner: OpenSerial,
        ranges: &[LockRange],
    ) -> HashMap<LockRange, usize> {
        let mut held = HashMap::new();
        for &range in ranges {
            let of = |kind: &LockIndex| kind.of(owner, range).count();
            held.entry(range).or_insert_with(|| of(&self.exclusive) + of(&self.shared));
        }
        held
    }

    /// Takes these locks away again, and no other lock of the same ranges: the request that took them fails. Locks that
    /// the open has given back meanwhile are passed over.
    pub(crate) fn revert(&mut self, owner: OpenSerial, granted: &[GrantedLock]) {
        for lock in granted {
            self.remove(owner, lock.range, lock.id);
        }
        self.waiters.wake();
    }

    /// Gives exactly one lock back for each of these ranges, the oldest first; how many there were.
    pub(crate) fn unlock(&mut self, owner: OpenSerial, ranges: &[LockRange]) -> usize {
        let given_back = ranges.iter().filter(|range| self.unlock_one(owner, **range)).count();
        self.waiters.wake();
        given_back
    }

    fn unlock_one(&mut self, owner: OpenSerial, range: LockRange) -> bool {
        let kinds = [&self.exclusive, &self.shared];
        let oldest = kinds.into_iter().filter_map(|kind| kind.oldest(owner, range)).min();
        oldest.is_some_and(|id| self.remove(owner, range, id))
    }

    // Whether it was there.
    fn remove(&mut self, owner: OpenSerial, range: LockRange, id: LockId) -> bool {
        let kinds = [&mut self.exclusive, &mut self.shared];
        let Some(lock) = kinds.into_iter().find_map(|kind| kind.remove(owner, range, id)) else {
            return false;
        };
        self.len -= 1;
        if let Entry::Occupied(mut count) = self.counts.entry(owner) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.waiters.free(lock.id);
        true
    }

    /// Gives back everything an open holds.
    pub(crate) fn release(&mut self, owner: OpenSerial) -> bool {
        // Of most opens that are closed there is nothing to look for.
        if self.counts.remove(&owner).is_none() {
            return false;
        }
        // Places go back in one piece: giving back thousands, one by one, takes milliseconds.
        let mut places: Option<Hold> = None;
        let mut released = self.exclusive.remove_all(owner);
        released.append(&mut self.shared.remove_all(owner));
        self.len -= released.len();
        released.sort_unstable_by_key(|lock| lock.id);
        for lock in released {
            self.waiters.free(lock.id);
            match (&mut places, lock.place) {
                // Of another account, it goes back alone.
                (Some(places), Some(place)) => drop(places.absorb(place)),
                (None, place) => places = place,
                (Some(_), None) => {}
            }
        }
        self.waiters.wake();
        true
    }

    /// Whether `owner` may read the range.
    pub(crate) fn allows_read(&self, owner: OpenSerial, offset: u64, length: u64) -> bool {
        // Nothing read or written meets no lock.
        if self.len == 0 || length == 0 {
            return true;
        }
        let Some(range) = LockRange::new(offset, length) else { return false };
        self.exclusive.of_others(owner, range).next().is_none()
    }

    /// Whether `owner` may write the range. A shared lock keeps even its owner from writing.
    pub(crate) fn allows_write(&self, owner: OpenSerial, offset: u64, length: u64) -> bool {
        if self.len == 0 || length == 0 {
            return true;
        }
        let Some(range) = LockRange::new(offset, length) else { return false };
        self.exclusive.of_others(owner, range).next().is_none()
            && self.shared.meeting(range).next().is_none()
    }

    /// What keeps `owner` from writing, for a [`Barrier`].
    pub(crate) fn forbidden_to(&self, owner: OpenSerial) -> Vec<LockRange> {
        let exclusive = self.exclusive.iter().filter(|lock| lock.owner != owner);
        exclusive.chain(self.shared.iter()).map(|lock| lock.range).collect()
    }
}

/// Locked ranges in the order of their offsets: whether any of them meets another range is a search, not a pass.
#[derive(Debug)]
pub(crate) struct Barrier {
    /// Offset, and the last byte that this range or one before it reaches.
    ranges: Vec<(u64, u64)>,
    /// Locks of no length, which are met from both sides only.
    points: Vec<u64>,
}

impl Barrier {
    /// Sorts; not to be done while the file is locked.
    pub(crate) fn new(locked: Vec<LockRange>) -> Self {
        let (points, ranges): (Vec<_>, Vec<_>) =
            locked.into_iter().partition(|range| range.length == 0);
        let mut points: Vec<u64> = points.into_iter().map(|range| range.offset).collect();
        points.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = ranges
            .into_iter()
            .map(|range| (range.offset, range.offset + (range.length - 1)))
            .collect();
        ranges.sort_unstable();
        let mut furthest = 0;
        for (_, last) in &mut ranges {
            furthest = furthest.max(*last);
            *last = furthest;
        }
        Self { ranges, points }
    }

    /// Whether nothing is in the way of writing a range.
    pub(crate) fn allows(&self, offset: u64, length: u64) -> bool {
        if length == 0 {
            return true;
        }
        let Some(range) = LockRange::new(offset, length) else { return false };
        let last = range.offset + (range.length - 1);
        let begun = self.ranges.partition_point(|(start, _)| *start <= last);
        let meets = begun.checked_sub(1).is_some_and(|at| self.ranges[at].1 >= offset);
        let next = self.points.partition_point(|point| *point <= offset);
        !meets && self.points.get(next).is_none_or(|point| *point > last)
    }
}

/// Why a lock was not granted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LockRefused {
    /// This lock is in the way.
    Conflict(LockId),
    /// The file has [`LOCKS_PER_FILE_MAX`] locks.
    TableFull,
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: OpenSerial = OpenSerial(1);
    const B: OpenSerial = OpenSerial(2);

    fn range(offset: u64, length: u64) -> LockRange {
        LockRange::new(offset, length).unwrap()
    }

    fn is_refused(outcome: Result<GrantedLock, LockRefused>) -> bool {
        matches!(outcome, Err(LockRefused::Conflict(_)))
    }

    #[test]
    fn an_exclusive_lock_excludes_the_others() {
        let mut table = LockTable::default();
        table.lock(A, range(0, 10), true, None).unwrap();
        assert!(is_refused(table.lock(B, range(9, 1), false, None)));
        assert!(is_refused(table.lock(A, range(0, 10), true, None)));
        table.lock(B, range(10, 10), true, None).unwrap();
        assert!(table.allows_read(A, 0, 10) && !table.allows_read(B, 5, 1));
        assert!(table.allows_write(A, 0, 10) && !table.allows_write(A, 5, 10));
    }

    #[test]
    fn shared_locks_share_and_keep_everyone_from_writing() {
        let mut table = LockTable::default();
        table.lock(A, range(0, 10), false, None).unwrap();
        table.lock(B, range(5, 10), false, None).unwrap();
        assert!(table.allows_read(B, 0, 15));
        assert!(!table.allows_write(A, 0, 1), "even the owner");
    }

    #[test]
    fn unlocking_needs_the_exact_range_and_closing_frees_all() {
        let mut table = LockTable::default();
        table.lock(A, range(0, 10), true, None).unwrap();
        assert_eq!(table.unlock(A, &[range(0, 5)]), 0);
        assert_eq!(table.unlock(B, &[range(0, 10)]), 0);
        assert_eq!(table.unlock(A, &[range(0, 10), range(0, 10)]), 1);
        table.lock(A, range(0, 1), true, None).unwrap();
        assert!(table.release(A));
        table.lock(B, range(0, 1), true, None).unwrap();
    }

    #[test]
    fn a_reverted_lock_leaves_older_locks_of_its_range() {
        let mut table = LockTable::default();
        table.lock(A, range(0, 10), true, None).unwrap();
        let stacked = table.lock(A, range(0, 10), false, None).unwrap();
        table.revert(A, &[stacked]);
        assert!(!table.allows_read(B, 0, 1), "the exclusive lock is still there");
        assert!(table.allows_write(A, 0, 1), "the shared lock has gone");
        table.revert(A, &[stacked]);
        assert_eq!(table.unlock(A, &[range(0, 10)]), 1, "nothing goes twice");
    }

    #[test]
    fn ranges_at_the_end_of_the_number_line_do_not_wrap() {
        assert!(LockRange::new(u64::MAX, 1).is_some());
        assert!(LockRange::new(u64::MAX, 2).is_none());
        let mut table = LockTable::default();
        table.lock(A, range(0, u64::MAX), true, None).unwrap();
        table.lock(B, range(u64::MAX, 1), true, None).unwrap();
        assert!(!table.allows_read(B, 0, 1));
    }

    #[test]
    fn an_empty_range_conflicts_only_from_inside() {
        let mut table = LockTable::default();
        table.lock(A, range(10, 10), true, None).unwrap();
        table.lock(B, range(10, 0), true, None).unwrap();
        assert!(is_refused(table.lock(B, range(15, 0), true, None)));
    }

    #[test]
    fn many_ranges_compared_at_once_meet_the_locks_that_they_meet_one_by_one() {
        // From a small space, so that all ways in which ranges meet come up.
        let mut seed = 1_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let mut table = LockTable::default();
            for _ in 0..next(8) {
                let owner = if next(2) == 0 { A } else { B };
                let _ = table.lock(owner, range(next(30), next(6)), next(2) == 0, None);
            }
            let barrier = Barrier::new(table.forbidden_to(A));
            for offset in 0..32 {
                for length in 0..8 {
                    let one_by_one = table.allows_write(A, offset, length);
                    assert_eq!(
                        barrier.allows(offset, length),
                        one_by_one,
                        "{offset} {length} {table:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_lock_to_the_end_of_the_number_line_is_in_the_way_there() {
        let mut table = LockTable::default();
        table.lock(B, range(u64::MAX, 1), true, None).unwrap();
        let barrier = Barrier::new(table.forbidden_to(A));
        assert!(barrier.allows(0, u64::MAX) && !barrier.allows(u64::MAX, 1));
    }

    #[test]
    fn a_file_has_a_bounded_number_of_locks() {
        let mut table = LockTable::default();
        for at in 0..LOCKS_PER_FILE_MAX as u64 {
            table.lock(A, range(2 * at, 1), true, None).unwrap();
        }
        assert_eq!(table.lock(B, range(1, 1), true, None), Err(LockRefused::TableFull));
        assert_eq!(table.unlock(A, &[range(0, 1), range(2, 1), range(3, 1)]), 2);
        table.lock(B, range(1, 1), true, None).unwrap();
        assert!(table.release(A) && !table.release(A));
    }
}
