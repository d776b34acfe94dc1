//! Carries what goes to a member: messages, records from the ring, copies, in the order of their queue.
//!
//! ```text
//!   thread of the lane ---+
//!   writer, once placed --+--> claims --> sends what is queued --> lets go --> whoever comes next
//!   reader of a source ---+
//! ```
//! A thread that has made work for a member carries it itself if nobody else does: waking one that does costs more than sending.
//!
//! Who may wait for a socket: threads of lanes, and writers, whom nobody waits for but those who wait for the same members. A
//! reader may only on its own connection, and only if the other end dialed it. On every connection then the end that dialed
//! always reads, whatever its own buffers hold; so the other end can always send, so it reads again, so the first can
//! always send: no two members wait for each other. A reader that sent on the connection that it has dialed could meet one at
//! the other end that does the same, and both would wait for room that only they could make.
//!
//! Where there is a [`crate::one_sided::Channel`], records go by it. The carrier then looks for their ends too, and a writer looks until its own
//! record is committed: nobody has to be woken.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use log::Lsn;

use super::carrier::{Carrier, Way};
use super::carrying::Owed;
use super::hub::{Hub, State, Work};
use super::inner::Inner;
use crate::core::{Action, Event, Lane, News};
use crate::message::{Message, Peer};
use crate::names::{MemberId, MemberSet};
use crate::one_sided::OneSidedError;
use crate::wire::Sender;

/// How far a thread carries.
#[derive(Clone, Copy, Debug)]
enum Until {
    /// Until nothing is left.
    Done,
    /// Until the order is committed up to here.
    Committed(Lsn),
}

/// The thread of a member's lane.
pub(super) fn carry(inner: &Inner, member: MemberId) {
    while inner.hub.waits_to_carry(member) {
        let mut carrier = lock(inner, member);
        carrier.run(inner, member, Until::Done);
        let owed = carrier.owed();
        drop(carrier);
        inner.hub.has_carried(member, owed);
    }
}

/// Sends what is queued for members that the caller has claimed; what belongs to another connection than `only` stays. Gives
/// those for whom it goes on to carry: [`carry_until`].
pub(super) fn send_queued(inner: &Inner, members: MemberSet, only: Option<Peer>) -> MemberSet {
    let mut left = MemberSet::NONE;
    for member in members.iter() {
        let mut carrier = lock(inner, member);
        carrier.take_way(inner, member);
        carrier.send(inner, member, only, CARRIED_MAX);
        carrier.look(inner);
        let owed = carrier.owed();
        drop(carrier);
        match owed.is_under_way {
            true => left = left.with(member),
            false => inner.hub.has_carried(member, owed),
        }
    }
    left
}

/// Waits for the ends of what is under way to members that the caller has claimed, until the order is committed.
pub(super) fn carry_until(inner: &Inner, members: MemberSet, end: Lsn) {
    for member in members.iter() {
        let mut carrier = lock(inner, member);
        carrier.run(inner, member, Until::Committed(end));
        let owed = carrier.owed();
        drop(carrier);
        inner.hub.has_carried(member, owed);
    }
}

// Whoever has claimed has it to itself.
fn lock(inner: &Inner, member: MemberId) -> MutexGuard<'_, Carrier> {
    inner.carriers[usize::from(member.0)].lock().unwrap_or_else(PoisonError::into_inner)
}

impl Carrier {
    fn owed(&self) -> Owed {
        self.way.as_ref().map_or_else(Owed::default, |way| Owed {
            is_under_way: way.channel.under_way() > 0,
            is_untold: !way.untold.is_empty(),
            has_way: true,
        })
    }

    fn run(&mut self, inner: &Inner, member: MemberId, until: Until) {
        let began = Instant::now();
        loop {
            self.take_way(inner, member);
            let sent = self.send(inner, member, None, usize::MAX);
            let ended = self.look(inner);
            if let Until::Committed(end) = until
                && (inner.hub.committed() >= end || began.elapsed() > PATIENCE)
            {
                return;
            }
            if sent || ended {
                continue;
            }
            let is_done = self.way.as_ref().is_none_or(|way| way.channel.under_way() == 0);
            if is_done {
                if let Until::Done = until {
                    self.tell(inner);
                }
                return;
            }
            if let Some(way) = &mut self.way {
                way.channel.wait(LOOK_AGAIN);
            }
        }
    }

