//! The core of a member under one lock, with what it has ordered: whoever has something to say takes the lock, says it,
//! and puts the orders where the threads that carry them out find them.
//!
//! ```text
//!   any thread -- step(event) --> Core --> orders --+--> queue of a lane --> its thread --> step(answer)
//!                                                   +--> at once: writers go on, connections are closed, events are noted
//! ```
//! What is queued for one member goes out in this order, whoever queued it: copies and records are ordered by it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use basics::Environment;
use log::Lsn;

use super::carrying::{Carrying, Owed};
use super::connections::{Connected, Links};
use super::differing::Differing;
use super::events::Events;
use super::rpo::{Lag, Rpo};
use super::ways::Ways;
use super::writers::Writers;
use crate::core::{Action, Core, Event, Lane, News};
use crate::format::Extent;
use crate::message::{Message, Peer};
use crate::names::{MemberId, MemberSet};

/// See the module.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) environment: Environment,
    began: Instant,
    state: Mutex<State>,
    /// A bell for each lane that has a thread.
    bells: BTreeMap<Lane, Condvar>,
    /// Rings when a member may be dialed, and when everything ends.
    pub(super) dialers: Condvar,
    /// Everything below is committed; for writers, without the lock.
    pub(super) committed: AtomicU64,
    /// Which of the times at which this member was the source it is; 0 while it is not, and writers that are not committed
    /// fail.
    pub(super) tenure: AtomicU64,
    /// Bytes of each volume, as clients see them.
    pub(super) sizes: Vec<AtomicU64>,
    /// Another member may be the source by now: nobody reads until that is known.
    hands_over: AtomicBool,
    /// Nobody else can be the source before this moment of [`Hub::now`].
    reads_until: AtomicU64,
}

/// What the lock protects.
#[derive(Debug)]
pub(super) struct State {
    pub(super) core: Core,
    queues: BTreeMap<Lane, VecDeque<Work>>,
    /// Who carries what goes to which member.
    pub(super) carrying: Carrying,
    pub(super) links: Links,
    pub(super) ways: Ways,
    pub(super) writers: Writers,
    pub(super) events: Events,
    /// Copies that came and are not in their volumes yet, oldest first.
    pub(super) arrived: VecDeque<Arrived>,
    /// Ranges that were compared with what their source had, and those that differed.
    pub(super) verified: (u64, u64),
    /// What differs from what the source had, until the source copies it.
    pub(super) differing: Differing,
    /// The thread that has the lock makes the ring durable itself, once it has let go of it.
    persists: Persists,
    pub(super) lag: Lag,
    /// Threads that read from a connection.
    pub(super) readers: u64,
    /// Everything ends.
    pub(super) ends: bool,
}

/// Who makes the ring durable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Persists {
    /// Its thread.
    Queued,
    /// The thread that has the lock, if it turns out to be necessary.
    Here,
    /// The thread that has the lock.
    Asked(Lsn),
}

/// What a thread of a lane does next.
#[derive(Debug)]
pub(super) enum Work {
    /// What the core has ordered.
    Order(Action),
    /// Bytes of a volume go to a member, with the message that says what they are.
    Copy { peer: Peer, message: Message, bytes: Vec<u8> },
    /// A source wants bytes of a volume as they are once everything below an LSN is applied.
    Fetch { peer: Peer, at: Lsn, extent: Extent },
    /// Everything before has been sent: the connection ends.
    Close(Peer),
}

/// A copy that came.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) peer: Peer,
    pub(super) extent: Extent,
    /// Nothing where the range reads as zeroes.
    pub(super) bytes: Option<Vec<u8>>,
}

impl Work {
    /// The connection that it is about.
    pub(super) fn peer(&self) -> Option<Peer> {
        match self {
            Self::Order(
                Action::Send(peer, _) | Action::Ship { peer, .. } | Action::Copy { peer, .. },
            )
            | Self::Copy { peer, .. }
            | Self::Fetch { peer, .. }
            | Self::Close(peer) => Some(*peer),
            Self::Order(_) => None,
        }
    }
}

