//! A connection as the rest of the server sees it: where its answers go, and what tasks that
//! work for it need to know.
//!
//! The transport owns the [`crate::dispatch::Connection`] and drives it; everybody else holds an
//! `Arc<Link>`. Locks here (window, channels, pending) are leaves: nothing else is locked
//! while one of them is held.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use basics::ordered::{Mutex, MutexGuard};
use tokio::sync::Notify;

use smb::crypto::{Cipher, SigningAlgorithm};
use smb::negotiate::{Capabilities, Dialect, SecurityMode};

use super::Connections;
use super::outbox::{Outbox, Parcel, RemoteMemory};
use super::pending::Pending;
use super::session::{Channel, Session};
use super::window::Window;
use crate::access::Identity;
use crate::limits::{
    DIRECT_TRANSACT_SIZE_MAX, REQUEST_COST, TRANSACT_SIZE_MAX, UNAUTHENTICATED_CREDITS_MAX,
};
use crate::lock_order as order;
use crate::state::account::{Account, Hold, Room};
use crate::state::resource::Resource;

/// What NEGOTIATE settled.
#[derive(Clone, Debug)]
pub(crate) struct Agreed {
    pub(crate) dialect: Dialect,
    pub(crate) client_guid: [u8; 16],
    pub(crate) client_capabilities: Capabilities,
    pub(crate) client_security_mode: SecurityMode,
    /// What VALIDATE_NEGOTIATE_INFO compares and repeats.
    pub(crate) server_capabilities: Capabilities,
    pub(crate) server_security_mode: SecurityMode,
    pub(crate) signing: SigningAlgorithm,
    pub(crate) cipher: Option<Cipher>,
    /// The SMB3 POSIX extensions.
    pub(crate) posix: bool,
}

impl Agreed {
    /// Whether one request may take several credits: 2.1 and later.
    pub(crate) fn is_multi_credit(&self) -> bool {
        self.dialect >= Dialect::SMB_2_1
    }

    pub(crate) fn is_smb3(&self) -> bool {
        self.dialect >= Dialect::SMB_3_0
    }
}

type Part<T> = Mutex<T, order::Connection>;

/// One connection, shared by everyone who works for it.
#[derive(Debug)]
pub(crate) struct Link {
    shared: Arc<Connections>,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) agreed: OnceLock<Agreed>,
    outbox: Box<dyn Outbox>,
    remote_memory: Option<Arc<dyn RemoteMemory>>,
    window: Part<Window>,
    channels: Part<HashMap<u64, Arc<Channel>>>,
    /// Channels that ended while the connection lives, the last few: their keys still sign the
    /// answer that there is no such session.
    ended: Part<VecDeque<Arc<Channel>>>,
    pending: Part<HashMap<u64, Arc<Pending>>>,
    /// It has ended: nothing waits on its account.
    gone: AtomicBool,
    /// Somebody was asked for caching over it.
    asked: AtomicBool,
    next_async: AtomicU64,
    /// What its requests and answers hold.
    pub(crate) account: Arc<Account>,
    /// The first user who has logged on, and guests if any has.
    user: OnceLock<Arc<Account>>,
    guests: OnceLock<Arc<Account>>,
    /// A request is kept for which there was no room, and whose room that was.
    is_crowded: AtomicBool,
    crowded: Part<Option<Arc<Account>>>,
    /// Its place among the connections of the first user who has logged on over it.
    place: OnceLock<Hold>,
    /// It has to end, whether its peer takes what is queued or not: rung once.
    cut: Notify,
    is_cut: AtomicBool,
    made: Instant,
    /// Milliseconds from then to the last frame.
    heard_ms: AtomicU64,
}