    /// Takes a new way to the member over, and lets go of one whose connection has ended.
    fn take_way(&mut self, inner: &Inner, member: MemberId) {
        if self.way.is_none() && !inner.has_ways() {
            return;
        }
        let hub = &inner.hub;
        let mut state = hub.lock();
        if let Some(way) = &self.way
            && state.links.get_mut(way.peer).is_none()
        {
            self.way = None;
            state.carrying.set_waker(member, None);
            state.carrying.holds(member, false);
        }
        let Some((peer, channel)) = state.ways.ready(member) else { return };
        if state.links.get_mut(peer).is_none() {
            return;
        }
        state.carrying.set_waker(member, Some(channel.waker()));
        let (epoch, told) = (state.core.epoch(), Lsn(0));
        let untold = VecDeque::new();
        self.way = Some(Way { peer, channel, is_used: false, epoch, untold, told });
    }

    /// Sends what is queued, so much at most. Whether there was anything.
    fn send(
        &mut self,
        inner: &Inner,
        member: MemberId,
        only: Option<Peer>,
        count_max: usize,
    ) -> bool {
        for count in 0..count_max {
            let mut state = inner.hub.lock();
            let Some(next) = self.next(&mut state, member, only) else { return count > 0 };
            drop(state);
            self.carry_out(inner, next);
        }
        true
    }

    /// What goes next, with the half of the connection by which it goes.
    fn next(&mut self, state: &mut State, member: MemberId, only: Option<Peer>) -> Option<Next> {
        let lane = Lane::Member(member);
        let first = Hub::first(state, lane)?;
        let peer = first.peer();
        if only.is_some() && only != peer {
            return None;
        }
        let ship = match first {
            Work::Order(Action::Ship { peer, from, .. }) => Some((*peer, *from)),
            _ => None,
        };
        if let (Some((peer, from)), Some(way)) = (ship, &mut self.way)
            && way.peer == peer
        {
            if !way.is_used {
                // What went by messages comes into the order there before what goes by the way.
                if state.core.durable_at(peer).is_none_or(|durable| durable < from) {
                    state.carrying.holds(member, true);
                    return None;
                }
                (way.is_used, way.told) = (true, from);
            }
            if !way.channel.has_room() {
                return None;
            }
        }
        let work = Hub::next_if(state, lane, |_| true)?;
        let work = with_more(state, work);
        let connected = peer.and_then(|peer| state.links.get_mut(peer));
        let sender = connected.map(|connected| Arc::clone(&connected.sender));
        Some(Next { work, sender })
    }

    fn carry_out(&mut self, inner: &Inner, Next { work, sender }: Next) {
        let hub = &inner.hub;
        match work {
            Work::Order(Action::Ship { peer, epoch, from, to, committed }) => {
                if let Some(way) = self.way.as_mut().filter(|way| way.peer == peer) {
                    way.epoch = epoch;
                    if let Err(error) = way.channel.write(from, to) {
                        self.way_ended(inner, &error);
                    }
                    return;
                }
                self.bytes.resize(usize::try_from(to.since(from)).expect("less than a ring"), 0);
                match inner.ring.read(from, &mut self.bytes) {
                    Ok(()) => {
                        let message = Message::Records { epoch, from, to, committed };
                        post(hub, peer, sender, &message, &self.bytes);
                        hub.step(Event::Shipped(peer, to));
                    }
                    Err(error) => {
                        tracing::error!(%error, "the ring cannot be read");
                        hub.step(Event::StorageFailed);
                    }
                }
            }
            Work::Order(Action::Send(peer, message)) => {
                // A message may speak of records that went the other way.
                self.tell(inner);
                post(hub, peer, sender, &message, &[]);
                if message == Message::Following {
                    // A connection that has ended may have taken the word of it along.
                    let differing = hub.lock().differing.all();
                    for (lsn, extent) in differing {
                        let message = Message::Differs { lsn, extent };
                        post(hub, peer, sender_of(hub, peer), &message, &[]);
                    }
                    inner.invite(peer, |invitation| {
                        post(hub, peer, sender_of(hub, peer), &invitation, &[])
                    });
                }
            }
            Work::Copy { peer, message, bytes } => {
                self.tell(inner);
                post(hub, peer, sender, &message, &bytes);
            }
            Work::Close(peer) => {
                if let Some(connected) = hub.lock().links.get_mut(peer) {
                    connected.close();
                }
            }
            Work::Order(_) | Work::Fetch { .. } => {}
        }
    }

