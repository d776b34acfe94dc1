//! Breaks on their way to those who hold what is broken: each to one connection of all the opens of its lease.
//!
//! A file may have as many leases as opens, and all of them break at once: what is done under the lock of its node
//! takes time in proportion to both, and what is told is told in pieces.
//!
//! Spec: MS-SMB2 §3.3.4.6, §3.3.4.7.

use std::collections::HashMap;
use std::sync::Arc;

use super::holder::{self, Holder};
use super::lease::{Notice, Owner};
use super::serial::OpenSerial;

/// What breaks come to, once it is known who can still be told.
#[derive(Debug, Default)]
pub(crate) struct Routed {
    notices: Vec<Notice<Holder>>,
    given_up: Vec<OpenSerial>,
}

impl Routed {
    /// Of the holders that are there, and of those whose connection is gone and who lose their opens for it. One look
    /// at each of `opens`, which are those of the file.
    pub(super) fn new<'a>(
        opens: impl IntoIterator<Item = SideOpen<'a>>,
        notices: Vec<Notice<Holder>>,
    ) -> Self {
        let mut routed = Self::default();
        if notices.is_empty() {
            return routed;
        }
        let places = notices.iter().enumerate().map(|(at, notice)| (notice.owner, at));
        let places: HashMap<_, _> = places.collect();
        let mut sides: Vec<_> = notices.iter().map(|_| Side::default()).collect();
        for open in opens {
            if let Some(at) = places.get(&open.owner) {
                sides[*at].add(open);
            }
        }
        for (notice, side) in notices.into_iter().zip(sides) {
            match side.holder() {
                Some(holder) => {
                    let mut notify = holder.clone();
                    notify.asked = Arc::clone(&notice.notify.asked);
                    // A lease of several opens is as secret as the most secret of them.
                    notify.is_sealed = side.is_sealed;
                    // Any of its opens may just be getting what is now asked back.
                    if let Some(untold) = side.untold {
                        notify.told = Arc::clone(&untold.told);
                    }
                    routed.notices.push(Notice { notify, ..notice });
                }
                // MS-SMB2 §3.3.4.6, §3.3.4.7: nobody is there to answer. Persistent ones stay.
                None => routed.given_up.extend(side.given_up),
            }
        }
        routed
    }

    /// Opens that end, as nobody can be told that they are in the way.
    pub(super) fn given_up(&self) -> &[OpenSerial] {
        &self.given_up
    }

    /// Tells those alone that `wanted` finds.
    pub(super) fn retain(&mut self, wanted: impl FnMut(&Notice<Holder>) -> bool) {
        self.notices.retain(wanted);
    }

    /// Tells the holders: the first of them now, many in pieces that leave their thread to others in between.
    pub(super) fn send(self) {
        self.in_pieces(holder::send);
    }

    /// Tells those who are silent a second time, another way.
    pub(super) fn insist(self) {
        self.in_pieces(holder::insist);
    }

    fn in_pieces(self, tell: fn(Notice<Holder>)) {
        let mut left = self.notices.into_iter();
        left.by_ref().take(NOTICES_PER_TURN).for_each(tell);
        if left.len() == 0 {
            return;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                while left.len() > 0 {
                    left.by_ref().take(NOTICES_PER_TURN).for_each(tell);
                    tokio::task::yield_now().await;
                }
            })),
            // Nobody else needs this thread.
            Err(_) => left.for_each(tell),
        }
    }
}

/// An open, as far as a break of its lease needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SideOpen<'a> {
    pub(super) serial: OpenSerial,
    pub(super) owner: Owner,
    pub(super) orphan: Option<bool>,
    pub(super) holder: Option<&'a Holder>,
}

/// The opens of one lease, as far as its break needs them.
#[derive(Default)]
struct Side<'a> {
    first: Option<&'a Holder>,
    there: Option<&'a Holder>,
    sealed: Option<&'a Holder>,
    is_sealed: bool,
    untold: Option<&'a Holder>,
    given_up: Vec<OpenSerial>,
}

impl<'a> Side<'a> {
    fn add(&mut self, open: SideOpen<'a>) {
        if open.orphan == Some(false) {
            self.given_up.push(open.serial);
        }
        let Some(holder) = open.holder else { return };
        self.first = self.first.or(Some(holder));
        self.is_sealed |= holder.is_sealed;
        if holder.may_be_there() {
            self.there = self.there.or(Some(holder));
            self.sealed = self.sealed.or_else(|| Some(holder).filter(|one| one.is_sealed));
        }
        self.untold = self.untold.or_else(|| Some(holder).filter(|one| one.told.is_waiting()));
    }

    // Where it is sealed if any of them is, else one that may be there, else any.
    fn holder(&self) -> Option<&'a Holder> {
        self.sealed.or(self.there).or(self.first)
    }
}

/// Holders told in one go, about a quarter of a millisecond's work.
pub(super) const NOTICES_PER_TURN: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::caching::{Caching, Flavor};
    use super::super::lease::Owner;
    use super::*;

    #[tokio::test]
    async fn a_break_of_many_leases_leaves_its_thread_to_others_in_between() {
        let (told, _waiting): (Vec<_>, Vec<_>) = (0..1000).map(|_| Holder::untold()).unzip();
        let notices = told.iter().zip(0..).map(|(told, serial)| Notice {
            owner: Owner::Open(OpenSerial(serial)),
            flavor: Flavor::Oplock,
            notify: Holder { told: Arc::clone(told), ..Holder::default() },
            from: Caching::READ,
            to: Caching::NONE,
            epoch: 0,
            needs_answer: false,
        });
        Routed { notices: notices.collect(), given_up: Vec::new() }.send();
        let count = || told.iter().filter(|told| told.has_kept()).count();
        assert_eq!(count(), NOTICES_PER_TURN, "at once");
        tokio::task::yield_now().await;
        assert!(count() < 1000, "one piece at a time");
        while count() < 1000 {
            tokio::task::yield_now().await;
        }
    }
}
