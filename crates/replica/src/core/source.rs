//! A source: it orders the writes, ships them, and says what is committed.

use log::Lsn;

use super::event::Action;
use super::lease::Doubt;
use super::news::News;
use super::order::Entry;
use super::other::{Link, Other, Stream};
use super::{AfterLabel, Core, Destination, Role, fit};
use crate::core::Mode;
use crate::format::{Encoding, Kind, PAYLOAD_MAX, RECORD_ALIGN, RECORD_HEADER_LEN, Record};
use crate::message::{ALIVE_EVERY_NS, Message, Peer, Refusal};
use crate::names::{Epoch, MemberId, MemberSet};

#[derive(Debug)]
pub(super) struct Source {
    pub(super) peers: Vec<Other>,
    /// Who is in sync: every acknowledged write is at all of them. As recorded everywhere.
    pub(super) confirmed: MemberSet,
    pub(super) change: Option<Change>,
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
    pub(super) members: MemberSet,
    pub(super) number: u64,
    pub(super) is_taken: bool,
    pub(super) is_stored: bool,
    /// Who has not said that its label has the set.
    pub(super) waits_for: MemberSet,
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
    /// A payload is longer than [`PAYLOAD_MAX`], or too long for the ring.
    #[error("the payload is too long")]
    TooLong,
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

    /// The member was the source when it stopped, and goes on as such. `nonce` is random.
    /// `above` is the newest epoch that the witness knows.
    pub fn resume_as_source(&mut self, now: u64, nonce: u64, above: Epoch) -> Vec<Action> {
        self.clock_goes_on(now);
        let me = MemberSet::of(self.config.me);
        // A witness has the set; alone is what every witness agrees to. Without one, those who were in sync may
        // have gone on under another source.
        let in_sync = match self.config.has_witness {
            true => me,
            // Who is no member any more, because an operator has taken it out of the group, is not waited for.
            false => {
                let handed = self.label.handed_to.map_or(MemberSet::NONE, MemberSet::of);
                let others = MemberSet(self.label.in_sync.0 | handed.0);
                MemberSet(others.0 & self.config.members().0 | me.0)
            }
        };
        let unseen = in_sync.without(self.config.me);
        let Epoch { number, restart, .. } = self.label.history.current();
        let known = if above.number == number { above.restart } else { 0 };
        let epoch = Epoch { number, restart: restart.max(known) + 1, nonce };
        let (is_forced, by_force, is_promoted) = (false, false, false);
        let begins = Begins { epoch, is_forced, by_force, in_sync, is_promoted };
        self.become_source(begins, unseen);
        self.go_on();
        std::mem::take(&mut self.actions)
    }

    /// Whether a member that was the source when it stopped can still be resumed, now: it follows nobody, is not being promoted,
    /// and nothing is under way.
    pub fn may_resume(&self) -> bool {
        let Role::Destination(destination) = &self.role else { return false };
        let is_free = destination.connection().is_none() && !destination.is_promoting();
        self.was_source() && is_free && self.is_quiet() && !self.has_failed
    }

