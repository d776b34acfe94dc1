//! Frames that nobody has asked for, and the end of a connection whose peer does not take them.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Link;
use crate::connections::outbox::Parcel;
use crate::state::account::{Account, Room};
use crate::state::resource::Resource;

impl Link {
    /// Sends a frame that nobody has asked for. A peer that lets too many of them lie loses the connection, and what it
    /// was told goes another way. Where several connections together have too many, the one with most of them ends.
    pub(crate) fn tell(&self, frame: Vec<u8>) {
        let Some(holder) = self.holder() else { return self.cut() };
        let whose = (&self.account, &holder);
        let room = Room::try_take(whose, Resource::Notices, 1);
        let room = room.or_else(|| self.room_of_others(&holder, Resource::Notices, 1));
        match room {
            Some(room) => self.deliver(Parcel { frame, room: Some(room) }),
            None => self.cut(),
        }
    }

    /// Room of what others have used up: connections that hold most of it are told to end, and this one has at once what
    /// they will give back. Those that hold a message of which the rest comes slowly, or not at all, end first. `None`:
    /// this one has to end, as it holds most or as much as a connection may.
    pub(crate) fn room_of_others(
        &self,
        holder: &Arc<Account>,
        what: Resource,
        amount: usize,
    ) -> Option<Room> {
        let whose = (&self.account, holder);
        // Others may borrow meanwhile what was freed for this one.
        (0..ATTEMPTS).find_map(|_| {
            if self.is_cut() || self.account.used_up(what, amount).next().is_some() {
                return None;
            }
            holder.used_up(what, amount).for_each(|account| self.end_others(account, what, amount));
            Room::try_borrow(whose, what, amount)
        })
    }

    // All connections are gone through once for each time that those which end hold less than was asked for.
    fn end_others(&self, account: &Account, what: Resource, amount: usize) {
        if account.may_lend(what, amount) {
            return;
        }
        let mut links = self.shared.clients.all();
        links.retain(|link| {
            !std::ptr::eq(&raw const **link, self)
                && link.holder().is_some_and(|holder| holder.is_of(account))
        });
        let count = |link: &Arc<Self>| link.account.held(what);
        let held = self.account.held(what);
        let is_slow = |link: &Arc<Self>| what == Resource::Backlog && link.is_slow();
        // Those that were told before have room to return still.
        links.sort_by_cached_key(|link| Reverse((link.is_cut(), is_slow(link), count(link))));
        for link in links {
            if !link.is_cut() && count(&link) <= if is_slow(&link) { 0 } else { held } {
                continue;
            }
            link.cut();
            account.add_ending(&link.account);
            if account.may_lend(what, amount) {
                return;
            }
        }
    }

    /// Notes whether the rest of a message of the peer comes slowly, or not at all.
    pub(crate) fn note_slow(&self, is_slow: bool) {
        self.is_slow.store(is_slow, Ordering::Relaxed);
    }

    /// What [`Link::note_slow`] noted.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Whether the connection has to end, what is queued with it.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }

    // Ends the connection, what is queued with it.
    fn cut(&self) {
        if !self.is_cut.swap(true, Ordering::SeqCst) {
            self.cut.notify_one();
            self.close();
        }
    }

    /// Returns once the connection has to end, what is queued with it. For its task alone.
    pub(crate) async fn cut_off(&self) {
        self.cut.notified().await;
    }
}

