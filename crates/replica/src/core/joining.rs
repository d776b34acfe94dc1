//! How a source takes a member in: it compares orders, and decides from where the member goes on.

use log::Lsn;

use super::Core;
use super::event::Action;
use super::news::News;
use super::other::Link;
use super::source::SetTold;
use crate::dirty::DirtyMap;
use crate::format::{Extent, Position};
use crate::message::{Message, Peer, Refusal};
use crate::names::{History, MemberId};

/// A connection on which nothing follows yet.
#[derive(Debug)]
pub(super) struct Greeting {
    /// When the member was heard last.
    pub(super) heard: u64,
    /// The proposal that asks the witness whether the member, which may have taken over, is the source there.
    pub(super) asked: Option<u64>,
    /// It has said that this source is the one there.
    pub(super) is_agreed: bool,
    stage: Stage,
}

impl Greeting {
    /// Whether it is known from where the member goes on, and it is not told.
    pub(super) fn is_decided(&self) -> bool {
        matches!(self.stage, Stage::Noting(_))
    }

    /// Whether it gets copies, which make its volumes a mixture for a while.
    pub(super) fn gets_copies(&self) -> bool {
        matches!(self.stage, Stage::Noting(decision) if decision.copies)
    }

    /// Whether it is told from where the member goes on, and who was in sync then.
    pub(super) fn is_told(&self) -> bool {
        matches!(self.stage, Stage::Told(_))
    }
}

#[derive(Debug)]
enum Stage {
    /// Hello is sent.
    Greeted,
    /// What the member lacks is being stored.
    Noting(Decision),
    /// Follow is sent.
    Told(Decision),
}

/// From where a member goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Decision {
    from: Lsn,
    chain: u32,
    copies: bool,
}

/// What a member has.
#[derive(Debug)]
pub(super) struct Here {
    pub(super) history: History,
    pub(super) end: Lsn,
    /// Everything below this is in its volumes.
    pub(super) applied: Lsn,
    /// Everything that its volumes may hold is below this.
    pub(super) bound: Lsn,
    pub(super) is_consistent: bool,
    pub(super) recent: Recent,
}

/// What the records of a member's ring change, from an LSN on.
#[derive(Debug)]
pub(super) struct Recent {
    pub(super) from: Lsn,
    pub(super) changes: Vec<(Lsn, Extent)>,
}

impl Core {
    pub(super) fn greet(&mut self, peer: Peer) {
        let now = self.now;
        let hello = Message::Hello {
            group: self.config.group,
            history: self.label.history.clone(),
            volumes: self.config.volumes.clone(),
            capacity: self.config.capacity,
        };
        let has_failed = self.has_failed;
        let is_told = self.source().is_some_and(|source| {
            // Who follows a source that can make nothing durable takes it for one that lives.
            if has_failed || source.is_leaving() || !source.has_begun() {
                return false;
            }
            let other = source.peers.iter_mut().find(|other| other.member == peer.member);
            let Some(other) = other.filter(|other| other.connection().is_none()) else {
                return false;
            };
            let (asked, is_agreed, stage) = (None, false, Stage::Greeted);
            other.link = Link::Greeting(peer, Greeting { heard: now, asked, is_agreed, stage });
            true
        });
        match is_told {
            true => self.send(peer, hello),
            false => self.act(Action::Disconnect(peer)),
        }
    }

    pub(super) fn is_here(&mut self, peer: Peer, here: Here) {
        let greeted = self.source().and_then(|source| source.at(peer)).is_some_and(|other| {
            matches!(&other.link, Link::Greeting(_, Greeting { stage: Stage::Greeted, .. }))
        });
        if !greeted {
            self.act(Action::Disconnect(peer));
            return;
        }
        let decision = self.decide(peer.member, &here);
        if let Some(other) = self.source().and_then(|source| source.at(peer))
            && let Link::Greeting(_, greeting) = &mut other.link
        {
            greeting.stage = Stage::Noting(decision);
        }
        self.store_dirty_maps();
        self.go_on_greeting(peer.member);
    }

