//! Changes of the bytes of one file, from when they are admitted until they are visible; and reads, until the bytes
//! are there.
//!
//! ```text
//!            others' caching is broken, no lock is in the way        dropped
//!  asked for ------------------------------------------------> Changing ----> visible, or refused
//!                          one critical section
//! ```
//!
//! A change may wait for a thread in between. What is granted meanwhile must not outlive it: no other owner is
//! granted caching of bytes that are about to change, and a LOCK that the change would have met waits for it. A LOCK
//! waits for reads too ([`super::reads`]); they stand in nobody else's way.
//!
//! A change or read costs its place in this table while its request is under way, and is counted with that.
//!
//! Spec: MS-FSA §2.1.4.10 (byte-range locks), §2.1.5.18 (caching).

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::lease::Owner;
use super::range::LockRange;
use super::serial::OpenSerial;

/// Changes and reads of one file that are under way.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    places: Vec<Option<UnderWay>>,
    free: Vec<usize>,
    begun: Count,
}

/// One of them.
#[derive(Debug)]
struct UnderWay {
    begun: Count,
    what: Use,
    /// There if somebody waits for its end.
    ended: Option<Arc<Notify>>,
}

/// What is done with bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    Change(Change),
    /// A change that may come late: nobody else opens the file before its end.
    ChangeAgain(Change),
    Read(Read),
}

impl Use {
    /// Whether a lock keeps it from being done.
    fn is_forbidden_by(&self, kept: &Kept) -> bool {
        let (serial, range) = match self {
            Self::Change(Change { serial, range, .. })
            | Self::ChangeAgain(Change { serial, range, .. })
            | Self::Read(Read { serial, range }) => (*serial, *range),
        };
        let is_its_own = serial == kept.serial;
        let is_forbidden = match self {
            // Its owner may write under an exclusive lock, nobody under a shared one.
            Self::Change(_) | Self::ChangeAgain(_) => !(kept.exclusive && is_its_own),
            Self::Read(_) => kept.exclusive && !is_its_own,
        };
        is_forbidden && range.length > 0 && range.overlaps(kept.range)
    }
}

/// Who changes what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) owner: Owner,
    pub(crate) serial: OpenSerial,
    pub(crate) range: LockRange,
}

/// Who reads what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) serial: OpenSerial,
    pub(crate) range: LockRange,
}

/// How many changes and reads of one file have begun.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Count(u64);

/// A lock, and how many changes and reads had begun when it was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) serial: OpenSerial,
    pub(crate) range: LockRange,
    pub(crate) exclusive: bool,
    pub(crate) before: Count,
}

impl Changes {
    pub(super) fn add(&mut self, what: Use) -> Place {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(UnderWay { begun: self.begun, what, ended: None });
        self.begun = Count(self.begun.0 + 1);
        Place(place)
    }

    // Who is to hear of it.
    pub(super) fn end(&mut self, Place(place): Place) -> Option<Arc<Notify>> {
        let ended = self.places[place].take().and_then(|one| one.ended);
        self.free.push(place);
        if self.free.len() == self.places.len() && self.places.capacity() > KEPT_MAX {
            (self.places, self.free) = Default::default();
        }
        ended
    }

    /// Whether somebody else changes bytes that `owner` would cache.
    pub(crate) fn are_of_another(&self, owner: Owner) -> bool {
        let mut under_way = self.places.iter().flatten();
        under_way.any(|one| {
            matches!(&one.what, Use::Change(change) | Use::ChangeAgain(change) if change.owner != owner)
        })
    }

    /// The end of a change by somebody else that may come late, if one is under way.
    pub(crate) fn again_by_another(&mut self, owner: Owner) -> Option<OwnedNotified> {
        let by_another = |one: &&mut UnderWay| matches!(&one.what, Use::ChangeAgain(change) if change.owner != owner);
        // The last that has begun, before which the others have ended most often.
        let under_way = self.places.iter_mut().flatten();
        let met = under_way.filter(by_another).max_by_key(|one| one.begun)?;
        Some(Arc::clone(met.ended.get_or_insert_default()).notified_owned())
    }

    /// How many have begun so far.
    pub(crate) fn so_far(&self) -> Count {
        self.begun
    }

