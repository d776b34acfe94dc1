//! A source: it orders the writes, ships them, and says what is committed.

use log::Lsn;

use super::event::{Action, Denial, News, Wish};
use super::joining::Greeting;
use super::order::Entry;
use super::{AfterLabel, Core, Destination, Role};
use crate::core::Mode;
use crate::dirty::DirtyMap;
use crate::format::{
    Encoding, Extent, Kind, Label, PAYLOAD_MAX, RECORD_ALIGN, RECORD_HEADER_LEN, Record,
};
use crate::message::{ALIVE_EVERY_NS, Message, Peer, Refusal};
use crate::names::{Epoch, MemberId, MemberSet};

#[derive(Debug)]
pub(super) struct Source {
    pub(super) peers: Vec<Other>,
    /// Who is in sync: every acknowledged write is at all of them. As recorded everywhere.
    pub(super) confirmed: MemberSet,
    change: Option<Change>,
    /// Numbers proposals.
    proposals: u64,
    stage: Stage,
    /// In sync when this source started, and not seen since: they may have gone on under another source.
    unseen: MemberSet,
    handing_over: Option<HandOver>,
    /// A member that leads a newer epoch, or a wish: no more writes here.
    is_stopping: bool,
    told_too_few: bool,
    said_alive: u64,
    /// The label as it was before this source began, until its epoch has.
    before: Option<Box<Label>>,
}

/// How far a source has begun.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// The witness is asked whether the epoch may begin.
    Proposing(u64),
    /// The label with the epoch is being stored.
    Storing,
    /// What the ring held is being committed and applied.
    Recovering(Lsn),
    /// Writers may come.
    Ready,
}

/// The set in sync changes.
#[derive(Debug)]
struct Change {
    members: MemberSet,
    number: u64,
    is_taken: bool,
    is_stored: bool,
    /// Who has not said that its label has the set.
    waits_for: MemberSet,
}

#[derive(Clone, Copy, Debug)]
struct HandOver {
    to: MemberId,
    nonce: u64,
    is_told: bool,
}

/// Another member, as the source knows it.
#[derive(Debug)]
pub(super) struct Other {
    pub(super) member: MemberId,
    pub(super) mode: Mode,
    pub(super) link: Link,
    /// What it lacks.
    pub(super) dirty: DirtyMap,
    /// Its map differs from what is stored, or is being stored: the number of the last order to store it.
    pub(super) dirty_ordered: u64,
    pub(super) dirty_stored: u64,
    /// What it lacks is not known: copies are compared first.
    pub(super) compares: bool,
    /// Everything below was durable there when it was last heard of. Holds commits back while it is in sync.
    known: Lsn,
    is_suspended: bool,
}

#[derive(Debug)]
pub(super) enum Link {
    Down,
    /// Said hello, or decides.
    Greeting(Peer, Greeting),
    Streaming(Box<Stream>),
}

/// A member that follows.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) peer: Peer,
    /// Ordered to be sent.
    sent: Lsn,
    /// On its way: the driver reads below this no more.
    shipped: Lsn,
    placed: Lsn,
    durable: Lsn,
    pub(super) applied: Lsn,
    /// Oldest record of its ring, once it has said so.
    start: Option<Lsn>,
    told_committed: Lsn,
    copying: Option<Copying>,
    /// Commits wait for it already, and it is to be in sync.
    joins: bool,
    pub(super) heard: u64,
}

/// Copies under way to a member.
#[derive(Debug, Default)]
struct Copying {
    cursor: Option<Extent>,
    /// The driver is sending these.
    sending: Option<Extent>,
    /// Sent, and not known to be durable: the count of messages with which they are.
    outstanding: Vec<(Extent, u64)>,
    sent: u64,
}

/// A change that a writer wants to make.
#[derive(Clone, Copy, Debug)]
pub struct Draft {
    /// What it does.
    pub kind: Kind,
    /// How the payload is stored.
    pub encoding: Encoding,
    /// The volume.
    pub volume: u8,
    /// Bytes of the payload as stored.
    pub stored: u32,
    /// Where.
    pub offset: u64,
    /// How long.
    pub len: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
}

