//! A source: it orders the writes, ships them, and says what is committed.

mod admission;
mod beginning;
mod stopping;

use log::Lsn;

pub use self::admission::{Admitted, Denied, Draft};

use super::event::Action;
use super::lease::Doubt;
use super::news::News;
use super::other::{Link, Other, Stream};
use super::{Core, Role};
use crate::core::Mode;
use crate::message::{ALIVE_EVERY_NS, Message, Peer, Refusal};
use crate::names::{Epoch, MemberId, MemberSet};

#[derive(Debug)]
pub(super) struct Source {
    pub(super) peers: Vec<Other>,
    /// Who is in sync: every acknowledged write is at all of them. As recorded everywhere.
    pub(super) confirmed: MemberSet,
    pub(super) change: Option<Change>,
    /// All others may know of it: its members are in the label that is stored here.
    pub(super) told: SetTold,
    pub(super) stage: Stage,
    /// In sync when this source started, and not seen since: they may have gone on under another source.
    pub(super) unseen: MemberSet,
    pub(super) handing_over: Option<HandOver>,
    pub(super) doubt: Doubt,
    /// A member that leads a newer epoch, or a wish: no more writes here.
    pub(super) is_stopping: bool,
    /// The wish of an operator is why, and nothing else.
    pub(super) is_demoted: bool,
    pub(super) told_too_few: bool,
    /// Operators were told that this source waits for them.
    pub(super) told_waits: MemberSet,
    pub(super) said_alive: u64,
    /// What the label will say once the witness agrees. Until then no label that is stored may say so.
    pub(super) begins: Option<Begins>,
}

/// How far a source has begun.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// The witness is asked whether the epoch may begin.
    Proposing(u64),
    /// The label with the epoch is being stored.
    Storing,
    /// What the ring held is being committed and applied.
    Recovering(Lsn),
    /// Writers may come.
    Ready,
    /// It is to be none any more, and its writers have ended.
    Stopped,
}

/// An epoch that is to begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begins {
    pub(super) epoch: Epoch,
    /// Acknowledged writes may be lost by it.
    pub(super) is_forced: bool,
    /// An operator wants it though the member may not be in sync: the witness lets that pass.
    pub(super) by_force: bool,
    pub(super) in_sync: MemberSet,
    /// The member was no source before, so what it knew of the others is of an earlier time.
    pub(super) is_promoted: bool,
}

/// The set in sync changes.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) before: MemberSet,
    pub(super) members: MemberSet,
    /// Of the set, in this epoch.
    pub(super) version: u64,
    /// Of the proposal.
    pub(super) number: u64,
    pub(super) step: Step,
    /// Who was told, and has not said that its label has the set.
    pub(super) waits_for: MemberSet,
}

/// How far a change of the set has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// The witness is asked.
    Asking,
    /// Since then those who leave store it.
    Telling(u64),
    /// This member stores it.
    Storing,
    /// It is stored here, and all are told; since then.
    Stored(u64),
}

/// What members may be told of who is in sync.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetTold {
    pub(super) version: u64,
    pub(super) members: MemberSet,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HandOver {
    pub(super) to: MemberId,
    pub(super) nonce: u64,
    /// The label that names it.
    pub(super) named: Option<u64>,
    /// When it was told.
    pub(super) told: Option<u64>,
}

impl Source {
    pub(super) fn peer_mut(&mut self, member: MemberId) -> Option<&mut Other> {
        self.peers.iter_mut().find(|other| other.member == member)
    }

    /// The member at the other end of a connection, if the connection is the one in use.
    pub(super) fn at(&mut self, peer: Peer) -> Option<&mut Other> {
        self.peers.iter_mut().find(|other| other.connection() == Some(peer))
    }