impl Link {
    pub(crate) fn new(
        shared: Arc<Connections>,
        peer: SocketAddr,
        local: SocketAddr,
        outbox: Box<dyn Outbox>,
        remote_memory: Option<Arc<dyn RemoteMemory>>,
    ) -> Self {
        let credits_max = shared.limits.credits_max.min(UNAUTHENTICATED_CREDITS_MAX);
        let window = Mutex::new(Window::new(credits_max));
        let made = shared.clock.now();
        Self {
            shared,
            peer,
            local,
            agreed: OnceLock::new(),
            outbox,
            remote_memory,
            window,
            channels: Mutex::default(),
            ended: Mutex::default(),
            pending: Mutex::default(),
            gone: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            next_async: AtomicU64::new(1),
            account: Account::of_connection(),
            user: OnceLock::new(),
            guests: OnceLock::new(),
            is_crowded: AtomicBool::new(false),
            crowded: Mutex::default(),
            place: OnceLock::new(),
            cut: Notify::new(),
            is_cut: AtomicBool::new(false),
            made,
            heard_ms: AtomicU64::new(0),
        }
    }

    /// Sends a complete frame, its four-byte prefix in front, after whatever is queued.
    pub(crate) fn deliver(&self, parcel: impl Into<Parcel>) {
        self.outbox.deliver(parcel.into());
    }

    /// Sends a frame that nobody has asked for. A peer that lets too many of them lie loses the connection, and what it
    /// was told goes another way. Where several connections together have too many, the one with most of them ends.
    pub(crate) fn tell(&self, frame: Vec<u8>) {
        let Some(holder) = self.holder() else { return self.cut() };
        let whose = (&self.account, &holder);
        let room = Room::try_take(whose, Resource::Notices, 1);
        let room = room.or_else(|| {
            let of_connection = || Room::try_take_of_connection(whose, Resource::Notices, 1);
            self.cut_fullest(&holder).then(of_connection).flatten()
        });
        match room {
            Some(room) => self.deliver(Parcel { frame, room: Some(room) }),
            None => self.cut(),
        }
    }

    // Ends the connection with most notices of those that share the bound which is used up. False if it is this one.
    //
    // All connections are gone through once for each that ends, not for each notice: the one that was told to end is
    // taken for the fullest as long as it has more notices than this one.
    fn cut_fullest(&self, holder: &Account) -> bool {
        let what = Resource::Notices;
        if self.is_cut() || self.account.used_up(what).is_some() {
            return false;
        }
        // Some may have left meanwhile.
        let Some(used_up) = holder.used_up(what) else { return true };
        let held = self.account.held(what);
        if used_up.held_by_ending(what) > held {
            return true;
        }
        let mut links = self.shared.clients.all();
        links.retain(|link| link.holder().is_some_and(|holder| holder.is_of(used_up)));
        let count = |link: &Arc<Self>| link.account.held(what);
        let fullest = links.iter().max_by_key(|link| (count(link), link.is_cut()));
        let fullest = fullest.filter(|link| count(link) > held);
        used_up.set_ending(fullest.map_or(&self.account, |link| &link.account));
        fullest.inspect(|link| link.cut()).is_some()
    }

    fn is_cut(&self) -> bool {
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

    /// Computes a signature or seal that takes long, by a thread of its own for `whose`; `None` if `what` panics.
    /// What has begun goes to its end if nobody waits for it any more. It waits for others that compute, and for no disk.
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        whose: &Arc<Account>,
        what: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = Room::take((&self.account, whose), Resource::Protections, 1).await;
        let work = move || {
            let _turn = turn;
            work()
        };
        let computed = self.shared.runtime.spawn_blocking(work).await;
        computed.inspect_err(|_| self.note_panic(what)).ok()
    }