    /// Looks for the ends of what is under way. Whether there were some.
    fn look(&mut self, inner: &Inner) -> bool {
        let Some(way) = &mut self.way else { return false };
        let before = way.untold.len();
        if let Err(error) = way.channel.poll(&mut way.untold) {
            self.way_ended(inner, &error);
            return true;
        }
        let (peer, told) = (way.peer, way.told);
        let Some(durable) = way.untold.back().copied().filter(|_| way.untold.len() > before) else {
            return false;
        };
        let mut state = inner.hub.lock();
        inner.hub.step_locked(&mut state, Event::Shipped(peer, durable));
        inner.hub.step_locked(&mut state, Event::DurableThere(peer, durable));
        drop(state);
        if durable.since(told) > TOLD_MAX {
            self.tell(inner);
        }
        true
    }

    /// Tells the member of the records that are in its ring.
    fn tell(&mut self, inner: &Inner) {
        let Some(way) = self.way.as_mut().filter(|way| !way.untold.is_empty()) else { return };
        let (peer, epoch, committed) = (way.peer, way.epoch, inner.hub.committed());
        let sender = sender_of(&inner.hub, peer);
        while let Some(mut to) = way.untold.pop_front() {
            while let Some(next) = way.untold.front()
                && next.since(way.told) <= TOLD_MAX
            {
                to = *next;
                way.untold.pop_front();
            }
            let from = std::mem::replace(&mut way.told, to);
            let message = Message::There { epoch, from, to, committed };
            post(&inner.hub, peer, sender.clone(), &message, &[]);
        }
    }

    // Records that may have come by it cannot be followed by others that come by messages: the connection ends, and what the
    // member has is found when it has.
    fn way_ended(&mut self, inner: &Inner, error: &OneSidedError) {
        let Some(way) = self.way.take() else { return };
        let (hub, peer) = (&inner.hub, way.peer);
        tracing::warn!(member = %peer.member, %error, "records go by RDMA no more");
        let mut state = hub.lock();
        state.carrying.set_waker(peer.member, None);
        state.ways.failed(peer.member, error.to_string());
        let is_open = state.links.get_mut(peer).map(|connected| connected.close()).is_some();
        if is_open {
            hub.note(&mut state, News::NotOneSided(peer.member));
        }
    }
}

/// What goes next.
struct Next {
    work: Work,
    sender: Option<Arc<Mutex<Sender>>>,
}

// Records that are to follow at once go together.
fn with_more(state: &mut State, work: Work) -> Work {
    let Work::Order(Action::Ship { peer, epoch, from, mut to, mut committed }) = work else {
        return work;
    };
    loop {
        let begins = to;
        let next = Hub::next_if(state, Lane::Member(peer.member), |work| {
            matches!(work, Work::Order(Action::Ship { peer: of, from: at, to, .. })
                if *of == peer && *at == begins && to.since(from) <= SHIPPED_MAX)
        });
        let Some(Work::Order(Action::Ship { to: end, committed: known, .. })) = next else {
            return Work::Order(Action::Ship { peer, epoch, from, to, committed });
        };
        (to, committed) = (end, committed.max(known));
    }
}

fn sender_of(hub: &Hub, peer: Peer) -> Option<Arc<Mutex<Sender>>> {
    hub.lock().links.get_mut(peer).map(|connected| Arc::clone(&connected.sender))
}

// Where it fails the connection is closed, and its reader says that it is lost.
fn post(
    hub: &Hub,
    peer: Peer,
    sender: Option<Arc<Mutex<Sender>>>,
    message: &Message,
    bytes: &[u8],
) {
    let Some(sender) = sender else { return };
    let mut sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
    let pieces: &[&[u8]] = if bytes.is_empty() { &[] } else { &[bytes] };
    if let Err(error) = sender.send(message, pieces) {
        tracing::debug!(member = %peer.member, %error, "nothing can be sent");
        if let Some(connected) = hub.lock().links.get_mut(peer) {
            connected.close();
        }
    }
}

/// Bytes of records that go together, where there are several.
const SHIPPED_MAX: u64 = 1 << 20;
/// Bytes of records in a member's ring of which it is told at once. What went together goes into one message, however long.
const TOLD_MAX: u64 = 1 << 20;
/// What a thread that is not the lane's carries at once.
const CARRIED_MAX: usize = 8;
/// How long a writer looks for the ends of operations before the lane's thread does.
const PATIENCE: Duration = Duration::from_millis(5);
/// A carrier that waits looks around after this.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