impl Hub {
    pub(super) fn new(
        environment: Environment,
        core: Core,
        others: &[MemberId],
        rpo: Option<Rpo>,
    ) -> Arc<Self> {
        let mut bells = BTreeMap::new();
        for lane in [Lane::Ring, Lane::Volumes, Lane::Label, Lane::Witness] {
            bells.insert(lane, Condvar::new());
        }
        for other in others {
            bells.insert(Lane::Member(*other), Condvar::new());
            bells.insert(Lane::Copies(*other), Condvar::new());
        }
        let queues = bells.keys().map(|lane| (*lane, VecDeque::new())).collect();
        let committed = core.committed();
        let sizes = core.sizes().iter().map(|size| AtomicU64::new(*size)).collect();
        let state = State {
            core,
            queues,
            carrying: Carrying::default(),
            links: Links::default(),
            ways: Ways::default(),
            writers: Writers::default(),
            events: Events::default(),
            arrived: VecDeque::new(),
            verified: (0, 0),
            differing: Differing::default(),
            persists: Persists::Queued,
            lag: Lag::new(rpo),
            readers: 0,
            ends: false,
        };
        let began = environment.clock.now();
        Arc::new(Self {
            environment,
            began,
            state: Mutex::new(state),
            bells,
            dialers: Condvar::new(),
            committed: AtomicU64::new(committed.0),
            tenure: AtomicU64::new(0),
            sizes,
            hands_over: AtomicBool::new(false),
            reads_until: AtomicU64::new(0),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds of a clock that never goes back.
    pub(super) fn now(&self) -> u64 {
        let passed = self.environment.clock.now().saturating_duration_since(self.began);
        u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Nanoseconds since 1970.
    pub(super) fn time_ns(&self) -> u64 {
        let since = self.environment.clock.time_of_day().duration_since(UNIX_EPOCH);
        u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Says what has happened.
    pub(super) fn step(&self, event: Event) {
        self.step_locked(&mut self.lock(), event);
    }

    /// [`Hub::step`] of a thread that makes the ring durable itself if that is to be done now: it would wait for it anyway.
    /// Gives from where to where.
    pub(super) fn step_for_persist(&self, state: &mut State, event: Event) -> Option<(Lsn, Lsn)> {
        state.persists = Persists::Here;
        self.step_locked(state, event);
        let persists = std::mem::replace(&mut state.persists, Persists::Queued);
        match persists {
            Persists::Asked(to) => Some((state.core.durable(), to)),
            Persists::Queued | Persists::Here => None,
        }
    }

    /// [`Hub::step_for_persist`] of a thread that also carries what that leaves for other members, as far as `may` says so and
    /// nobody else does: gives whom it has to carry for.
    pub(super) fn step_to_carry(
        &self,
        state: &mut State,
        event: Event,
        may: impl Fn(&Core, MemberId) -> bool,
    ) -> (Option<(Lsn, Lsn)>, MemberSet) {
        state.carrying.defers();
        let persists = self.step_for_persist(state, event);
        let mut taken = MemberSet::NONE;
        for member in state.carrying.deferred().iter() {
            match may(&state.core, member) && state.carrying.claims(member) {
                true => taken = taken.with(member),
                false => self.ring_for(state, member),
            }
        }
        (persists, taken)
    }

    /// Has what is queued for a member carried.
    fn ring_for(&self, state: &State, member: MemberId) {
        if !state.carrying.tells_carrier(member) {
            self.ring_bell(Lane::Member(member));
        }
    }

    /// Waits until something is to be carried to a member, and nobody does: the caller does. `false` once everything ends.
    pub(super) fn waits_to_carry(&self, member: MemberId) -> bool {
        let lane = Lane::Member(member);
        let mut state = self.lock();
        loop {
            if state.ends {
                return false;
            }
            let has_work = state.queues.get(&lane).is_some_and(|queue| !queue.is_empty());
            if state.carrying.is_due(member, has_work) && state.carrying.claims(member) {
                return true;
            }
            let bell = &self.bells[&lane];
            state = match state.carrying.patience(member) {
                None => bell.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    let waited = bell.wait_timeout(state, patience);
                    let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                    if waited.timed_out() {
                        state.carrying.time_passes(member);
                    }
                    state
                }
            };
        }
    }

    /// The caller carries no more; `owed` is what it leaves under way.
    pub(super) fn has_carried(&self, member: MemberId, owed: Owed) {
        let lane = Lane::Member(member);
        let mut state = self.lock();
        state.carrying.lets_go(member, owed);
        let has_work = state.queues.get(&lane).is_some_and(|queue| !queue.is_empty());
        if state.carrying.is_due(member, has_work) || state.carrying.is_watched_anew(member) {
            self.ring_bell(lane);
        }
    }

    /// [`Hub::step`] of a thread that has the lock.
    pub(super) fn step_locked(&self, state: &mut State, event: Event) {
        let actions = state.core.step(self.now(), event);
        // Before the message that says so can be sent: the lock is held.
        self.hands_over.store(state.core.has_handed_over(), Ordering::Release);
        self.reads_until.store(state.core.reads_until(), Ordering::Release);
        self.take(state, actions);
    }

    /// Puts orders where they are carried out.
    pub(super) fn take(&self, state: &mut State, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Disconnect(peer) => self.disconnect(state, peer),
                Action::Committed(to) => {
                    self.committed.store(to.0, Ordering::Release);
                    state.writers.wake_committed(to);
                }
                Action::Room => state.writers.wake_waiting(),
                Action::StartWriters => {
                    // What was committed here once may have been cut since.
                    self.committed.store(state.core.committed().0, Ordering::Release);
                    // What has grown under another source is applied by now.
                    for (size, of) in state.core.sizes().iter().zip(&self.sizes) {
                        of.store(*size, Ordering::Release);
                    }
                    state.writers.tenures += 1;
                    self.tenure.store(state.writers.tenures, Ordering::Release);
                    state.writers.wake_waiting();
                }
                Action::StopWriters => {
                    self.tenure.store(0, Ordering::Release);
                    state.writers.stop();
                    self.writers_may_have_stopped(state);
                }
                Action::Tell(news) => {
                    let time_ns = self.time_ns();
                    state.events.note(time_ns, news);
                    self.dialers.notify_all();
                }
                Action::Persist(to) if state.persists == Persists::Here => {
                    state.persists = Persists::Asked(to);
                }
                action => self.queue(state, action.lane(), Work::Order(action)),
            }
        }
    }

    /// Notes what operators are told.
    pub(super) fn note(&self, state: &mut State, news: News) {
        state.events.note(self.time_ns(), news);
    }

    /// Says so once no writer is about to write to a volume.
    pub(super) fn writers_may_have_stopped(&self, state: &mut State) {
        if state.writers.has_stopped() {
            self.step_locked(state, Event::WritersStopped);
        }
    }

    /// Queues work of a lane; nothing where no thread serves the lane.
    pub(super) fn queue(&self, state: &mut State, lane: Lane, work: Work) {
        if let (Some(queue), Some(bell)) = (state.queues.get_mut(&lane), self.bells.get(&lane)) {
            // Who takes nothing, and goes on to ask and to say that it is there, would fill the memory.
            let peer = work.peer().filter(|_| queue.len() >= QUEUED_MAX);
            if let Some(connected) = peer.and_then(|peer| state.links.get_mut(peer)) {
                tracing::warn!(
                    ?peer,
                    "a member takes nothing of what waits for it: its connection ends"
                );
                connected.close();
                return;
            }
            queue.push_back(work);
            match lane {
                Lane::Member(member) if state.carrying.is_deferred(member) => {}
                Lane::Member(member) => self.ring_for(state, member),
                // Others wait for what the thread of the lane does: one of them would take its wake-up away.
                _ => bell.notify_all(),
            }
        }
    }

    /// The work that is first in the queue of a lane.
    pub(super) fn first(state: &State, lane: Lane) -> Option<&Work> {
        state.queues.get(&lane)?.front()
    }

    /// The next work of a lane; `None` once everything ends.
    pub(super) fn next(&self, lane: Lane) -> Option<Work> {
        let bell = &self.bells[&lane];
        let mut state = self.lock();
        loop {
            if state.ends {
                return None;
            }
            if let Some(work) = state.queues.get_mut(&lane).and_then(VecDeque::pop_front) {
                return Some(work);
            }
            state = bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next work of a lane, if there is one now and it is of a kind.
    pub(super) fn next_if(
        state: &mut State,
        lane: Lane,
        is_it: impl FnOnce(&Work) -> bool,
    ) -> Option<Work> {
        let queue = state.queues.get_mut(&lane)?;
        if is_it(queue.front()?) { queue.pop_front() } else { None }
    }

    /// Waits until something of the lane may have changed.
    pub(super) fn wait<'a>(
        &self,
        lane: Lane,
        state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        let waited = self.bells[&lane].wait_timeout(state, PAUSE);
        waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state)
    }

    /// Has the thread of a lane look again.
    pub(super) fn ring_bell(&self, lane: Lane) {
        if let Some(bell) = self.bells.get(&lane) {
            bell.notify_all();
        }
    }

    // What was said before reaches the other end, if it takes it soon.
    fn disconnect(&self, state: &mut State, peer: Peer) {
        let lane = Lane::Member(peer.member);
        let has_more =
            state.queues.get(&lane).is_some_and(|it| it.iter().any(|of| of.peer() == Some(peer)));
        let limit = self.now() + LINGER_NS;
        let Some(connected) = state.links.get_mut(peer) else { return };
        // It is said again until the connection has ended: how long that may take counts from the first time.
        if std::mem::replace(&mut connected.is_ending, true) {
            return;
        }
        match has_more {
            true => {
                connected.closes_at = Some(limit);
                self.queue(state, lane, Work::Close(peer));
            }
            false => connected.close(),
        }
    }

    /// Takes a connection in, whose other end has proved who it is.
    pub(super) fn connected(&self, state: &mut State, connected: Connected, is_ours: bool) -> Peer {
        let peer = state.links.add(connected);
        let event = if is_ours { Event::Dialed(peer) } else { Event::Accepted(peer) };
        self.step_locked(state, event);
        peer
    }

    /// A connection has ended, and its reader with it.
    pub(super) fn lost(&self, peer: Peer) {
        let mut state = self.lock();
        let Some(mut connected) = state.links.remove(peer) else { return };
        connected.close();
        state.ways.lost(peer);
        state.carrying.holds(peer.member, false);
        for queue in state.queues.values_mut() {
            queue.retain(|work| work.peer() != Some(peer));
        }
        state.arrived.retain(|arrived| arrived.peer != peer);
        self.step_locked(&mut state, Event::Lost(peer));
        drop(state);
        self.ring_bell(Lane::Copies(peer.member));
        self.dialers.notify_all();
    }

    /// Time passes.
    pub(super) fn tick(&self) {
        let now = self.now();
        let mut state = self.lock();
        state.links.close_lingering(now);
        self.step_locked(&mut state, Event::Tick);
        let time_ns = self.time_ns();
        let State { core, lag, .. } = &mut *state;
        let (news, may_go_on) = lag.look(core, time_ns);
        news.into_iter().for_each(|news| state.events.note(time_ns, news));
        if may_go_on {
            state.writers.wake_waiting();
        }
    }

    /// Waits a while. Whether everything ends.
    pub(super) fn pauses_to_end(&self, pause: Duration) -> bool {
        let mut state = self.lock();
        if !state.ends {
            let waited = self.dialers.wait_timeout(state, pause);
            state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
        state.ends
    }

    /// Waits until nobody reads from a connection any more; they are closed.
    pub(super) fn wait_for_readers(&self) {
        let mut state = self.lock();
        while state.readers > 0 {
            state.links.close_all();
            let waited = self.dialers.wait_timeout(state, PAUSE);
            state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
    }

    /// Ends all threads.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.ends = true;
        self.tenure.store(0, Ordering::Release);
        state.writers.stop();
        state.links.close_all();
        drop(state);
        self.bells.values().for_each(Condvar::notify_all);
        self.dialers.notify_all();
    }

    /// Whether another member may be the source by now, for all that this one knows: what it has may be old.
    pub(super) fn may_be_old(&self) -> bool {
        // The clock is read after the lease: who is stopped in between finds it over.
        let until = self.reads_until.load(Ordering::Acquire);
        self.hands_over.load(Ordering::Acquire) || (until != u64::MAX && self.now() >= until)
    }

    /// See the field.
    pub(super) fn tenure(&self) -> u64 {
        self.tenure.load(Ordering::Acquire)
    }

    /// Everything below is committed.
    pub(super) fn committed(&self) -> Lsn {
        Lsn(self.committed.load(Ordering::Acquire))
    }
}

/// Messages, copies and orders to send records that wait for one member at most. Its connection ends with the next one.
const QUEUED_MAX: usize = 1 << 18;
/// How long what was said last may take to reach the other end.
const LINGER_NS: u64 = 500_000_000;
/// A thread that waits for the other end of a connection looks again after this.
const PAUSE: Duration = Duration::from_millis(200);