    /// Who a request is counted for whose session is not known yet: a user if any has logged on, else guests.
    pub(crate) fn holder(&self) -> Option<Arc<Account>> {
        self.user.get().or_else(|| self.guests.get()).cloned()
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
        let channels = self.channels.lock();
        let is_wanted = [Resource::Answers, Resource::Requests].into_iter().any(|what| {
            let is_wanted = |one: &Arc<Channel>| one.session.account.is_wanted(what);
            self.account.held(what) > 0 && channels.values().any(is_wanted)
        });
        is_wanted.then(|| self.account.held(Resource::Answers))
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

    /// Ends the connection from our side.
    pub(crate) fn close(&self) {
        self.outbox.close();
    }

    /// The peer's memory, where the transport can reach it.
    pub(crate) fn remote_memory(&self) -> Option<&Arc<dyn RemoteMemory>> {
        self.remote_memory.as_ref()
    }

    /// Longest answer but that of READ, and longest input but that of WRITE.
    pub(crate) fn transact_size_max(&self) -> u32 {
        if self.remote_memory.is_some() { DIRECT_TRANSACT_SIZE_MAX } else { TRANSACT_SIZE_MAX }
    }

    pub(crate) fn window(&self) -> MutexGuard<'_, Window, order::Connection> {
        self.window.lock()
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.agreed.get().map_or(Dialect(0), |agreed| agreed.dialect)
    }

    /// The session of that id, if it was set up on this connection.
    pub(crate) fn channel(&self, session_id: u64) -> Option<Arc<Channel>> {
        self.channels.lock().get(&session_id).cloned()
    }

    pub(crate) fn add_channel(&self, channel: Arc<Channel>) {
        // A guest has as much under way as a stranger.
        if !channel.session.identity.is_guest() {
            self.window().widen(self.shared.limits.credits_max);
        }
        let is_guest = channel.session.identity.is_guest();
        let holder = if is_guest { &self.guests } else { &self.user };
        let _ = holder.set(Arc::clone(&channel.session.account));
        self.channels.lock().insert(channel.session.id, channel);
    }

    pub(crate) fn remove_channel(&self, session_id: u64) -> Option<Arc<Channel>> {
        let channel = self.channels.lock().remove(&session_id)?;
        let mut ended = self.ended.lock();
        if ended.len() >= ENDED_MAX {
            ended.pop_front();
        }
        ended.push_back(Arc::clone(&channel));
        Some(channel)
    }

    /// A channel this connection had until its session ended.
    pub(crate) fn ended_channel(&self, session_id: u64) -> Option<Arc<Channel>> {
        let ended = self.ended.lock();
        ended.iter().rev().find(|channel| channel.session.id == session_id).cloned()
    }