    /// Asks the witness for an epoch. Nothing is under way: no record comes, none is applied.
    pub(super) fn become_source(&mut self, begins: Begins, unseen: MemberSet) {
        let Begins { epoch, in_sync, .. } = begins;
        let dirty = match &mut self.role {
            Role::Destination(destination) => std::mem::take(&mut destination.dirty),
            Role::Source(_) => Vec::new(),
        };
        let (clean, maps_ordered) = (self.clean_map(), self.maps_ordered);
        // Who is no member any more may have left its number to another one.
        self.label.suspended = MemberSet(self.label.suspended.0 & self.config.members().0);
        let suspended = self.label.suspended;
        let volumes = self.config.volumes.clone();
        let other = |(member, mode): &(MemberId, Mode)| {
            let dirty = dirty
                .iter()
                .find(|(of, _)| of == member)
                .map_or_else(|| clean.clone(), |(_, map)| map.clone());
            let mut dirty = dirty;
            fit(&mut dirty, &volumes);
            Other {
                member: *member,
                mode: *mode,
                link: Link::Down,
                lacks_since_ns: (!dirty.is_clean()).then_some(0),
                dirty,
                dirty_ordered: maps_ordered,
                compares: false,
                known: Lsn(0),
                is_suspended: suspended.contains(*member),
                leaves: false,
            }
        };
        let peers = self.config.others.iter().map(other).collect();
        self.knows_set = true;
        self.proposals += 1;
        let number = self.proposals;
        self.role = Role::Source(Box::new(Source {
            peers,
            confirmed: in_sync,
            change: None,
            stage: Stage::Proposing(number),
            unseen,
            handing_over: None,
            doubt: Doubt::default(),
            is_stopping: false,
            is_demoted: false,
            told_too_few: false,
            told_waits: MemberSet::NONE,
            said_alive: 0,
            begins: Some(begins),
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
        if draft.stored > PAYLOAD_MAX + draft.encoding.tag_len() {
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
        // Wherever it would begin, the ring has to have room for it once it is empty.
        if span > self.order.capacity() / 2 {
            return Err(Denied::TooLong);
        }
        let left = self.order.until_wrap();
        let pads = left < span;
        let wanted = if pads { left + span } else { span };
        if !is_open || !self.order.has_room(wanted) {
            return Err(Denied::NotNow);
        }
        let pad = pads.then(|| {
            let stored = u32::try_from(left - RECORD_HEADER_LEN).unwrap_or(u32::MAX);
            let nothing = Draft { kind: Kind::Pad, stored, offset: 0, len: 0, volume: 0, ..draft };
            let encoding = match draft.encoding.is_sealed() {
                true => Encoding::Sealed,
                false => Encoding::Plain,
            };
            self.append(Draft { encoding, ..nothing }, &seal)
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
        let entry = Entry::of(&record, seal(&record));
        self.order.push(entry);
        self.takes_size(&entry);
        record
    }

    /// Whether the epoch of a proposal is to begin by force, past what the witness would allow; `None` where nobody waits for
    /// the answer any more.
    pub fn is_by_force(&self, proposal: u64) -> Option<bool> {
        let Role::Source(source) = &self.role else { return None };
        if source.stage == Stage::Proposing(proposal) {
            return Some(source.begins.is_some_and(|begins| begins.by_force));
        }
        source.change.as_ref().filter(|change| change.number == proposal).map(|_| false)
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

    // An operator who waits for this source, or has promoted it, learns what it waits for.
    fn tell_for_whom_it_waits(&mut self) {
        let applied = self.applied;
        let Some(source) = self.source() else { return };
        let waits = match source.stage {
            Stage::Recovering(to) if applied < to => return,
            Stage::Recovering(_) | Stage::Ready if !source.is_stopping => source.waits_for(),
            _ => MemberSet::NONE,
        };
        let before = std::mem::replace(&mut source.told_waits, waits);
        for member in waits.iter().filter(|member| !before.contains(*member)) {
            self.tell(News::WaitsFor(member));
        }
    }

    pub(super) fn hear_as_source(&mut self, peer: Peer, message: Message) {
        let now = self.now;
        if let Message::Hello { history, .. } = &message {
            self.meet_another_source(peer, history.current());
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

    /// An operator wants this member to be the source no more.
    pub(super) fn demote(&mut self) {
        if let Some(source) = self.source() {
            source.is_demoted = !source.is_stopping;
        }
        self.stop();
    }

    /// No more writes here, because there may be another source: what is committed is applied, then the member is a
    /// destination.
    pub(super) fn step_down(&mut self) {
        if let Some(source) = self.source() {
            source.is_demoted = false;
        }
        self.stop();
    }

    fn stop(&mut self) {
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
            source.stage = Stage::Stopped;
            source.handing_over = None;
            source.change = None;
        }
    }

    fn finish_stopping(&mut self) {
        let is_quiet = !self.applying && self.persisting.is_none() && self.checkpoint.is_idle();
        let (committed, epoch, me) = (self.committed, self.epoch(), self.config.me);
        let Some(source) = self.source() else { return };
        if source.stage != Stage::Stopped || source.connections().next().is_some() || !is_quiet {
            return;
        }
        // Who was alone in sync has all that was ever answered, and stays the one that has.
        let stays_in_sync = source.is_demoted && source.confirmed == MemberSet::of(me);
        // Records that a writer did not place end the order.
        self.order.cut(self.order.placed());
        let end = self.order.end();
        let dirty = match &mut self.role {
            Role::Source(source) => {
                source.peers.drain(..).map(|other| (other.member, other.dirty)).collect()
            }
            Role::Destination(_) => return,
        };
        let bound = committed.max(self.replayed).min(end);
        self.label.bound = bound;
        // Writers wrote to their volumes in any order: until all of it is applied again they are a mixture.
        self.replayed = bound;
        self.applied_apart.clear();
        self.label.handed_to = None;
        if std::mem::replace(&mut self.label.is_source, false) && !stays_in_sync {
            // From here on another source may acknowledge what this member does not have.
            self.label.in_sync = MemberSet::NONE;
        }
        self.role = Role::Destination(Box::new(Destination::new(bound, dirty)));
        self.store_label(AfterLabel::Nothing);
        self.tell(News::IsDestination(epoch));
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
        self.actions.append(&mut actions);
        let told = self.source().and_then(|source| source.handing_over).and_then(|it| it.told);
        if told.is_some_and(|told| now.saturating_sub(told) > silence) {
            self.has_not_taken_over();
        }
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
