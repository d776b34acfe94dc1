//! Who pays for what a connection holds, and the room for its requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Link;
use crate::connections::session::Channel;
use crate::limits::REQUEST_COST;
use crate::state::account::{Account, Room};
use crate::state::resource::Resource;

impl Link {
    /// Who a request is counted for whose session is not known yet: a user if any has logged on, else guests.
    pub(crate) fn holder(&self) -> Option<Arc<Account>> {
        self.user.get().or_else(|| self.guests.get()).cloned()
    }

    /// Whether a user ever logged on over it.
    pub(crate) fn has_had_user(&self) -> bool {
        self.user.get().is_some()
    }

    /// Whether a request was kept for which there was no room: none is read before there is some.
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// Looks whether a short request would find room now.
    pub(crate) fn look_for_request_room(&self) {
        let account = self.crowded.lock().clone();
        let whose = account.as_ref().map(|holder| (&self.account, holder));
        let take = |whose| Room::try_take(whose, Resource::Requests, SHORT_REQUEST);
        if whose.is_none_or(|whose| take(whose).is_some()) {
            self.set_crowded(None);
        }
    }

    /// Waits until a short request would find room.
    pub(crate) async fn request_room(&self) {
        let account = self.crowded.lock().clone();
        if let Some(holder) = account {
            let whose = (&self.account, &holder);
            drop(Room::take(whose, Resource::Requests, SHORT_REQUEST).await);
        }
        self.set_crowded(None);
    }

    /// Notes for whose request there was no room; `None`: there is some again.
    pub(crate) fn set_crowded(&self, whose: Option<Arc<Account>>) {
        let mut crowded = self.crowded.lock();
        self.is_crowded.store(whose.is_some(), Ordering::Relaxed);
        *crowded = whose;
    }

    /// Bytes of answers it holds, if somebody waits for memory that it holds, of requests or of answers. It may have
    /// sessions of several users: then it counts for each of them.
    pub(crate) fn wanted_answers(&self) -> Option<usize> {
        let is_wanted = [Resource::Answers, Resource::Requests].map(|what| self.is_wanted(what));
        is_wanted.contains(&true).then(|| self.account.held(Resource::Answers))
    }

    /// Bytes of requests it holds, if somebody waits for that memory.
    pub(crate) fn wanted_requests(&self) -> Option<usize> {
        self.is_wanted(Resource::Requests).then(|| self.account.held(Resource::Requests))
    }

    fn is_wanted(&self, what: Resource) -> bool {
        self.settle_past();
        if self.account.held(what) == 0 {
            return false;
        }
        let is_wanted = |one: &Arc<Channel>| one.session.account.is_wanted(what);
        self.channels.lock().values().any(is_wanted)
            || self.past.lock().iter().any(|account| account.is_wanted(what))
    }

    /// Where it holds nothing, it holds nothing for those whose sessions are over.
    pub(super) fn settle_past(&self) {
        let holds = |what: &Resource| self.account.held(*what) > 0;
        if self.has_past.load(Ordering::Relaxed)
            && ![Resource::Answers, Resource::Requests].iter().any(holds)
        {
            let mut past = self.past.lock();
            self.has_past.store(false, Ordering::Relaxed);
            past.clear();
        }
    }

    /// Its session is over; what it asked for may still be there.
    pub(super) fn note_past(&self, account: &Arc<Account>) {
        self.settle_past();
        let mut past = self.past.lock();
        self.has_past.store(true, Ordering::Relaxed);
        if !past.iter().any(|one| Arc::ptr_eq(one, account)) {
            past.push(Arc::clone(account));
        }
    }

    /// Counts it among the connections of a user, if it is not among another's; false when those are too many.
    pub(crate) fn count_for(&self, account: &Arc<Account>) -> bool {
        if self.place.get().is_none() {
            let Some(place) = account.try_take(Resource::Connections, 1) else { return false };
            // Of two logons side by side one counts.
            let _ = self.place.set(place);
        }
        true
    }
}

#[cfg(test)]
impl Link {
    /// As if this user, or a guest, had logged on.
    pub(crate) fn belong_to(self: &Arc<Self>, account: Arc<Account>, is_guest: bool) {
        let holder = if is_guest { &self.guests } else { &self.user };
        holder.set(account).unwrap();
        self.enlist();
    }
}

/// As long as a frame that is read with its neighbours (`transport/input.rs`), and what it costs.
const SHORT_REQUEST: usize = (32 << 10) + REQUEST_COST;

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::access::Identity;
    use crate::push::tests::rig::Rig;

    #[tokio::test]
    async fn an_answer_of_a_session_that_has_ended_is_wanted_by_others_all_the_same() {
        let rig = Rig::new();
        let (link, account) = (rig.link(), Arc::clone(&rig.session().account));
        for what in [Resource::Answers, Resource::Requests] {
            let held = Room::try_take((&link.account, &account), what, 1 << 20);
            assert!(held.is_some());
            let all = account.try_take(what, account.left(what)).unwrap();
            let mut other = pin!(account.take(what, 1));
            assert!(other.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let session = Arc::clone(rig.session());
            link.add_channel(Arc::new(Channel { session, signing: None }));
            assert!(link.is_wanted(what));
            link.remove_channel(rig.session().id);
            assert!(link.is_wanted(what), "{what:?}");
            drop((held, all));
            assert!(!link.is_wanted(what), "it holds nothing");
            // Nor is what it holds for others later.
            let other = rig.core.connections.accounts.of(&Identity::user("other"));
            link.hear(rig.core.now());
            let held = Room::try_take((&link.account, &other), what, 1 << 20);
            let all = account.try_take(what, account.left(what)).unwrap();
            let mut waits = pin!(account.take(what, 1));
            assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(!link.is_wanted(what), "{what:?} of another");
            drop((held, all));
        }
    }
}