    /// The sessions of this connection.
    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        self.channels.lock().values().map(|channel| Arc::clone(&channel.session)).collect()
    }

    /// Whether a session of this connection is that user's.
    pub(crate) fn is_of(&self, user: &Identity) -> bool {
        self.channels.lock().values().any(|channel| channel.session.identity == *user)
    }

    /// Whether somebody has proved here who it is, and is still logged on.
    pub(crate) fn has_user(&self) -> bool {
        self.channels.lock().values().any(|channel| !channel.session.identity.is_guest())
    }

    /// A user who has logged on over it; `None`: guests alone.
    pub(crate) fn first_user(&self) -> Option<String> {
        let channels = self.channels.lock();
        channels.values().find_map(|channel| match &channel.session.identity {
            Identity::User(name) => Some(name.to_string()),
            Identity::Guest { .. } => None,
        })
    }

    /// The sessions of guests.
    pub(crate) fn guest_count(&self) -> usize {
        let channels = self.channels.lock();
        channels.values().filter(|channel| channel.session.identity.is_guest()).count()
    }

    pub(crate) fn channel_count(&self) -> usize {
        self.channels.lock().len()
    }

    /// Takes all sessions away, when the connection has ended.
    pub(crate) fn take_channels(&self) -> Vec<Arc<Channel>> {
        self.ended.lock().clear();
        self.channels.lock().drain().map(|(_, channel)| channel).collect()
    }

    /// Notes that something came, for those who ask how long nothing has.
    pub(crate) fn hear(&self) {
        let since = self.shared.clock.now().saturating_duration_since(self.made).as_millis();
        self.heard_ms.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When something came last.
    pub(crate) fn last_heard(&self) -> Instant {
        self.made + Duration::from_millis(self.heard_ms.load(Ordering::Relaxed))
    }

    /// Requests that will be answered later.
    pub(crate) fn pending_count(&self) -> usize {
        self.pending.lock().len()
    }

    /// Notes that a request of a session will be answered later.
    pub(crate) fn add_pending(&self, message_id: u64, session_id: u64) -> Arc<Pending> {
        let pending = Arc::new(Pending::new(session_id));
        self.pending.lock().insert(message_id, Arc::clone(&pending));
        // Whoever let go of everything may not have seen it.
        if self.gone.load(Ordering::Acquire) {
            pending.cancel();
        }
        pending
    }

    pub(crate) fn remove_pending(&self, message_id: u64) {
        self.pending.lock().remove(&message_id);
    }

    /// A fresh async id, never 0.
    pub(crate) fn next_async_id(&self) -> u64 {
        self.next_async.fetch_add(1, Ordering::Relaxed)
    }

    /// CANCEL by message id: MS-SMB2 §3.3.5.16. Nothing is answered, found or not.
    pub(crate) fn cancel_message(&self, message_id: u64) {
        if let Some(pending) = self.pending.lock().get(&message_id) {
            pending.cancel();
        }
    }

    /// CANCEL by async id.
    pub(crate) fn cancel_async(&self, async_id: u64) {
        let matches = |pending: &&Arc<Pending>| {
            async_id != 0 && pending.async_id.load(Ordering::Acquire) == async_id
        };
        if let Some(pending) = self.pending.lock().values().find(matches) {
            pending.cancel();
        }
    }

    /// Counts a panic that was caught in work for the connection.
    pub(crate) fn note_panic(&self, place: &'static str) {
        self.shared.counters.note_panic(place);
    }

    /// Somebody has logged on over the connection: its client can be told of leases over it. The second call changes
    /// nothing.
    pub(crate) fn enlist(self: &Arc<Self>) {
        if let Some(agreed) = self.agreed.get() {
            self.shared.clients.add(agreed.client_guid, self);
        }
    }

    /// The connection has ended.
    pub(crate) fn delist(&self) {
        if let Some(agreed) = self.agreed.get() {
            self.shared.clients.remove(agreed.client_guid, self);
        }
    }

    /// The connections of a client that [have a user](Self::enlist), the oldest first.
    pub(crate) fn of_client(&self, client: [u8; 16]) -> Vec<Arc<Self>> {
        self.shared.clients.of(client)
    }

    /// Whether the connection has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Somebody is asked for caching over it. Who then finds it [gone](Self::is_gone) asks over
    /// another: its end may have missed this.
    pub(crate) fn note_asked(&self) {
        self.asked.store(true, Ordering::SeqCst);
    }

    /// Whether anybody ever was, when it has ended.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// Lets go of everything that waits, when the connection has ended.
    pub(crate) fn cancel_all(&self) {
        self.gone.store(true, Ordering::SeqCst);
        let pending = self.pending.lock();
        let ends = |pending: &&Arc<Pending>| !pending.outlives();
        pending.values().filter(ends).for_each(|pending| pending.cancel());
    }

    /// Lets go of everything that a session waits for, when it has ended.
    pub(crate) fn cancel_session(&self, session_id: u64) {
        let pending = self.pending.lock();
        // Those that outlive a connection look after their session themselves.
        let ends =
            |pending: &&Arc<Pending>| pending.session_id() == session_id && !pending.outlives();
        pending.values().filter(ends).for_each(|pending| pending.cancel());
    }
}

/// As long as a frame that is read with its neighbours (`transport/input.rs`), and what it costs.
const SHORT_REQUEST: usize = (32 << 10) + REQUEST_COST;
/// Keys of ended sessions a connection keeps: for the requests that were on their way.
const ENDED_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
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
