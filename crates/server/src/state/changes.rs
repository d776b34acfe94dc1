//! Changes of the bytes of one file, from when they are admitted until they are visible.
//!
//! ```text
//!            others' caching is broken, no lock is in the way        dropped
//!  asked for ------------------------------------------------> Changing ----> visible, or refused
//!                          one critical section
//! ```
//!
//! A change may wait for a thread in between. What is granted meanwhile must not outlive it: no other owner is
//! granted caching of bytes that are about to change, and a LOCK that the change would have met waits for it.
//!
//! A change costs its place in this table while its request is under way, and is counted with that.
//!
//! Spec: MS-FSA §2.1.4.10 (byte-range locks), §2.1.5.18 (caching).

use std::sync::Arc;

use super::lease::Owner;
use super::locks::{LockRange, OpenSerial};
use super::node::Node;

/// Changes of one file that are under way.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    places: Vec<Option<(Count, Change)>>,
    free: Vec<usize>,
    begun: Count,
    /// Somebody waits for one of them to end.
    is_awaited: bool,
}

/// Who changes what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) owner: Owner,
    pub(crate) serial: OpenSerial,
    pub(crate) range: LockRange,
}

/// How many changes of one file have begun.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, PartialOrd)]
pub(crate) struct Count(u64);

/// A lock, and how many changes had begun when it was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) serial: OpenSerial,
    pub(crate) range: LockRange,
    pub(crate) exclusive: bool,
    pub(crate) before: Count,
}

impl Changes {
    pub(super) fn begin(&mut self, change: Change) -> Place {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some((self.begun, change));
        self.begun = Count(self.begun.0 + 1);
        Place(place)
    }

    // Whether anybody is to hear of it.
    fn end(&mut self, Place(place): Place) -> bool {
        self.places[place] = None;
        self.free.push(place);
        if self.free.len() == self.places.len() && self.places.capacity() > KEPT_MAX {
            (self.places, self.free) = Default::default();
        }
        std::mem::take(&mut self.is_awaited)
    }

    /// Whether somebody else changes bytes that `owner` would cache.
    pub(crate) fn are_of_another(&self, owner: Owner) -> bool {
        self.under_way().any(|change| change.owner != owner)
    }

    /// Changes that have begun so far.
    pub(crate) fn so_far(&self) -> Count {
        self.begun
    }

    /// Whether a change is under way that `kept` keeps from being made. Then who asks is notified when a change
    /// has ended. Of later ones nobody asks: they would keep the lock waiting for as long as they come.
    pub(crate) fn are_met(&mut self, kept: Kept) -> bool {
        let meets = |change: &Change| change.range.length > 0 && change.range.overlaps(kept.range);
        // Its owner may write under an exclusive lock, nobody under a shared one.
        let forbids = |change: &Change| !kept.exclusive || change.serial != kept.serial;
        let mut earlier = self.places.iter().flatten().filter(|(count, _)| *count < kept.before);
        let is_met = earlier.any(|(_, change)| meets(change) && forbids(change));
        self.is_awaited |= is_met;
        is_met
    }

    fn under_way(&self) -> impl Iterator<Item = &Change> {
        self.places.iter().flatten().map(|(_, change)| change)
    }
}

/// Where a change stands in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(usize);

/// A change under way: to be held until its bytes are visible to every reader.
#[derive(Debug)]
pub(crate) struct Changing {
    node: Arc<Node>,
    place: Place,
}

impl Changing {
    pub(super) fn new(node: Arc<Node>, place: Place) -> Self {
        Self { node, place }
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        let is_awaited = self.node.lock().changes.end(self.place);
        if is_awaited {
            self.node.changed.notify_waiters();
        }
    }
}

/// Places for changes that a file keeps room for.
const KEPT_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const A: OpenSerial = OpenSerial(1);
    const B: OpenSerial = OpenSerial(2);

    fn change(serial: OpenSerial, offset: u64, length: u64) -> Change {
        let range = LockRange::new(offset, length).unwrap();
        Change { owner: Owner::Open(serial), serial, range }
    }

    #[test]
    fn a_change_keeps_others_from_caching_until_it_ends() {
        let mut changes = Changes::default();
        let place = changes.begin(change(A, 0, 10));
        assert!(changes.are_of_another(Owner::Open(B)) && !changes.are_of_another(Owner::Open(A)));
        assert!(!changes.end(place), "nobody waits");
        assert!(!changes.are_of_another(Owner::Open(B)));
    }

    #[test]
    fn a_lock_meets_the_changes_that_it_would_have_forbidden() {
        let mut changes = Changes::default();
        let place = changes.begin(change(A, 10, 10));
        let before = changes.so_far();
        let lock = |serial, offset, length, exclusive| {
            let range = LockRange::new(offset, length).unwrap();
            Kept { serial, range, exclusive, before }
        };
        assert!(!changes.are_met(lock(A, 10, 1, true)), "its own");
        assert!(!changes.are_met(lock(B, 0, 10, true)), "before it");
        assert!(!changes.is_awaited);
        assert!(changes.are_met(lock(A, 10, 1, false)), "no owner writes under a shared lock");
        assert!(changes.are_met(lock(B, 19, 1, true)));
        let later = changes.begin(change(A, 0, 100));
        assert!(changes.end(place), "somebody waits");
        assert!(!changes.are_met(lock(B, 19, 1, true)), "nobody waits for what comes later");
        let nothing = changes.begin(change(A, 5, 0));
        let before = changes.so_far();
        assert!(!changes.end(later));
        assert!(!changes.are_met(Kept { before, ..lock(B, 0, 10, true) }), "nothing is changed");
        assert!(!changes.end(nothing));
    }

    #[test]
    fn many_changes_at_once_leave_no_memory_behind() {
        let mut changes = Changes::default();
        let places: Vec<_> = (0..1000).map(|offset| changes.begin(change(A, offset, 1))).collect();
        assert_eq!(changes.under_way().count(), 1000);
        places.into_iter().for_each(|place| _ = changes.end(place));
        assert!(changes.places.capacity() <= KEPT_MAX && changes.free.capacity() <= KEPT_MAX);
    }
}