/// A change that has its place. The writer puts the records into the ring and says [`super::Event::Placed`] for each.
#[derive(Clone, Copy, Debug)]
pub struct Admitted {
    /// Fills what is left of the ring, and comes first.
    pub pad: Option<Record>,
    /// The change.
    pub record: Record,
}

/// A change that has no place.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Denied {
    /// The member is not the source.
    #[error("this member of the group is not the source")]
    NotSource,
    /// Not now: wait for [`Action::Room`].
    #[error("the ring is full, or too few members are in sync")]
    NotNow,
    /// Storage failed.
    #[error("the storage of this member failed")]
    Failed,
    /// A payload is longer than [`PAYLOAD_MAX`].
    #[error("the payload is too long")]
    TooLong,
}

impl Source {
    fn peer_mut(&mut self, member: MemberId) -> Option<&mut Other> {
        self.peers.iter_mut().find(|other| other.member == member)
    }

    /// The member at the other end of a connection, if the connection is the one in use.
    pub(super) fn at(&mut self, peer: Peer) -> Option<&mut Other> {
        self.peers.iter_mut().find(|other| other.connection() == Some(peer))
    }

    fn stream(&mut self, peer: Peer) -> Option<&mut Stream> {
        match &mut self.at(peer)?.link {
            Link::Streaming(stream) => Some(stream),
            Link::Down | Link::Greeting(..) => None,
        }
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = Peer> {
        self.peers.iter().filter_map(Other::connection)
    }

    /// Whether commits wait for the member.
    fn counts(&self, other: &Other) -> bool {
        let changes = self.change.as_ref().is_some_and(|it| it.members.contains(other.member));
        let joins = matches!(&other.link, Link::Streaming(stream) if stream.joins);
        self.confirmed.contains(other.member) || changes || joins
    }

    /// How far the member lets commits go.
    fn allows(other: &Other) -> Lsn {
        match (&other.link, other.mode) {
            (Link::Streaming(stream), Mode::SemiSync) => stream.placed,
            (Link::Streaming(stream), _) => stream.durable,
            _ => other.known,
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

impl Other {
    pub(super) fn connection(&self) -> Option<Peer> {
        match &self.link {
            Link::Down => None,
            Link::Greeting(peer, _) => Some(*peer),
            Link::Streaming(stream) => Some(stream.peer),
        }
    }

    /// Everything below is durable there, as far as is known.
    pub(super) fn known(&self) -> Lsn {
        match &self.link {
            Link::Streaming(stream) => stream.durable,
            Link::Down | Link::Greeting(..) => self.known,
        }
    }

    pub(super) fn is_copying(&self) -> bool {
        matches!(&self.link, Link::Streaming(stream) if stream.copying.is_some())
    }

    /// Ring space below is not read for it any more.
    pub(super) fn shipped(&self) -> Option<Lsn> {
        match &self.link {
            Link::Streaming(stream) if stream.sent > stream.shipped => Some(stream.shipped),
            _ => None,
        }
    }
}

impl Core {
    pub(super) fn source(&mut self) -> Option<&mut Source> {
        match &mut self.role {
            Role::Source(source) => Some(source),
            Role::Destination(_) => None,
        }
    }

    /// The member was the source when it stopped, and goes on as such. `nonce` is random.
    /// `above` is the newest epoch that the witness knows.
    pub fn resume_as_source(&mut self, now: u64, nonce: u64, above: Epoch) -> Vec<Action> {
        self.now = self.now.max(now);
        let me = MemberSet::of(self.config.me);
        // A witness has the set; alone is what every witness agrees to. Without one, those who were in sync may
        // have gone on under another source.
        let in_sync = match self.config.has_witness {
            true => me,
            false => MemberSet(self.label.in_sync.0 | me.0),
        };
        let unseen = in_sync.without(self.config.me);
        let Epoch { number, restart, .. } = self.label.history.current();
        let known = if above.number == number { above.restart } else { 0 };
        let epoch = Epoch { number, restart: restart.max(known) + 1, nonce };
        self.become_source(epoch, false, in_sync, unseen);
        self.go_on();
        std::mem::take(&mut self.actions)
    }

    /// Nothing is under way: no record comes, none is applied.
    pub(super) fn become_source(
        &mut self,
        epoch: Epoch,
        is_forced: bool,
        in_sync: MemberSet,
        unseen: MemberSet,
    ) {
        let dirty = match &mut self.role {
            Role::Destination(destination) => std::mem::take(&mut destination.dirty),
            Role::Source(_) => Vec::new(),
        };
        let clean = self.clean_map();
        let other = |(member, mode): &(MemberId, Mode)| Other {
            member: *member,
            mode: *mode,
            link: Link::Down,
            dirty: dirty
                .iter()
                .find(|(of, _)| of == member)
                .map_or_else(|| clean.clone(), |(_, map)| map.clone()),
            dirty_ordered: 0,
            dirty_stored: 0,
            compares: false,
            known: Lsn(0),
            is_suspended: false,
        };
        let peers = self.config.others.iter().map(other).collect();
        let before = Some(Box::new(self.label.clone()));
        self.begin_epoch(epoch, is_forced);
        self.label.in_sync = in_sync;
        self.label.set_version = 1;
        let number = 1;
        self.role = Role::Source(Box::new(Source {
            peers,
            confirmed: in_sync,
            change: None,
            proposals: number,
            stage: Stage::Proposing(number),
            unseen,
            handing_over: None,
            is_stopping: false,
            told_too_few: false,
            said_alive: 0,
            before,
        }));
        let source = self.config.me;
        self.act(Action::Propose { number, epoch, source, in_sync, set_version: 1 });
    }

    /// Gives a change its place in the order. `seal` is the checksum of the header of a record.
    ///
    /// # Errors
    ///
    /// See [`Denied`].
    pub fn submit(
        &mut self,
        draft: Draft,
        seal: impl Fn(&Record) -> u32,
    ) -> Result<Admitted, Denied> {
        if self.has_failed {
            return Err(Denied::Failed);
        }
        if draft.stored > PAYLOAD_MAX {
            return Err(Denied::TooLong);
        }
        let least = self.config.least_in_sync;
        let Role::Source(source) = &self.role else { return Err(Denied::NotSource) };
        if source.is_stopping {
            return Err(Denied::NotSource);
        }
        let is_open =
            source.is_ready() && source.handing_over.is_none() && source.confirmed.len() >= least;
        let span = (RECORD_HEADER_LEN + u64::from(draft.stored)).next_multiple_of(RECORD_ALIGN);
        let left = self.order.until_wrap();
        let pads = left < span;
        let wanted = if pads { left + span } else { span };
        if !is_open || !self.order.has_room(wanted) {
            return Err(Denied::NotNow);
        }
        let pad = pads.then(|| {
            let stored = u32::try_from(left - RECORD_HEADER_LEN).unwrap_or(u32::MAX);
            let nothing = Draft { kind: Kind::Pad, stored, offset: 0, len: 0, volume: 0, ..draft };
            self.append(Draft { encoding: Encoding::Plain, ..nothing }, &seal)
        });
        let record = self.append(draft, &seal);
        Ok(Admitted { pad, record })
    }

    fn append(&mut self, draft: Draft, seal: &impl Fn(&Record) -> u32) -> Record {
        let record = Record {
            lsn: self.order.end(),
            epoch: self.label.history.current().tag(),
            chain: self.order.chain(),
            kind: draft.kind,
            encoding: draft.encoding,
            volume: draft.volume,
            stored: draft.stored,
            offset: draft.offset,
            len: draft.len,
            time_ns: draft.time_ns,
            committed: self.committed,
        };
        self.order.push(Entry::of(&record, seal(&record)));
        record
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
        self.hand_over();
        self.settle_applied();
        if let Some(source) = self.source()
            && source.is_stopping
        {
            self.finish_stopping();
        }
    }

    fn commit(&mut self) {
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

    // What the ring held when the source began comes into the volumes from there: its writers are gone. Nobody reads
    // before those who were in sync have been heard: one of them may be the source by now, and have newer bytes.
    fn recover(&mut self) {
        let (committed, applied, applying) = (self.committed, self.applied, self.applying);
        let Some(source) = self.source() else { return };
        let Stage::Recovering(to) = source.stage else { return };
        if applied >= to && source.unseen.is_empty() {
            source.stage = Stage::Ready;
            self.act(Action::StartWriters);
            self.act(Action::Room);
            return;
        }
        if !applying && committed.min(to) > applied {
            self.applying = true;
            self.act(Action::Apply(applied, committed.min(to)));
        }
    }

    pub(super) fn is_proposed(&mut self, number: u64, is_taken: bool) {
        let Some(source) = self.source() else { return };
        if source.stage == Stage::Proposing(number) {
            if !is_taken {
                // No epoch has begun.
                if let Some(before) = source.before.take() {
                    self.label = Label { sequence: self.label.sequence, ..*before };
                }
                self.tell(News::Denied(Denial::WitnessDisagrees));
                self.step_down();
                return;
            }
            source.before = None;
            source.stage = Stage::Storing;
            self.store_label(AfterLabel::EpochBegun);
            return;
        }
        let Some(change) = source.change.as_mut().filter(|change| change.number == number) else {
            return;
        };
        if !is_taken {
            source.change = None;
            self.tell(News::Denied(Denial::WitnessDisagrees));
            self.step_down();
            return;
        }
        change.is_taken = true;
        let (members, version) = (change.members, self.label.set_version + 1);
        self.label.in_sync = members;
        self.label.set_version = version;
        let epoch = self.epoch();
        let Some(source) = self.source() else { return };
        let told: Vec<Peer> = source
            .peers
            .iter()
            .filter_map(|other| match &other.link {
                Link::Streaming(stream) => Some(stream.peer),
                Link::Down | Link::Greeting(..) => None,
            })
            .collect();
        if let Some(change) = &mut source.change {
            let waits_for = told.iter().fold(MemberSet::NONE, |set, peer| set.with(peer.member));
            change.waits_for = MemberSet(waits_for.0 & members.0);
        }
        for peer in told {
            self.send(peer, Message::InSync { epoch, version, members });
        }
        self.store_label(AfterLabel::SetStored);
    }

    pub(super) fn epoch_has_begun(&mut self) {
        let (end, epoch) = (self.order.end(), self.epoch());
        let Some(source) = self.source() else { return };
        if source.stage == Stage::Storing {
            source.stage = Stage::Recovering(end);
            self.tell(News::IsSource(epoch));
        }
    }

    pub(super) fn set_is_stored(&mut self) {
        if let Some(change) = self.source().and_then(|source| source.change.as_mut()) {
            change.is_stored = true;
        }
    }

    // Who is in sync changes one step at a time, and is recorded before it counts.
    fn change_set(&mut self) {
        self.finish_change();
        let (me, committed, end) = (self.config.me, self.committed, self.order.end());
        let (least, set_version) = (self.config.least_in_sync, self.label.set_version);
        let (epoch, has_witness) = (self.epoch(), self.config.has_witness);
        let Some(source) = self.source() else { return };
        if source.change.is_some() || source.is_stopping || !source.has_begun() {
            return;
        }
        let mut members = source.confirmed;
        for other in &mut source.peers {
            let is_confirmed = source.confirmed.contains(other.member);
            let follows = match &mut other.link {
                Link::Streaming(stream) if stream.copying.is_none() => {
                    let is_near = end.since(stream.durable) <= JOIN_WITHIN;
                    stream.joins = other.mode != Mode::Async
                        && !other.is_suspended
                        && (stream.joins || is_confirmed || is_near);
                    // A member that has lost what it had said to be durable is in sync no more.
                    stream.joins && stream.durable >= committed
                }
                _ => false,
            };
            let is_unseen = source.unseen.contains(other.member) && !has_witness;
            if follows {
                members = members.with(other.member);
            } else if is_confirmed && !is_unseen && other.is_over(committed) {
                members = members.without(other.member);
            }
        }
        debug_assert!(members.contains(me), "a source has what it has acknowledged");
        if members.len() < source.confirmed.len() && members.len() < least {
            members = MemberSet(members.0 | source.confirmed.0);
            if !std::mem::replace(&mut source.told_too_few, true) {
                self.tell(News::TooFewInSync);
            }
        } else if members == source.confirmed {
            source.told_too_few = false;
        }
        let Some(source) = self.source() else { return };
        if members == source.confirmed {
            return;
        }
        source.proposals += 1;
        let number = source.proposals;
        source.change = Some(Change {
            members,
            number,
            is_taken: false,
            is_stored: false,
            waits_for: MemberSet::NONE,
        });
        self.act(Action::Propose {
            number,
            epoch,
            source: me,
            in_sync: members,
            set_version: set_version + 1,
        });
    }

    fn finish_change(&mut self) {
        let Some(source) = self.source() else { return };
        let Some(change) = &source.change else { return };
        let gone = |member: MemberId| {
            !source
                .peers
                .iter()
                .any(|other| other.member == member && matches!(other.link, Link::Streaming(_)))
        };
        let is_done = change.is_taken && change.is_stored && change.waits_for.iter().all(gone);
        if !is_done {
            return;
        }
        let (before, after) = (source.confirmed, change.members);
        source.confirmed = after;
        source.change = None;
        for member in after.iter().filter(|member| !before.contains(*member)) {
            self.tell(News::InSync(member));
        }
        for member in before.iter().filter(|member| !after.contains(*member)) {
            self.tell(News::OutOfSync(member));
        }
        self.act(Action::Room);
        self.commit();
    }

    fn ship_all(&mut self) {
        let (window, capacity) = (self.config.window, self.order.capacity());
        let (placed, committed, epoch) = (self.order.placed(), self.committed, self.epoch());
        let mut actions = Vec::new();
        let Role::Source(source) = &mut self.role else { return };
        for other in &mut source.peers {
            let Link::Streaming(stream) = &mut other.link else { continue };
            let peer = stream.peer;
            let limit = placed
                .min(stream.durable.plus(window))
                .min(stream.start.map_or(stream.sent, |start| start.plus(capacity)));
            while stream.sent < limit {
                let to = self.order.piece(stream.sent, limit.min(stream.sent.plus(SHIP_MAX)));
                if to <= stream.sent || to > limit {
                    break;
                }
                let from = std::mem::replace(&mut stream.sent, to);
                stream.told_committed = committed;
                actions.push(Action::Ship { peer, epoch, from, to, committed });
            }
            if stream.told_committed < committed && stream.sent >= placed.min(limit) {
                stream.told_committed = committed;
                actions.push(Action::Send(peer, Message::Committed { epoch, to: committed }));
            }
        }
        self.actions.append(&mut actions);
    }

    fn copy_all(&mut self) {
        let (epoch, at, copy_window) = (self.epoch(), self.order.end(), self.config.copy_window);
        let mut actions = Vec::new();
        let Role::Source(source) = &mut self.role else { return };
        // Until then the volumes lack what the ring has.
        if !source.is_ready() {
            return;
        }
        for other in &mut source.peers {
            let Link::Streaming(stream) = &mut other.link else { continue };
            let (peer, member) = (stream.peer, other.member);
            let Some(copying) = &mut stream.copying else { continue };
            if copying.sending.is_some() {
                continue;
            }
            let under_way: u64 = copying.outstanding.iter().map(|(extent, _)| extent.len).sum();
            if under_way >= copy_window {
                continue;
            }
            if let Some(extent) = other.dirty.next(copying.cursor, COPY_MAX) {
                copying.cursor = Some(extent);
                copying.sending = Some(extent);
                actions.push(Action::Copy { peer, extent, compares: other.compares });
            } else if copying.outstanding.is_empty() {
                if !other.dirty.is_clean() {
                    // Marked again meanwhile.
                    copying.cursor = None;
                    continue;
                }
                stream.copying = None;
                other.compares = false;
                actions.push(Action::Send(peer, Message::Consistent { epoch, at }));
                actions.push(Action::Tell(News::CopyEnds(member)));
            }
        }
        self.actions.append(&mut actions);
    }

    pub(super) fn copies_are_sent(&mut self, peer: Peer, extent: Extent, count: u64) {
        let Some(other) = self.source().and_then(|source| source.at(peer)) else { return };
        let Link::Streaming(stream) = &mut other.link else { return };
        let Some(copying) = stream.copying.as_mut() else { return };
        if copying.sending != Some(extent) {
            return;
        }
        copying.sending = None;
        copying.sent += count;
        match count {
            0 => other.dirty.clear(extent),
            _ => copying.outstanding.push((extent, copying.sent)),
        }
    }

    fn copies_are_there(&mut self, peer: Peer, count: u64) {
        let Some(other) = self.source().and_then(|source| source.at(peer)) else { return };
        let Link::Streaming(stream) = &mut other.link else { return };
        let Some(copying) = stream.copying.as_mut() else { return };
        let there: Vec<Extent> = copying
            .outstanding
            .extract_if(.., |(_, with)| *with <= count)
            .map(|(extent, _)| extent)
            .collect();
        for extent in there {
            other.dirty.clear(extent);
        }
    }

    pub(super) fn is_shipped(&mut self, peer: Peer, to: Lsn) {
        if let Some(stream) = self.source().and_then(|source| source.stream(peer)) {
            stream.shipped = stream.shipped.max(to);
        }
    }

    pub(super) fn is_durable_there(&mut self, peer: Peer, to: Lsn) {
        let to = self.order.floor(to.min(self.order.placed()));
        if let Some(stream) = self.source().and_then(|source| source.stream(peer)) {
            stream.durable = stream.durable.max(to);
            stream.placed = stream.placed.max(stream.durable);
        }
    }

    /// Begins to send records from `from`.
    pub(super) fn begin_stream(&mut self, peer: Peer, from: Lsn, copies: bool) {
        let now = self.now;
        let Some(source) = self.source() else { return };
        source.unseen = source.unseen.without(peer.member);
        let Some(other) = source.at(peer) else { return };
        other.known = from;
        other.link = Link::Streaming(Box::new(Stream {
            peer,
            sent: from,
            shipped: from,
            placed: from,
            durable: from,
            applied: Lsn(0),
            start: None,
            told_committed: Lsn(0),
            copying: copies.then(Copying::default),
            joins: false,
            heard: now,
        }));
        let bytes = other.dirty.bytes();
        let news = match copies {
            true => News::CopyBegins(peer.member, bytes),
            false => News::Replays(peer.member),
        };
        self.tell(news);
    }

    pub(super) fn hear_as_source(&mut self, peer: Peer, message: Message) {
        let now = self.now;
        if let Message::Hello { history, .. } = &message {
            self.meet_another_source(peer, history.current(), message);
            return;
        }
        let Some(source) = self.source() else { return };
        if let Some(stream) = source.stream(peer) {
            stream.heard = now;
        } else if source.at(peer).is_none() {
            return;
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
            Message::Refused(refusal) => self.is_refused(peer, refusal),
            Message::Alive | Message::Digests { .. } => {}
            // What only sources say.
            _ => self.act(Action::Disconnect(peer)),
        }
    }

    fn is_told_durable(&mut self, peer: Peer, placed: Lsn, to: Lsn, applied: Lsn, start: Lsn) {
        let (placed, to) = (self.order.floor(placed), self.order.floor(to));
        let Some(stream) = self.source().and_then(|source| source.stream(peer)) else { return };
        // A member can have no more than was sent.
        if to > stream.sent || placed > stream.sent || start > to || applied > to {
            self.act(Action::Disconnect(peer));
            return;
        }
        stream.durable = stream.durable.max(to);
        stream.placed = stream.placed.max(placed).max(to);
        stream.applied = applied;
        stream.start = stream.start.max(Some(start));
    }

    fn set_is_known(&mut self, peer: Peer, version: u64) {
        let newest = self.label.set_version;
        let change = self.source().and_then(|source| source.change.as_mut());
        if let Some(change) = change.filter(|_| version == newest) {
            change.waits_for = change.waits_for.without(peer.member);
        }
    }

    fn differs(&mut self, peer: Peer, lsn: Lsn, extent: Extent) {
        self.tell(News::Differs(peer.member, lsn, extent));
        let Some(other) = self.source().and_then(|source| source.at(peer)) else { return };
        other.dirty.mark(extent);
        if let Link::Streaming(stream) = &mut other.link
            && stream.copying.is_none()
        {
            stream.copying = Some(Copying::default());
        }
    }

    fn is_refused(&mut self, peer: Peer, refusal: Refusal) {
        self.tell(News::Refused(peer.member, refusal));
        self.act(Action::Disconnect(peer));
        let rank = self.epoch().rank();
        let newer = match refusal {
            Refusal::OldEpoch { newest: epoch } | Refusal::IsSource(epoch) => epoch.rank() > rank,
            _ => false,
        };
        if newer {
            self.step_down();
        }
    }

    fn meet_another_source(&mut self, peer: Peer, theirs: Epoch, hello: Message) {
        let ours = self.epoch();
        if theirs.rank() > ours.rank() {
            self.step_down();
            if let Some(source) = self.source() {
                source.is_stopping = true;
            }
            // The other source greets again once this member is none.
            self.act(Action::Disconnect(peer));
            drop(hello);
        } else {
            self.send(peer, Message::Refused(Refusal::IsSource(ours)));
        }
    }

    pub(super) fn has_lost(&mut self, peer: Peer) {
        let Some(other) = self.source().and_then(|source| source.at(peer)) else { return };
        other.known = other.known();
        other.link = Link::Down;
    }

    /// No more writes here: what is committed is applied, then the member is a destination.
    pub(super) fn step_down(&mut self) {
        let Some(source) = self.source() else { return };
        if std::mem::replace(&mut source.is_stopping, true) {
            return;
        }
        let peers: Vec<Peer> = source.connections().collect();
        for peer in peers {
            self.act(Action::Disconnect(peer));
        }
        self.act(Action::StopWriters);
    }

    pub(super) fn writers_have_stopped(&mut self) {
        if let Some(source) = self.source()
            && source.is_stopping
        {
            // Writers that were committed are through; what they had not reported is applied again.
            source.stage = Stage::Storing;
            source.handing_over = None;
            source.change = None;
            source.proposals = u64::MAX;
        }
    }

    fn finish_stopping(&mut self) {
        let is_quiet = !self.applying
            && self.persisting.is_none()
            && self.checkpoint.is_idle()
            && self.order.placed() >= self.order.end();
        let (committed, end, epoch) = (self.committed, self.order.end(), self.epoch());
        let Some(source) = self.source() else { return };
        if source.proposals != u64::MAX || source.connections().next().is_some() {
            return;
        }
        // Records without a writer were never placed: they end the order.
        if !is_quiet {
            let placed = self.order.placed();
            if self.applying || self.persisting.is_some() || !self.checkpoint.is_idle() {
                return;
            }
            self.order.cut(placed);
        }
        let dirty = match &mut self.role {
            Role::Source(source) => {
                source.peers.drain(..).map(|other| (other.member, other.dirty)).collect()
            }
            Role::Destination(_) => return,
        };
        let bound = committed.max(self.replayed).min(end);
        self.label.bound = bound;
        self.applied_apart.clear();
        if std::mem::replace(&mut self.label.is_source, false) {
            // From here on another source may acknowledge what this member does not have.
            self.label.in_sync = MemberSet::NONE;
        }
        self.role = Role::Destination(Box::new(Destination::new(bound, dirty)));
        self.store_label(AfterLabel::Nothing);
        self.tell(News::IsDestination(epoch));
    }

    pub(super) fn wants_as_source(&mut self, wish: Wish) -> Result<(), Denial> {
        let full = DirtyMap::full(&self.config.volumes);
        let source = self.source().ok_or(Denial::NotSource)?;
        let member = match wish {
            Wish::Suspend(member)
            | Wish::Resume(member)
            | Wish::SetMode(member, _)
            | Wish::GoOnWithout(member)
            | Wish::Compare(member)
            | Wish::Reverse { to: member, .. } => member,
            Wish::Promote { .. } | Wish::Demote => return Err(Denial::IsSource),
        };
        let confirmed = source.confirmed;
        let is_changing = source.change.is_some() || source.handing_over.is_some();
        if let Wish::GoOnWithout(member) = wish {
            source.unseen = source.unseen.without(member);
        }
        let other = source.peer_mut(member).ok_or(Denial::NoSuchMember)?;
        let connection = other.connection();
        match wish {
            Wish::Suspend(_) => {
                other.is_suspended = true;
                if let Some(peer) = connection {
                    self.act(Action::Disconnect(peer));
                }
            }
            Wish::Resume(_) => other.is_suspended = false,
            Wish::SetMode(_, mode) => {
                other.mode = mode;
                let of = self.config.others.iter_mut().find(|(of, _)| *of == member);
                if let Some((_, configured)) = of {
                    *configured = mode;
                }
            }
            Wish::Compare(_) => {
                other.dirty = full;
                other.compares = true;
                if let Link::Streaming(stream) = &mut other.link {
                    stream.copying.get_or_insert_default();
                }
            }
            Wish::Reverse { to, nonce } => {
                if !confirmed.contains(to) {
                    return Err(Denial::NotInSync);
                }
                if is_changing {
                    return Err(Denial::Busy);
                }
                let source = self.source().ok_or(Denial::NotSource)?;
                source.handing_over = Some(HandOver { to, nonce, is_told: false });
            }
            Wish::GoOnWithout(_) | Wish::Promote { .. } | Wish::Demote => {}
        }
        Ok(())
    }

    /// Whether a member is suspended: the driver makes no connection to it then.
    pub fn is_suspended(&self, member: MemberId) -> bool {
        match &self.role {
            Role::Source(source) => {
                source.peers.iter().any(|other| other.member == member && other.is_suspended)
            }
            Role::Destination(_) => false,
        }
    }

    // Once everything is durable at the member that takes over, and nothing more comes, it is told.
    fn hand_over(&mut self) {
        let (end, epoch, applied) = (self.order.end(), self.epoch(), self.applied);
        let committed = self.committed;
        let Some(source) = self.source() else { return };
        let Some(HandOver { to, nonce, is_told: false }) = source.handing_over else { return };
        let is_confirmed = source.confirmed.contains(to);
        let Some(other) = source.peer_mut(to) else { return };
        let peer = match &other.link {
            Link::Streaming(stream)
                if stream.durable >= end && committed >= end && applied >= end =>
            {
                stream.peer
            }
            Link::Streaming(_) if is_confirmed => return,
            _ => {
                source.handing_over = None;
                self.tell(News::Denied(Denial::NotInSync));
                self.act(Action::Room);
                return;
            }
        };
        source.handing_over = Some(HandOver { to, nonce, is_told: true });
        // From here on it may be the source: nothing is acknowledged without it until it is heard of.
        source.unseen = source.unseen.with(to);
        let next = Epoch { number: epoch.number + 1, restart: 0, nonce };
        self.send(peer, Message::TakeOver { epoch, end, next });
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
                Link::Greeting(peer, greeting) => (*peer, greeting.since),
                Link::Streaming(stream) => (stream.peer, stream.heard),
            };
            if now.saturating_sub(heard) > silence {
                actions.push(Action::Disconnect(peer));
            } else if says {
                actions.push(Action::Send(peer, Message::Alive));
            }
        }
        // What is durable at a member that is not stopping may be told late: it takes over, or it does not.
        let was_told = source.handing_over.is_some_and(|it| it.is_told);
        if was_told && source.connections().next().is_none() {
            source.handing_over = None;
            actions.push(Action::Room);
        }
        self.actions.append(&mut actions);
        self.store_dirty_maps();
    }

    pub(super) fn dirty_is_stored(&mut self, member: MemberId, number: u64) {
        let Some(other) = self.source().and_then(|source| source.peer_mut(member)) else { return };
        other.dirty_stored = other.dirty_stored.max(number);
        self.go_on_greeting(member);
        self.maps_may_be_stored();
    }

    /// Orders the changed pages of all maps to be stored.
    pub(super) fn store_dirty_maps(&mut self) {
        let Role::Source(source) = &mut self.role else { return };
        let mut actions = Vec::new();
        for other in &mut source.peers {
            if other.dirty.take_changed() {
                other.dirty_ordered += 1;
                let (number, map) = (other.dirty_ordered, Box::new(other.dirty.clone()));
                actions.push(Action::StoreDirty { member: other.member, number, map });
            }
        }
        self.actions.append(&mut actions);
    }
}

impl Other {
    /// Whether a member that was in sync is so no more: it is gone, lacks what was committed, or is not to be waited for.
    fn is_over(&self, committed: Lsn) -> bool {
        match &self.link {
            Link::Down | Link::Greeting(..) => true,
            Link::Streaming(stream) => {
                stream.copying.is_some()
                    || self.mode == Mode::Async
                    || self.is_suspended
                    || stream.durable < committed
            }
        }
    }

    /// Whether nothing is kept in the ring for it.
    pub(super) fn is_out(&self) -> bool {
        self.is_suspended && self.known == Lsn(0)
    }
}

/// A member joins those in sync when it lacks at most so many bytes.
const JOIN_WITHIN: u64 = 1 << 20;
/// Bytes of records that are ordered to be sent at once, at most; a single record may be longer.
const SHIP_MAX: u64 = 1 << 20;
/// Bytes of one order to copy.
const COPY_MAX: u64 = 1 << 20;
