//! Who carries what goes to a member: at most one thread at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use rdma::Waker;

use crate::names::{MemberId, MemberSet};

/// See the module. A lane of messages is claimed, carried, and let go of.
#[derive(Debug, Default)]
pub(super) struct Carrying {
    claimed: MemberSet,
    /// What their last carriers left is to be looked after now.
    owed: MemberSet,
    /// They are to be looked after when some time has passed.
    watched: MemberSet,
    /// The same, soon: records have gone there of which the member has not been told.
    untold: MemberSet,
    /// The first in their queues cannot go yet.
    held: MemberSet,
    /// Has a thread that waits begin to look at the time.
    is_news: MemberSet,
    /// While the thread that has the hub's lock takes note of what it leaves, instead of ringing for each.
    deferring: Option<MemberSet>,
    /// Of carriers that wait for one-sided operations.
    wakers: BTreeMap<MemberId, Waker>,
}

/// What a carrier leaves.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Owed {
    /// Operations are under way, and nobody waits for their ends.
    pub(super) is_under_way: bool,
    /// A member has records of which it has not been told.
    pub(super) is_untold: bool,
    /// There is a connection that may end.
    pub(super) has_way: bool,
}

impl Carrying {
    /// From here on to [`Carrying::deferred`] nobody is woken for what is queued.
    pub(super) fn defers(&mut self) {
        self.deferring = Some(MemberSet::NONE);
    }

    /// For whom something has been queued since.
    pub(super) fn deferred(&mut self) -> MemberSet {
        self.deferring.take().unwrap_or(MemberSet::NONE)
    }

    /// Whether what has been queued for a member is taken note of.
    pub(super) fn is_deferred(&mut self, member: MemberId) -> bool {
        if let Some(deferred) = &mut self.deferring {
            *deferred = deferred.with(member);
        }
        self.deferring.is_some()
    }

    /// The caller carries, unless somebody does.
    pub(super) fn claims(&mut self, member: MemberId) -> bool {
        let is_free = !self.claimed.contains(member);
        self.claimed = self.claimed.with(member);
        if is_free {
            self.owed = self.owed.without(member);
        }
        is_free
    }

    /// See [`Owed`].
    pub(super) fn lets_go(&mut self, member: MemberId, owed: Owed) {
        let set = |set: MemberSet, is_in: bool| {
            if is_in { set.with(member) } else { set.without(member) }
        };
        let was_untold = self.untold.contains(member);
        self.claimed = self.claimed.without(member);
        self.owed = set(self.owed, owed.is_under_way);
        self.watched = set(self.watched, owed.has_way);
        self.untold = set(self.untold, owed.is_untold);
        self.is_news = set(self.is_news, owed.is_untold && !was_untold);
    }

    /// Whether a thread that waits has to look at the time anew. True once.
    pub(super) fn is_watched_anew(&mut self, member: MemberId) -> bool {
        let is_news = self.is_news.contains(member);
        self.is_news = self.is_news.without(member);
        is_news
    }

    /// Whether somebody carries, and sees what has been queued before it lets go.
    pub(super) fn tells_carrier(&self, member: MemberId) -> bool {
        let is_carried = self.claimed.contains(member);
        if is_carried && let Some(waker) = self.wakers.get(&member) {
            waker.wake();
        }
        is_carried
    }

    /// Whether there is something to carry, and nobody does.
    pub(super) fn is_due(&self, member: MemberId, has_work: bool) -> bool {
        let is_owed = self.owed.contains(member);
        !self.claimed.contains(member) && (is_owed || has_work && !self.held.contains(member))
    }

    /// How long a thread waits at most.
    pub(super) fn patience(&self, member: MemberId) -> Option<Duration> {
        if self.untold.contains(member) {
            Some(TELL_WITHIN)
        } else {
            self.watched.contains(member).then_some(LOOK_EVERY)
        }
    }

    /// That time has passed.
    pub(super) fn time_passes(&mut self, member: MemberId) {
        if self.untold.contains(member) || self.watched.contains(member) {
            self.owed = self.owed.with(member);
        }
    }

    /// The first in the queue of a member has to wait, or no more.
    pub(super) fn holds(&mut self, member: MemberId, is_held: bool) {
        self.held = if is_held { self.held.with(member) } else { self.held.without(member) };
    }

    pub(super) fn is_held(&self, member: MemberId) -> bool {
        self.held.contains(member)
    }

    /// Wakes whoever carries for the member from here on.
    pub(super) fn set_waker(&mut self, member: MemberId, waker: Option<Waker>) {
        match waker {
            Some(waker) => self.wakers.insert(member, waker),
            None => self.wakers.remove(&member),
        };
    }
}

/// A member is told of records in its ring within this time.
const TELL_WITHIN: Duration = Duration::from_millis(5);
/// How often a connection that carries nothing is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