    /// What the member lacks goes into its map.
    fn decide(&mut self, member: MemberId, here: &Here) -> Decision {
        let (start, end) = (self.keeps_from(), self.order.end());
        let common = self.label.history.common(end, &here.history, here.end);
        let position = self.label.positions[usize::from(member.0)];
        let volumes = self.config.volumes.clone();
        // What it has in its volumes beyond the common order it knew to be committed, and the order has not. Without a
        // witness that needs no promotion by force: a source that goes on alone tells the members that it cannot reach
        // nothing of it, and one of them may be promoted because it was in sync.
        let strayed = common.is_some_and(|common| here.bound > common);
        // Whether the map says all that it lacks below the ring's start.
        let (has_map, is_mapped) = match (position, common) {
            (Position::Has(known), Some(common)) => (true, known <= common),
            (Position::Has(_), None) => (true, false),
            (Position::Unknown, _) => (false, false),
        };
        // From where on its own list has to say what it may lack: what it strayed to, and, where the ring goes on
        // behind what it has, what it has not applied.
        let skips = common.is_some_and(|common| common < start);
        let listed = match common {
            Some(_) if skips => Some(here.applied),
            Some(common) if strayed => Some(common),
            _ => None,
        };
        // Its volumes may hold what its ring has lost, and its list does not name: this source sends that again, another one
        // does not know of it.
        let has_forgotten = here.bound > here.end && !has_map;
        let is_known = !has_forgotten
            && common.is_some_and(|common| common >= start || is_mapped)
            && (here.is_consistent || has_map)
            && listed.is_none_or(|from| here.recent.from <= from);
        let from = match common {
            Some(common) if is_known => common.max(start),
            _ => end,
        };
        let chain = self.order.chain_at(from);
        let Some(other) = self
            .source()
            .and_then(|source| source.peers.iter_mut().find(|other| other.member == member))
        else {
            return Decision { from, chain: 0, copies: true };
        };
        if !is_known {
            other.dirty = DirtyMap::full(&volumes);
            other.compares = true;
            other.lacks_since_ns = Some(0);
        } else if !has_map {
            // It was never told of, and lacks nothing but what the ring has.
            other.dirty = DirtyMap::clean(&volumes);
        }
        if let Some(listed) = listed.filter(|_| is_known) {
            let lost = here.recent.changes.iter().filter(|(lsn, _)| *lsn >= listed);
            lost.for_each(|(_, extent)| other.dirty.mark(*extent));
        }
        if other.dirty.is_clean() {
            other.lacks_since_ns = None;
        } else {
            other.lacks_since_ns.get_or_insert(0);
        }
        let copies = !other.dirty.is_clean() || !here.is_consistent;
        // An order is cut between records: `from` is where one begins.
        let (from, chain) = match chain {
            Some(chain) => (from, chain),
            None => (end, self.order.chain()),
        };
        Decision { from, chain, copies }
    }

    /// What the member lacks is durable: it is told from where it goes on.
    pub(super) fn go_on_greeting(&mut self, member: MemberId) {
        let (stored, has_witness) = (self.maps_stored, self.config.has_witness);
        let Some(source) = self.source() else { return };
        let is_unseen = source.unseen.contains(member);
        let joins = source.change.as_ref().is_some_and(|it| it.members.contains(member));
        let is_confirmed = source.confirmed.contains(member) || joins;
        let Some(other) = source.peers.iter_mut().find(|other| other.member == member) else {
            return;
        };
        let is_stored = stored >= other.dirty_ordered;
        let Link::Greeting(peer, greeting) = &mut other.link else { return };
        let Stage::Noting(decision) = greeting.stage else { return };
        // Copies would make it a mixture, though it is the source at the witness, and nobody else can be: who was away in sync may
        // have been promoted there.
        let may_be_source = is_unseen || (is_confirmed && decision.copies);
        let is_doubted = has_witness && may_be_source && !greeting.is_agreed;
        if !is_stored || is_doubted {
            return;
        }
        greeting.stage = Stage::Told(decision);
        let peer = *peer;
        let SetTold { version, members } = source.told;
        let Decision { from, chain, copies } = decision;
        if from < self.keeps_from() {
            // The ring went on meanwhile: the member begins again.
            self.act(Action::Disconnect(peer));
            return;
        }
        let follow = Message::Follow {
            history: self.label.history.clone(),
            from,
            chain,
            committed: self.committed.min(from),
            in_sync: members,
            set_version: version,
            with_copies: copies,
            volumes: self.sizes_at(from),
        };
        self.send(peer, follow);
    }

    pub(super) fn is_following(&mut self, peer: Peer) {
        let start = self.keeps_from();
        let decision =
            self.source().and_then(|source| source.at(peer)).and_then(|other| match &other.link {
                Link::Greeting(_, Greeting { stage: Stage::Told(decision), .. }) => Some(*decision),
                _ => None,
            });
        match decision {
            Some(decision) if decision.from >= start => {
                self.label.positions[usize::from(peer.member.0)] = Position::Has(decision.from);
                self.begin_stream(peer, decision.from, decision.copies);
            }
            Some(_) => self.act(Action::Disconnect(peer)),
            None => {
                self.tell(News::Refused(peer.member, Refusal::OutOfOrder));
                self.act(Action::Disconnect(peer));
            }
        }
    }
}
