//! Locks of one kind in the order of their offsets: those that meet a range are found without a look at all others.
//!
//! ```text
//!  runs:   [ offsets 0..40, last 90 ] [ offsets 41..80, last 77 ] [ offsets 90.., last 200 ]
//!             sorted locks               sorted locks               sorted locks
//! ```
//!
//! A search passes the heads of the runs, one for each [`RUN_MAX`] / 4 locks at worst, and looks into those alone
//! whose locks begin before the end of the range and reach its start; for locks of others than one open it does not look
//! into a run that is all that open's. Nothing is allocated to look.

use super::account::Hold;
use super::range::LockRange;
use super::serial::OpenSerial;

/// Names a lock, and its age among the locks of its file.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct LockId(pub(super) u64);

/// A range that an open holds.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) range: LockRange,
    pub(super) owner: OpenSerial,
    pub(super) id: LockId,
    /// Its place among the locks of its user; a lock from before a restart has none.
    pub(super) place: Option<Hold>,
}

impl Lock {
    fn key(&self) -> (u64, u64, u64, LockId) {
        (self.range.offset, self.range.length, self.owner.0, self.id)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LockIndex {
    runs: Vec<Run>,
}

/// Neighbours; never empty.
#[derive(Debug)]
struct Run {
    locks: Vec<Lock>,
    /// The last byte that one of them reaches.
    last: u64,
    /// The open that has them all, if there is one.
    sole: Option<OpenSerial>,
}

impl Run {
    fn new(locks: Vec<Lock>) -> Self {
        let mut run = Self { locks, last: 0, sole: None };
        run.look();
        run
    }

    // Locks have gone. A pass.
    fn look(&mut self) {
        self.last = self.locks.iter().map(|lock| lock.range.last()).max().unwrap_or(0);
        let first = self.locks.first().map(|lock| lock.owner);
        self.sole = first.filter(|first| self.locks.iter().all(|lock| lock.owner == *first));
    }

    fn beginning_before_the_end_of(&self, range: LockRange) -> impl Iterator<Item = &Lock> {
        self.locks.iter().take_while(move |lock| lock.range.offset <= range.last())
    }

    // A lock is about to come.
    fn note(&mut self, lock: &Lock) {
        self.last = self.last.max(lock.range.last());
        self.sole = self.sole.filter(|sole| *sole == lock.owner);
    }
}

impl LockIndex {
    /// Where the first of the ranges begins.
    pub(super) fn first_offset(&self) -> Option<u64> {
        self.runs.first().and_then(|run| run.locks.first()).map(|lock| lock.range.offset)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Lock> {
        self.runs.iter().flat_map(|run| &run.locks)
    }

    /// The locks that meet a range.
    pub(super) fn meeting(&self, range: LockRange) -> impl Iterator<Item = &Lock> {
        let runs = self.runs_near(range);
        let locks = runs.flat_map(move |run| run.beginning_before_the_end_of(range));
        locks.filter(move |lock| lock.range.overlaps(range))
    }

    /// The locks of other opens that meet a range.
    pub(super) fn of_others(
        &self,
        owner: OpenSerial,
        range: LockRange,
    ) -> impl Iterator<Item = &Lock> {
        let locks = self.compared(owner, range);
        locks.filter(move |lock| lock.owner != owner && lock.range.overlaps(range))
    }

    // What is compared for that.
    fn compared(&self, owner: OpenSerial, range: LockRange) -> impl Iterator<Item = &Lock> {
        let runs = self.runs_near(range).filter(move |run| run.sole != Some(owner));
        runs.flat_map(move |run| run.beginning_before_the_end_of(range))
    }

    // The runs that begin before the end of a range and reach its start.
    fn runs_near(&self, range: LockRange) -> impl Iterator<Item = &Run> {
        let begins = move |run: &&Run| {
            run.locks.first().is_some_and(|lock| lock.range.offset <= range.last())
        };
        self.runs.iter().take_while(begins).filter(move |run| run.last >= range.offset)
    }

    pub(super) fn insert(&mut self, lock: Lock) {
        let at = self.run_of(lock.key());
        let Some(run) = self.runs.get_mut(at) else {
            self.runs.push(Run::new(vec![lock]));
            return;
        };
        run.note(&lock);
        let behind = run.locks.partition_point(|held| held.key() < lock.key());
        run.locks.insert(behind, lock);
        if run.locks.len() > RUN_MAX {
            let half = run.locks.split_off(RUN_MAX / 2);
            run.look();
            self.runs.insert(at + 1, Run::new(half));
        }
    }

    /// The oldest lock of an open on exactly this range.
    pub(super) fn oldest(&self, owner: OpenSerial, range: LockRange) -> Option<LockId> {
        self.of(owner, range).next().map(|lock| lock.id)
    }

    /// The locks of an open on exactly this range, oldest first.
    pub(super) fn of(&self, owner: OpenSerial, range: LockRange) -> impl Iterator<Item = &Lock> {
        let from = (range.offset, range.length, owner.0, LockId(0));
        let at = self.run_of(from);
        let rest = self.runs.get(at..).unwrap_or_default().iter().flat_map(|run| &run.locks);
        let inside =
            self.runs.get(at).map_or(0, |run| run.locks.partition_point(|held| held.key() < from));
        rest.skip(inside).take_while(move |lock| (lock.range, lock.owner) == (range, owner))
    }

    pub(super) fn remove(
        &mut self,
        owner: OpenSerial,
        range: LockRange,
        id: LockId,
    ) -> Option<Lock> {
        let key = (range.offset, range.length, owner.0, id);
        let at = self.run_of(key);
        let run = self.runs.get_mut(at)?;
        let inside = run.locks.binary_search_by_key(&key, Lock::key).ok()?;
        let lock = run.locks.remove(inside);
        if lock.range.last() == run.last || run.sole.is_none() {
            run.look();
        }
        self.join(at);
        if at > 0 {
            self.join(at - 1);
        }
        Some(lock)
    }

    /// Takes out everything that an open holds. A pass.
    pub(super) fn remove_all(&mut self, owner: OpenSerial) -> Vec<Lock> {
        let mut removed = Vec::new();
        for run in &mut self.runs {
            removed.extend(run.locks.extract_if(.., |lock| lock.owner == owner));
            run.look();
        }
        for at in (0..self.runs.len()).rev() {
            self.join(at);
        }
        removed
    }

    // The run that a key belongs to: the last one that begins before it, or the first.
    fn run_of(&self, key: (u64, u64, u64, LockId)) -> usize {
        let begun = self
            .runs
            .partition_point(|run| run.locks.first().is_some_and(|lock| lock.key() <= key));
        begun.saturating_sub(1)
    }

    // Joins a run and the one behind it where they are small; otherwise locks given back would leave a run for each
    // lock that is left.
    fn join(&mut self, at: usize) {
        let Some(run) = self.runs.get(at) else { return };
        let behind = self.runs.get(at + 1).map(|next| next.locks.len());
        if run.locks.is_empty() {
            self.runs.remove(at);
        } else if behind.is_some_and(|behind| run.locks.len() + behind <= RUN_MAX / 2) {
            let next = self.runs.remove(at + 1);
            let run = &mut self.runs[at];
            run.last = run.last.max(next.last);
            run.sole = run.sole.filter(|sole| next.sole == Some(*sole));
            run.locks.extend(next.locks);
        }
    }

    /// Runs a search passes at worst.
    #[cfg(test)]
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }
}

/// Locks of one run: as long a run as there are runs in a file with all the locks it may have.
pub(super) const RUN_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::super::locks::{LockRefused, LockTable};
    use super::*;
    use crate::limits::LOCKS_PER_FILE_MAX;

    /// What a table of locks is by its rules: a list, each lock compared with all others.
    #[derive(Debug, Default)]
    struct Model(Vec<(OpenSerial, LockRange, bool)>);

    impl Model {
        fn lock(&mut self, owner: OpenSerial, range: LockRange, exclusive: bool) -> bool {
            let conflict = |&(holder, held, is_exclusive): &(OpenSerial, LockRange, bool)| {
                let stacks = holder == owner && is_exclusive && !exclusive;
                held.overlaps(range) && (exclusive || is_exclusive) && !stacks
            };
            let is_free = !self.0.iter().any(conflict);
            if is_free {
                self.0.push((owner, range, exclusive));
            }
            is_free
        }

        fn unlock(&mut self, owner: OpenSerial, range: LockRange) -> bool {
            let at = self.0.iter().position(|&(holder, held, _)| (holder, held) == (owner, range));
            at.map(|at| self.0.remove(at)).is_some()
        }

        fn allows(&self, owner: OpenSerial, range: LockRange, writes: bool) -> bool {
            let forbids = |&(holder, held, exclusive): &(OpenSerial, LockRange, bool)| {
                let is_meant = if exclusive { holder != owner } else { writes };
                is_meant && held.overlaps(range)
            };
            range.length == 0 || !self.0.iter().any(forbids)
        }
    }

    fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        }
    }

    #[test]
    fn a_table_of_locks_answers_as_a_list_of_them_does() {
        // A narrow space, where ranges meet in all ways and are repeated, and a wide one with many runs.
        for (seed, space, longest, steps) in
            [(1, 40, 8, 20_000), (2, 3_000, 6, 12_000), (3, 500, 400, 8_000)]
        {
            let (mut table, mut model, mut next) =
                (LockTable::default(), Model::default(), numbers(seed));
            for step in 0..steps {
                let owner = OpenSerial(next(4));
                let range = LockRange::new(next(space), next(longest)).unwrap();
                match next(100) {
                    0..55 => {
                        let exclusive = next(2) == 0;
                        let granted = table.lock(owner, range, exclusive, None).is_ok();
                        assert_eq!(granted, model.lock(owner, range, exclusive), "{step}");
                    }
                    // What is held, rather than what is not.
                    55..80 => {
                        let pick = usize::try_from(next(1 + model.0.len() as u64)).unwrap();
                        let (owner, range, _) =
                            model.0.get(pick).copied().unwrap_or((owner, range, false));
                        let held = model
                            .0
                            .iter()
                            .filter(|lock| (lock.0, lock.1) == (owner, range))
                            .count();
                        assert_eq!(table.count(owner, &[range])[&range], held, "{step}");
                        let unlocked = table.unlock(owner, &[range]) == 1;
                        assert_eq!(unlocked, model.unlock(owner, range), "{step}");
                    }
                    80..81 if step % 5 == 0 => {
                        let held = model.0.iter().any(|lock| lock.0 == owner);
                        assert_eq!(table.release(owner), held, "{step}");
                        model.0.retain(|lock| lock.0 != owner);
                    }
                    _ => {}
                }
                let range = LockRange::new(next(space), next(longest)).unwrap();
                let reads = table.allows_read(owner, range.offset, range.length);
                let writes = table.allows_write(owner, range.offset, range.length);
                assert_eq!(reads, model.allows(owner, range, false), "{step}");
                assert_eq!(writes, model.allows(owner, range, true), "{step}");
                let first = model.0.iter().map(|lock| lock.1.offset).min();
                assert_eq!(table.first_offset(), first, "{step}");
            }
        }
    }

    #[test]
    fn locks_given_back_leave_no_more_runs_than_a_search_may_pass() {
        let most = 4 * LOCKS_PER_FILE_MAX / RUN_MAX + 1;
        let (mut index, mut next, mut held) = (LockIndex::default(), numbers(4), Vec::new());
        let owner = OpenSerial(1);
        let range = |offset| LockRange::new(offset, 1).unwrap();
        for id in 0..60_000 {
            if held.len() == LOCKS_PER_FILE_MAX {
                // All but a few go, the neighbours of those included.
                for (id, offset) in held.split_off(LOCKS_PER_FILE_MAX / 200) {
                    assert!(index.remove(owner, range(offset), id).is_some());
                    assert!(index.runs() <= most);
                }
            }
            let (id, offset) = (LockId(id), next(1 << 40));
            index.insert(Lock { range: range(offset), owner, id, place: None });
            held.push((id, offset));
            assert!(index.runs() <= most);
        }
        assert_eq!(index.iter().count(), held.len());
    }

    #[test]
    fn a_search_for_locks_of_others_passes_those_of_the_open_itself_run_by_run() {
        let (mine, other) = (OpenSerial(1), OpenSerial(2));
        let range = |offset, length| LockRange::new(offset, length).unwrap();
        let whole = range(0, 1 << 40);
        let mut index = LockIndex::default();
        let count = LOCKS_PER_FILE_MAX as u64;
        // One of another open in each run, for a while.
        for at in 0..count {
            let lock = |owner, range| Lock { range, owner, id: LockId(at), place: None };
            index.insert(lock(mine, range(2 * at, 1)));
            if at % 64 == 0 {
                index.insert(lock(other, range(2 * at + 1, 1)));
            }
        }
        assert_eq!(index.of_others(mine, whole).count(), LOCKS_PER_FILE_MAX / 64);
        assert_eq!(index.of_others(other, whole).count(), LOCKS_PER_FILE_MAX);
        for at in (0..count).filter(|at| at % 64 == 0) {
            assert!(index.remove(other, range(2 * at + 1, 1), LockId(at)).is_some());
        }
        assert_eq!(index.compared(mine, whole).count(), 0);
        assert_eq!(index.of_others(other, whole).count(), LOCKS_PER_FILE_MAX);
    }

    #[test]
    fn a_lock_says_which_one_is_in_its_way() {
        let mut table = LockTable::default();
        let range = LockRange::new(5, 5).unwrap();
        table.lock(OpenSerial(1), range, false, None).unwrap();
        table.lock(OpenSerial(1), range, false, None).unwrap();
        assert_eq!(
            table.lock(OpenSerial(2), range, true, None),
            Err(LockRefused::Conflict(LockId(1)))
        );
        assert_eq!(table.unlock(OpenSerial(1), &[range]), 1);
        assert_eq!(
            table.lock(OpenSerial(2), range, true, None),
            Err(LockRefused::Conflict(LockId(2)))
        );
    }
}