    pub(super) fn stream(&mut self, peer: Peer) -> Option<&mut Stream> {
        match &mut self.at(peer)?.link {
            Link::Streaming(stream) => Some(stream),
            Link::Down | Link::Greeting(..) => None,
        }
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = Peer> {
        self.peers.iter().filter_map(Other::connection)
    }

    /// Whether commits wait for the member.
    pub(super) fn counts(&self, other: &Other) -> bool {
        let changes = self.change.as_ref().is_some_and(|it| it.members.contains(other.member));
        let joins = matches!(&other.link, Link::Streaming(stream) if stream.joins);
        self.confirmed.contains(other.member) || changes || joins
    }

    /// How far the member lets commits go.
    pub(super) fn allows(other: &Other) -> Lsn {
        match &other.link {
            Link::Streaming(stream) => stream.allows(other.mode),
            Link::Down | Link::Greeting(..) => other.known,
        }
    }

    /// Whether it is to be a destination.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_stopping
    }

    /// Whether its epoch has begun.
    pub(super) fn has_begun(&self) -> bool {
        matches!(self.stage, Stage::Recovering(_) | Stage::Ready)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }
}

impl Core {
    pub(super) fn source(&mut self) -> Option<&mut Source> {
        match &mut self.role {
            Role::Source(source) => Some(source),
            Role::Destination(_) => None,
        }
    }

    /// Whether another member was told to take over, and may have done so: until it is heard of, or a witness has agreed that
    /// it is in sync no more, or the operator says that it is not the source.
    pub fn has_handed_over(&self) -> bool {
        match &self.role {
            Role::Source(source) => {
                let is_told = source.handing_over.is_some_and(|it| it.told.is_some());
                is_told || !source.unseen.is_empty()
            }
            Role::Destination(_) => false,
        }
    }

    /// Whether writers wait for another member: whoever sends to it holds up nobody who does not wait for it anyway.
    pub fn is_waited_for(&self, member: MemberId) -> bool {
        let Role::Source(source) = &self.role else { return false };
        let mut others = source.peers.iter().filter(|other| other.member == member);
        others.any(|other| other.mode != Mode::Async && source.counts(other))
    }

    /// At a source, the connections of the others that have every write that was answered.
    pub fn in_sync_peers(&self) -> Vec<Peer> {
        let Role::Source(source) = &self.role else { return Vec::new() };
        let others = source.peers.iter().filter(|other| source.confirmed.contains(other.member));
        others
            .filter(|it| !it.is_copying())
            .filter_map(|it| match &it.link {
                Link::Streaming(stream) => Some(stream.peer),
                Link::Down | Link::Greeting(..) => None,
            })
            .collect()
    }

    /// At a source, everything below is durable at the member that follows on a connection.
    pub fn durable_at(&self, peer: Peer) -> Option<Lsn> {
        let Role::Source(source) = &self.role else { return None };
        let streams = source.peers.iter().filter_map(|other| match &other.link {
            Link::Streaming(stream) => Some(stream),
            Link::Down | Link::Greeting(..) => None,
        });
        streams.into_iter().find(|stream| stream.peer == peer).map(|stream| stream.durable)
    }

    /// The epoch of this member, if it is a source.
    pub fn epoch(&self) -> Epoch {
        self.label.history.current()
    }

    pub(super) fn go_on_as_source(&mut self) {
        self.commit();
        self.recover();
        self.ship_all();
        self.copy_all();
        self.change_set();
        self.leave_suspended();
        self.hand_over();
        self.forget_hand_over();
        self.ask_for_leases();
        self.tell_for_whom_it_waits();
        self.settle_applied();
        if let Some(source) = self.source()
            && source.is_stopping
        {
            self.finish_stopping();
        }
    }

    pub(super) fn commit(&mut self) {
        let durable = self.order.durable();
        let committed = self.committed;
        let Some(source) = self.source() else { return };
        if !source.has_begun() || source.is_stopping {
            return;
        }
        let counting = source.peers.iter().filter(|other| source.counts(other));
        let to = counting.map(Source::allows).fold(durable, Lsn::min);
        if to > committed {
            self.committed = to;
            self.act(Action::Committed(to));
        }
    }