/// How often a connection looks for room that others take before it.
const ATTEMPTS: usize = 4;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::Part;
    use super::*;
    use crate::access::Identity;
    use crate::connections::outbox::Outbox;
    use crate::limits::{NOTICES_PER_CONNECTION_MAX, NOTICES_PER_USER_MAX};
    use crate::push::tests::rig::Rig;

    /// A peer that takes nothing.
    #[derive(Debug, Default)]
    struct Stuck {
        parcels: Part<Vec<Parcel>>,
        is_closed: AtomicBool,
    }

    impl Outbox for Arc<Stuck> {
        fn deliver(&self, parcel: Parcel) {
            self.parcels.lock().push(parcel);
        }

        fn close(&self) {
            self.is_closed.store(true, Ordering::SeqCst);
        }
    }

    /// A connection whose peer takes nothing, of a user who has logged on.
    fn stuck(rig: &Rig, user: &Arc<Account>) -> (Arc<Link>, Arc<Stuck>) {
        let stuck = Arc::new(Stuck::default());
        let address = rig.link().peer;
        let outbox = Box::new(Arc::clone(&stuck));
        let link =
            Arc::new(Link::new(Arc::clone(&rig.core.connections), address, address, outbox, None));
        link.user.set(Arc::clone(user)).unwrap();
        link.agreed.set(rig.link().agreed.get().unwrap().clone()).unwrap();
        link.enlist();
        (link, stuck)
    }

    #[tokio::test]
    async fn a_connection_that_reads_is_told_where_others_of_its_user_read_nothing() {
        let rig = Rig::new();
        let user = |name: &str| rig.core.connections.accounts.of(&Identity::User(name.into()));
        let (reader, read) = stuck(&rig, &user("user"));
        let (beside, _) = stuck(&rig, &user("another"));
        let all = NOTICES_PER_USER_MAX / NOTICES_PER_CONNECTION_MAX;
        let silent: Vec<_> = (0..all).map(|_| stuck(&rig, &user("user"))).collect();
        for (link, _) in &silent {
            (0..NOTICES_PER_CONNECTION_MAX).for_each(|_| link.tell(Vec::new()));
        }
        // Its bound is another one.
        (0..10).for_each(|_| beside.tell(Vec::new()));
        let ended = || -> Vec<_> {
            let of = |stuck: &Stuck| stuck.is_closed.load(Ordering::SeqCst);
            silent.iter().map(|(_, stuck)| Arc::clone(stuck)).filter(|stuck| of(stuck)).collect()
        };
        assert!(ended().is_empty());
        // Until the notices of one are gone, no other ends.
        (0..10).for_each(|_| reader.tell(Vec::new()));
        assert_eq!((read.parcels.lock().len(), ended().len()), (10, 1));
        assert!(!read.is_closed.load(Ordering::SeqCst));
        ended()[0].parcels.lock().clear();
        reader.tell(Vec::new());
        assert_eq!((read.parcels.lock().len(), ended().len()), (11, 1));
        // What the reader does not read is bounded whatever others do.
        (0..NOTICES_PER_CONNECTION_MAX).for_each(|_| reader.tell(Vec::new()));
        assert!(read.is_closed.load(Ordering::SeqCst));
        assert_eq!(read.parcels.lock().len(), NOTICES_PER_CONNECTION_MAX);
    }

    #[tokio::test]
    async fn connections_are_gone_through_once_for_each_that_has_to_end() {
        let rig = Rig::new();
        let user = rig.core.connections.accounts.of(&Identity::User("user".into()));
        let (reader, read) = stuck(&rig, &user);
        let all = NOTICES_PER_USER_MAX / NOTICES_PER_CONNECTION_MAX;
        let silent: Vec<_> = (0..all).map(|_| stuck(&rig, &user)).collect();
        let fill =
            |link: &Link| (0..NOTICES_PER_CONNECTION_MAX).for_each(|_| link.tell(Vec::new()));
        silent.iter().for_each(|(link, _)| fill(link));
        let ended = || silent.iter().filter(|(link, _)| link.is_cut()).count();
        reader.tell(Vec::new());
        let (first, stuck_first) = silent.iter().find(|(link, _)| link.is_cut()).unwrap();
        // Whoever went through the connections now would find another one.
        first.delist();
        (0..10).for_each(|_| reader.tell(Vec::new()));
        assert_eq!((read.parcels.lock().len(), ended()), (11, 1));
        // Nor does it help to tell the one that ends, or one that has as many, more.
        first.tell(Vec::new());
        assert_eq!(ended(), 1);
        stuck_first.parcels.lock().clear();
        let (late, _) = stuck(&rig, &user);
        fill(&late);
        assert!(!late.is_cut());
        reader.tell(Vec::new());
        assert_eq!((read.parcels.lock().len(), ended() + usize::from(late.is_cut())), (12, 2));
    }

    #[tokio::test]
    async fn a_connection_that_reads_no_breaks_ends_at_the_bound() {
        let rig = Rig::new();
        let user = rig.core.connections.accounts.of(&Identity::User("user".into()));
        let (link, stuck) = stuck(&rig, &user);
        let is_closed = || stuck.is_closed.load(Ordering::SeqCst);
        for round in 0..2 {
            for _ in 0..NOTICES_PER_CONNECTION_MAX {
                link.tell(vec![0; 100]);
            }
            assert!(!is_closed(), "all of them left before round {round}");
            assert_eq!(stuck.parcels.lock().len(), NOTICES_PER_CONNECTION_MAX);
            if round == 0 {
                stuck.parcels.lock().clear();
            }
        }
        link.tell(vec![0; 100]);
        assert!(is_closed());
        assert_eq!(stuck.parcels.lock().len(), NOTICES_PER_CONNECTION_MAX);
        link.cut_off().await;
    }
}