    /// The end of what is under way and `kept` would have forbidden: of the last that has begun, before which the
    /// others have ended most often. Of those that begin after the lock none is waited for: they would keep it
    /// waiting for as long as they come.
    pub(crate) fn met_by(&mut self, kept: Kept) -> Option<OwnedNotified> {
        let under_way = self.places.iter_mut().flatten();
        let met = under_way
            .filter(|one| one.begun < kept.before && one.what.is_forbidden_by(&kept))
            .max_by_key(|one| one.begun)?;
        Some(Arc::clone(met.ended.get_or_insert_default()).notified_owned())
    }
}

/// Where something stands in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(usize);

/// Places that a file keeps room for.
const KEPT_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const A: OpenSerial = OpenSerial(1);
    const B: OpenSerial = OpenSerial(2);

    fn change(serial: OpenSerial, offset: u64, length: u64) -> Use {
        let range = LockRange::new(offset, length).unwrap();
        Use::Change(Change { owner: Owner::Open(serial), serial, range })
    }

    fn read(serial: OpenSerial, offset: u64, length: u64) -> Use {
        Use::Read(Read { serial, range: LockRange::new(offset, length).unwrap() })
    }

    #[test]
    fn a_change_keeps_others_from_caching_until_it_ends_and_a_read_does_not() {
        let mut changes = Changes::default();
        let place = changes.add(change(A, 0, 10));
        assert!(changes.are_of_another(Owner::Open(B)) && !changes.are_of_another(Owner::Open(A)));
        changes.add(read(A, 0, 10));
        assert!(changes.end(place).is_none(), "nobody waits");
        assert!(!changes.are_of_another(Owner::Open(B)));
    }

    #[test]
    fn a_lock_meets_the_changes_and_reads_that_it_would_have_forbidden() {
        let mut changes = Changes::default();
        let place = changes.add(change(A, 10, 10));
        changes.add(read(A, 30, 10));
        let before = changes.so_far();
        let lock = |serial, offset, length, exclusive| {
            let range = LockRange::new(offset, length).unwrap();
            Kept { serial, range, exclusive, before }
        };
        for (own, why) in [(lock(A, 10, 30, true), "its own"), (lock(B, 0, 10, true), "before it")]
        {
            assert!(changes.met_by(own).is_none(), "{why}");
        }
        assert!(changes.met_by(lock(B, 30, 1, false)).is_none(), "who shares reads");
        assert!(changes.met_by(lock(B, 30, 1, true)).is_some());
        let own = changes.met_by(lock(A, 10, 1, false));
        assert!(own.is_some(), "no owner writes under a shared lock");
        assert!(changes.met_by(lock(B, 19, 1, true)).is_some());
        let later = changes.add(change(A, 0, 100));
        assert!(changes.end(place).is_some(), "somebody waits");
        assert!(
            changes.met_by(lock(B, 19, 1, true)).is_none(),
            "nobody waits for what comes later"
        );
        let nothing = changes.add(change(A, 5, 0));
        let before = changes.so_far();
        assert!(changes.end(later).is_none());
        let kept = Kept { before, ..lock(B, 0, 10, true) };
        assert!(changes.met_by(kept).is_none(), "nothing is changed");
        assert!(changes.end(nothing).is_none());
    }

    #[test]
    fn whoever_waits_hears_of_the_end_of_what_it_waits_for_alone() {
        let mut changes = Changes::default();
        let places = [0, 100, 0].map(|offset| changes.add(change(A, offset, 10)));
        let range = LockRange::new(0, 10).unwrap();
        let kept = Kept { serial: B, range, exclusive: true, before: changes.so_far() };
        let mut ended = pin!(changes.met_by(kept).unwrap());
        let mut has_ended =
            || ended.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(());
        for place in &places[..2] {
            assert!(changes.end(*place).is_none() && !has_ended(), "the last one is waited for");
        }
        changes.end(places[2]).unwrap().notify_waiters();
        assert!(has_ended() && changes.met_by(kept).is_none());
    }

    #[test]
    fn many_changes_at_once_leave_no_memory_behind() {
        let mut changes = Changes::default();
        let places: Vec<_> = (0..1000).map(|offset| changes.add(change(A, offset, 1))).collect();
        assert_eq!(changes.places.iter().flatten().count(), 1000);
        places.into_iter().for_each(|place| _ = changes.end(place));
        assert!(changes.places.capacity() <= KEPT_MAX && changes.free.capacity() <= KEPT_MAX);
    }
}