    pub(super) fn hear_as_source(&mut self, peer: Peer, message: Message) {
        let now = self.now;
        if let Message::Hello { history, .. } = &message {
            self.meet_another_source(peer, history.current());
            return;
        }
        let Some(source) = self.source() else { return };
        let Some(other) = source.at(peer) else { return };
        match &mut other.link {
            Link::Down => {}
            // What the witness takes long for is no silence of the member.
            Link::Greeting(_, greeting) => greeting.heard = now,
            Link::Streaming(stream) => stream.heard = now,
        }
        match message {
            Message::Here { history, end, applied, bound, is_consistent, recent, recent_from } => {
                let recent = super::joining::Recent { from: recent_from, changes: recent };
                let here =
                    super::joining::Here { history, end, applied, bound, is_consistent, recent };
                self.is_here(peer, here);
            }
            Message::Following => self.is_following(peer),
            Message::Durable { placed, to, applied, start } => {
                self.is_told_durable(peer, placed, to, applied, start);
            }
            Message::Copied { count } => self.copies_are_there(peer, count),
            Message::Stored { version } => self.set_is_known(peer, version),
            Message::Differs { lsn, extent } => self.differs(peer, lsn, extent),
            Message::Leased { asked, for_ns } => self.is_leased(peer, asked, for_ns),
            Message::Refused(refusal) => self.is_refused(peer, refusal),
            Message::Alive
            | Message::Digests { .. }
            | Message::Fetched { .. }
            | Message::Reserved { .. } => {}
            // What only sources say.
            _ => self.act(Action::Disconnect(peer)),
        }
    }

    fn is_refused(&mut self, peer: Peer, refusal: Refusal) {
        self.tell(News::Refused(peer.member, refusal));
        self.act(Action::Disconnect(peer));
        let ours = self.epoch().leads();
        let newer = match refusal {
            Refusal::OldEpoch { newest: epoch } | Refusal::IsSource(epoch) => epoch.leads() > ours,
            _ => false,
        };
        if newer {
            self.step_down();
        }
    }

    fn meet_another_source(&mut self, peer: Peer, theirs: Epoch) {
        let ours = self.epoch();
        if theirs.leads() > ours.leads() {
            self.step_down();
            // The other source greets again once this member is none.
            self.act(Action::Disconnect(peer));
        } else {
            self.send(peer, Message::Refused(Refusal::IsSource(ours)));
            self.act(Action::Disconnect(peer));
        }
    }

    pub(super) fn tick_as_source(&mut self) {
        let (now, silence) = (self.now, self.config.silence_ns);
        let Some(source) = self.source() else { return };
        let mut actions = Vec::new();
        let says = now.saturating_sub(source.said_alive) >= ALIVE_EVERY_NS;
        if says {
            source.said_alive = now;
        }
        for other in &mut source.peers {
            let (peer, heard) = match &other.link {
                Link::Down => continue,
                Link::Greeting(peer, greeting) => (*peer, greeting.heard),
                Link::Streaming(stream) => (stream.peer, stream.heard),
            };
            if now.saturating_sub(heard) > silence {
                actions.push(Action::Disconnect(peer));
            } else if says {
                actions.push(Action::Send(peer, Message::Alive));
            }
        }
        self.actions.append(&mut actions);
        let told = self.source().and_then(|source| source.handing_over).and_then(|it| it.told);
        if told.is_some_and(|told| now.saturating_sub(told) > silence) {
            self.has_not_taken_over();
        }
        self.leave_silent();
        self.store_dirty_maps();
    }

    pub(super) fn dirty_is_stored(&mut self, number: u64) {
        self.maps_stored = self.maps_stored.max(number);
        let Role::Source(source) = &self.role else { return };
        let members: Vec<MemberId> = source.peers.iter().map(|other| other.member).collect();
        members.into_iter().for_each(|member| self.go_on_greeting(member));
        self.maps_may_be_stored();
    }

    /// Orders the changed pages of all maps to be stored.
    pub(super) fn store_dirty_maps(&mut self) {
        let Role::Source(source) = &mut self.role else { return };
        let mut actions = Vec::new();
        for other in &mut source.peers {
            if other.dirty.take_changed() {
                self.maps_ordered += 1;
                other.dirty_ordered = self.maps_ordered;
                let (number, map) = (other.dirty_ordered, Box::new(other.dirty.clone()));
                actions.push(Action::StoreDirty { member: other.member, number, map });
            }
        }
        self.actions.append(&mut actions);
    }
}
