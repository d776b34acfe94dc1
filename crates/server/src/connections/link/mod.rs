//! A connection as the rest of the server sees it: where its answers go, and what tasks that
//! work for it need to know.
//!
//! The transport owns the [`crate::dispatch::Connection`] and drives it; everybody else holds an
//! `Arc<Link>`.

mod agreed;
mod channels;
mod notices;
mod requests;
mod room;

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use basics::ordered::{Mutex, MutexGuard};
use smb::negotiate::Dialect;
use tokio::sync::Notify;

pub(crate) use self::agreed::Agreed;
pub(crate) use self::requests::async_id_of;
use super::Connections;
use super::outbox::{Outbox, Parcel, RemoteMemory};
use super::pending::Pending;
use super::session::Channel;
use super::window::Window;
use crate::limits::{DIRECT_TRANSACT_SIZE_MAX, TRANSACT_SIZE_MAX, UNAUTHENTICATED_CREDITS_MAX};
use crate::lock_order as order;
use crate::state::account::{Account, Hold, Room};
use crate::state::resource::Resource;

/// One of the parts of a connection that are locked by themselves.
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
    /// What its requests and answers hold.
    pub(crate) account: Arc<Account>,
    /// The first user who has logged on, and guests if any has.
    user: OnceLock<Arc<Account>>,
    guests: OnceLock<Arc<Account>>,
    /// Whose sessions have ended while it may hold something for them.
    past: Part<Vec<Arc<Account>>>,
    has_past: AtomicBool,
    /// A request is kept for which there was no room, and whose room that was.
    is_crowded: AtomicBool,
    crowded: Part<Option<Arc<Account>>>,
    /// Its place among the connections of the first user who has logged on over it.
    place: OnceLock<Hold>,
    /// It has to end, whether its peer takes what is queued or not: rung once.
    cut: Notify,
    is_cut: AtomicBool,
    /// The rest of a message of its peer comes slowly, or not at all.
    is_slow: AtomicBool,
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
            account: Account::of_connection(),
            user: OnceLock::new(),
            guests: OnceLock::new(),
            past: Mutex::default(),
            has_past: AtomicBool::new(false),
            is_crowded: AtomicBool::new(false),
            crowded: Mutex::default(),
            place: OnceLock::new(),
            cut: Notify::new(),
            is_cut: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
            made,
            heard_ms: AtomicU64::new(0),
        }
    }

    /// Sends a complete frame, its four-byte prefix in front, after whatever is queued.
    pub(crate) fn deliver(&self, parcel: impl Into<Parcel>) {
        self.outbox.deliver(parcel.into());
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

    /// Notes that something came at `now`, for those who ask how long nothing has.
    pub(crate) fn hear(&self, now: Instant) {
        let since = now.saturating_duration_since(self.made).as_millis();
        self.heard_ms.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.settle_past();
    }

    /// When something came last.
    pub(crate) fn last_heard(&self) -> Instant {
        self.made + Duration::from_millis(self.heard_ms.load(Ordering::Relaxed))
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
}
