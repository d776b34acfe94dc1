//! A destination: it follows a source, keeps what comes, and applies what is committed.

use std::collections::VecDeque;

use log::Lsn;

use super::event::Action;
use super::news::News;
use super::order::Entry;
use super::promotion::Promotion;
use super::{AfterLabel, Core, Role};
use crate::core::Mode;
use crate::dirty::DirtyMap;
use crate::format::{Contents, Extent};
use crate::message::{ALIVE_EVERY_NS, EXTENTS_MAX, Message, Peer, Refusal};
use crate::names::{Epoch, MemberId, MemberSet};

#[derive(Debug)]
pub(super) struct Destination {
    /// The connection that counts, and what is known of the other end.
    source: Option<Following>,
    /// Everything that the volumes may hold is below this.
    bound: Lsn,
    /// Everything below is known to be committed, and will be known after a crash: it may be applied.
    known: Lsn,
    /// The label is being stored because of that.
    is_noting: bool,
    /// Copies that wait for records before them.
    copies: VecDeque<(Lsn, Extent)>,
    is_putting: bool,
    put: u64,
    put_durable: u64,
    is_flushing_copies: bool,
    /// What the source was told last.
    told: (Lsn, Lsn, Lsn, Lsn),
    pub(super) promotion: Option<Promotion>,
    said_alive: u64,
    /// Maps of the others, from when this member was the source.
    pub(super) dirty: Vec<(MemberId, DirtyMap)>,
}

#[derive(Debug)]
struct Following {
    peer: Peer,
    stage: Stage,
    heard: u64,
    /// Records of this connection are on their way into the ring.
    is_receiving: bool,
}

#[derive(Debug)]
enum Stage {
    /// It greeted, and gets its answer once nothing is under way here.
    Greeted,
    Answered,
    /// It said from where to go on; that is done once nothing is under way here.
    Told(Box<Told>),
    /// The volumes are being made durable first, and a snapshot is taken.
    Keeping(Box<Told>),
    /// The label is being stored.
    Cutting(Epoch),
    Streaming(Epoch),
}

#[derive(Debug)]
struct Told {
    history: crate::names::History,
    from: Lsn,
    chain: u32,
    committed: Lsn,
    in_sync: MemberSet,
    set_version: u64,
    with_copies: bool,
    volumes: Vec<u64>,
}

impl Destination {
    pub(super) fn new(bound: Lsn, dirty: Vec<(MemberId, DirtyMap)>) -> Self {
        Self {
            source: None,
            bound,
            known: Lsn(0),
            is_noting: false,
            copies: VecDeque::new(),
            is_putting: false,
            put: 0,
            put_durable: 0,
            is_flushing_copies: false,
            told: (Lsn(0), Lsn(0), Lsn(0), Lsn(0)),
            promotion: None,
            said_alive: 0,
            dirty,
        }
    }

    pub(super) fn connection(&self) -> Option<Peer> {
        self.source.as_ref().map(|source| source.peer)
    }

    /// Whether a source sends records to it.
    pub(super) fn is_streaming(&self) -> bool {
        self.source.as_ref().is_some_and(|it| matches!(it.stage, Stage::Streaming(_)))
    }

    pub(super) fn is_promoting(&self) -> bool {
        self.promotion.is_some()
    }
}

impl Core {
    pub(super) fn destination(&mut self) -> Option<&mut Destination> {
        match &mut self.role {
            Role::Destination(destination) => Some(destination),
            Role::Source(_) => None,
        }
    }

    /// At a destination, everything that its volumes may hold is below this.
    pub fn bound(&self) -> Option<Lsn> {
        match &self.role {
            Role::Destination(destination) => Some(destination.bound.max(self.applied)),
            Role::Source(_) => None,
        }
    }

    /// At a destination, the connection of its source.
    pub fn source_connection(&self) -> Option<Peer> {
        match &self.role {
            Role::Destination(destination) => destination.connection(),
            Role::Source(_) => None,
        }
    }

    /// At a destination that stays one, the connection on which its source sends records.
    pub fn streaming_from(&self) -> Option<Peer> {
        match &self.role {
            Role::Destination(destination) if !destination.is_promoting() => {
                destination.connection().filter(|_| destination.is_streaming())
            }
            _ => None,
        }
    }

    /// The connection in use, if it is this one.
    fn following(&mut self, peer: Peer) -> Option<&mut Following> {
        self.destination()?.source.as_mut().filter(|source| source.peer == peer)
    }

    pub(super) fn send_to_source(&mut self, peer: Peer, message: Message) {
        if self.following(peer).is_some() {
            self.send(peer, message);
        }
    }

    pub(super) fn hear_as_destination(&mut self, peer: Peer, message: Message) {
        let now = self.now;
        if let Message::Hello { .. } = message {
            self.hear_hello(peer, message);
            return;
        }
        let Some(following) = self.following(peer) else {
            self.act(Action::Disconnect(peer));
            return;
        };
        following.heard = now;
        let streams = match following.stage {
            Stage::Streaming(epoch) => Some(epoch),
            _ => None,
        };
        match message {
            Message::Follow {
                history,
                from,
                chain,
                committed,
                in_sync,
                set_version,
                with_copies,
                volumes,
            } => {
                let told = Told {
                    history,
                    from,
                    chain,
                    committed,
                    in_sync,
                    set_version,
                    with_copies,
                    volumes,
                };
                self.hear_follow(peer, told);
            }
            Message::Committed { epoch, to } if streams == Some(epoch) => self.hear_committed(to),
            Message::Copy { epoch, at, extent, .. } if streams == Some(epoch) => {
                self.hear_copy(peer, at, extent);
            }
            Message::Consistent { epoch, at } if streams == Some(epoch) => self.hear_consistent(at),
            Message::InSync { epoch, version, members } if streams == Some(epoch) => {
                self.hear_in_sync(peer, version, members);
            }
            Message::TakeOver { epoch, end, next } if streams == Some(epoch) => {
                self.hear_take_over(end, next);
            }
            Message::Lease { epoch, asked, for_ns } if streams == Some(epoch) => {
                self.hear_lease(peer, asked, for_ns);
            }
            // Whoever carries the connection answers with digests.
            Message::Compare { epoch, .. }
            | Message::Fetch { epoch, .. }
            | Message::Reserve { epoch, .. }
                if streams == Some(epoch) => {}
            Message::Alive => {}
            _ => {
                self.send(peer, Message::Refused(Refusal::OutOfOrder));
                self.act(Action::Disconnect(peer));
            }
        }
    }

    fn hear_hello(&mut self, peer: Peer, hello: Message) {
        let Message::Hello { group, history, volumes, capacity } = hello else { return };
        let newest = self.label.history.current();
        let theirs = history.current();
        let refusal = if group != self.config.group {
            Some(Refusal::OtherGroup(self.config.group))
        } else if capacity != self.config.capacity {
            Some(Refusal::OtherCapacity(self.config.capacity))
        } else if theirs.leads() < newest.leads() {
            Some(Refusal::OldEpoch { newest })
        } else if self.has_failed {
            Some(Refusal::Failed)
        } else {
            self.other_volume(&volumes)
        };
        if let Some(refusal) = refusal {
            self.send(peer, Message::Refused(refusal));
            self.act(Action::Disconnect(peer));
            return;
        }
        let now = self.now;
        let Some(destination) = self.destination() else { return };
        if destination.promotion.is_some() {
            self.act(Action::Disconnect(peer));
            return;
        }
        // An earlier connection may still be putting records into the ring: it ends first, and the source dials again.
        if let Some(before) = destination.connection() {
            self.act(Action::Disconnect(before));
            if before != peer {
                self.act(Action::Disconnect(peer));
            }
            return;
        }
        destination.source =
            Some(Following { peer, stage: Stage::Greeted, heard: now, is_receiving: false });
    }

    fn other_volume(&self, volumes: &[u64]) -> Option<Refusal> {
        let ours = &self.config.volumes;
        let count = volumes.len().max(ours.len());
        (0..count).find_map(|at| {
            let (size, wanted) = (ours.get(at).copied(), volumes.get(at).copied());
            let volume = u8::try_from(at).unwrap_or(u8::MAX);
            // Whoever carries the connection has seen to it that a volume which is longer there fits in here.
            (size.is_none() || wanted.is_none())
                .then(|| Refusal::OtherVolume { volume, size: size.unwrap_or_default() })
        })
    }

    /// Whether nothing is under way by which the order of this member changes.
    pub(super) fn is_quiet(&self) -> bool {
        let Role::Destination(destination) = &self.role else { return false };
        !self.applying
            && self.persisting.is_none()
            && self.checkpoint.is_idle()
            && !destination.is_putting
            && !destination.is_flushing_copies
            && !destination.source.as_ref().is_some_and(|source| source.is_receiving)
            && self.order.durable() >= self.order.end()
    }

    pub(super) fn go_on_as_destination(&mut self) {
        self.answer_hello();
        self.follow();
        self.apply();
        self.put_copies();
        self.report();
        self.go_on_promoting();
    }

    fn answer_hello(&mut self) {
        if !self.is_quiet() {
            return;
        }
        let (end, is_consistent) = (self.order.end(), self.has_whole_copy());
        let history = self.label.history.clone();
        let Some(destination) = self.destination() else { return };
        let bound = destination.bound;
        let Some(following) = destination.source.as_mut() else { return };
        let Stage::Greeted = following.stage else { return };
        following.stage = Stage::Answered;
        let peer = following.peer;
        let start = self.order.start();
        let changes: Vec<(Lsn, Extent)> = self
            .order
            .range(start, end)
            .filter_map(|entry| entry.extent.map(|extent| (entry.lsn, extent)))
            .collect();
        let left_out = changes.len().saturating_sub(EXTENTS_MAX);
        let recent_from = match left_out {
            0 => start,
            _ => changes[left_out].0,
        };
        let recent = changes[left_out..].to_vec();
        let applied = self.applied;
        self.send(
            peer,
            Message::Here { history, end, applied, bound, is_consistent, recent, recent_from },
        );
    }

    fn hear_follow(&mut self, peer: Peer, told: Told) {
        let volumes = self.config.volumes.len();
        let Some(following) = self.following(peer) else { return };
        let is_whole = told.volumes.len() == volumes;
        if let (Stage::Answered, true) = (&following.stage, is_whole) {
            following.stage = Stage::Told(Box::new(told));
        } else {
            self.send(peer, Message::Refused(Refusal::OutOfOrder));
            self.act(Action::Disconnect(peer));
        }
    }

    // Cuts the order where the source says, once nothing is under way.
    fn follow(&mut self) {
        if !self.is_quiet() {
            return;
        }
        let contents = self.label.contents;
        let Some(following) = self.destination().and_then(|it| it.source.as_mut()) else { return };
        let Stage::Told(told) = &following.stage else { return };
        let (from, chain) = (told.from, told.chain);
        // A ring that begins anew forgets records that the volumes have, and may lose in a crash: they are made durable first.
        if !self.goes_on(from, chain) && self.flush_applied() {
            return;
        }
        let Some(following) = self.destination().and_then(|it| it.source.as_mut()) else { return };
        let Stage::Told(told) = std::mem::replace(&mut following.stage, Stage::Answered) else {
            return;
        };
        if told.with_copies {
            following.stage = Stage::Keeping(told);
            self.act(Action::TakeSnapshot { is_first: contents == Contents::Consistent });
            return;
        }
        self.cut(*told);
    }

    pub(super) fn snapshot_is_taken(&mut self) {
        let Some(following) = self.destination().and_then(|it| it.source.as_mut()) else { return };
        if !matches!(following.stage, Stage::Keeping(_)) {
            return;
        }
        if let Stage::Keeping(told) = std::mem::replace(&mut following.stage, Stage::Answered) {
            self.cut(*told);
        }
    }

    // Whether what the source sends from there on follows what this ring has.
    fn goes_on(&self, from: Lsn, chain: u32) -> bool {
        (self.order.start()..=self.order.end()).contains(&from)
            && self.order.chain_at(from) == Some(chain)
    }

    fn cut(&mut self, told: Told) {
        let Told { history, from, chain, committed, in_sync, set_version, with_copies, volumes } =
            told;
        let (start, end) = (self.order.start(), self.order.end());
        let (applied, bound) = (self.applied, self.bound().unwrap_or_default());
        if from < end && from >= start {
            self.tell(News::Cut(from));
            self.order.cut(from);
        }
        let fits = self.order.end() == from && self.order.chain() == chain;
        if !fits {
            self.order.reset(from, chain);
            self.label.start = from;
            self.label.start_chain = chain;
            volumes.iter().zip(&mut self.label.sizes).for_each(|(size, of)| *of = *size);
        }
        // What of a volume was cut, though it had grown here, is no part of it any more.
        self.config.volumes = volumes;
        // Below `from` everything is there, or will be copied.
        self.applied = if fits { self.applied.min(from) } else { from };
        self.committed = self.committed.max(committed).max(self.applied).min(from);
        // What the ring has lost, and the volumes may hold, no list named to the source: it is replaced once all of it has come
        // again.
        let has_forgotten = bound > end && applied < bound;
        if !has_forgotten {
            self.replayed = self.replayed.min(from);
        }
        if with_copies {
            self.label.contents = Contents::Mixed;
        }
        self.knows_set = true;
        let epoch = history.current();
        self.label.history = history;
        self.label.committed = self.committed;
        self.label.is_source = false;
        self.label.handed_to = None;
        // What this member was told as the source of before.
        self.label.suspended = MemberSet::NONE;
        self.label.in_sync = in_sync;
        self.label.set_version = set_version;
        let (committed, applied) = (self.committed, self.applied);
        let Some(destination) = self.destination() else { return };
        // What the volumes held before is in them still.
        if !has_forgotten {
            destination.bound = destination.bound.min(from);
        }
        destination.bound = destination.bound.max(applied).max(committed);
        // What the source says is known after a crash once the label is stored, whether it is still there or not.
        destination.known = destination.known.min(from);
        destination.is_noting = false;
        // What is on its way to the label is of the order that was cut.
        self.after.retain(|(_, after)| !matches!(after, AfterLabel::CommittedKnown(_)));
        let Some(destination) = self.destination() else { return };
        // Copies are counted anew. None of before is under way: nothing is.
        destination.copies.clear();
        (destination.put, destination.put_durable) = (0, 0);
        let bound = destination.bound;
        let Some(following) = destination.source.as_mut() else { return };
        following.stage = Stage::Cutting(epoch);
        let peer = following.peer;
        self.label.bound = bound;
        self.store_label(AfterLabel::Following(peer));
    }

    pub(super) fn follows(&mut self, peer: Peer) {
        let Some(following) = self.following(peer) else { return };
        if let Stage::Cutting(epoch) = following.stage {
            following.stage = Stage::Streaming(epoch);
            if let Some(destination) = self.destination() {
                destination.told.1 = Lsn(u64::MAX);
            }
            self.send(peer, Message::Following);
        }
    }

    /// Whether records that a source sends may be put into the ring now. If so, [`super::Event::Received`] or
    /// [`super::Event::NotReceived`] follows. The answer is the checksum of the header before the first record.
    ///
    /// # Errors
    ///
    /// The records have no place here.
    pub fn may_receive(
        &mut self,
        peer: Peer,
        epoch: Epoch,
        from: Lsn,
        to: Lsn,
    ) -> Result<u32, Refusal> {
        let (end, chain) = (self.order.end(), self.order.chain());
        let has_room = to > from && self.order.has_room(to.since(from));
        let Some(following) = self.following(peer) else { return Err(Refusal::OutOfOrder) };
        let streams = matches!(following.stage, Stage::Streaming(of) if of == epoch);
        if !streams || from != end || !has_room || following.is_receiving {
            return Err(Refusal::OutOfOrder);
        }
        following.is_receiving = true;
        Ok(chain)
    }

    /// Whether a copy that comes now is put into its volume in its turn. All others are refused.
    pub fn may_receive_copy(&mut self, peer: Peer, epoch: Epoch) -> bool {
        let is_streaming = self
            .following(peer)
            .is_some_and(|it| matches!(it.stage, Stage::Streaming(of) if of == epoch));
        is_streaming && self.destination().is_some_and(|it| it.copies.len() < COPIES_WAITING_MAX)
    }

    /// Whether one-sided operations of the member at the other end may have put records behind the order's end: then the
    /// driver, once nothing more can come, looks for them, says [`super::Event::Received`], and then
    /// [`super::Event::Lost`]. The answer is where to look, and the checksum of the header before.
    pub fn may_adopt(&mut self, peer: Peer) -> Option<(Lsn, u32)> {
        let (end, chain) = (self.order.end(), self.order.chain());
        let following = self.following(peer)?;
        if !matches!(following.stage, Stage::Streaming(_)) || following.is_receiving {
            return None;
        }
        following.is_receiving = true;
        Some((end, chain))
    }

    pub(super) fn has_received(
        &mut self,
        peer: Peer,
        entries: Vec<Entry>,
        committed: Lsn,
        are_durable: bool,
    ) {
        let now = self.now;
        let Some(following) = self.following(peer) else { return };
        if !std::mem::replace(&mut following.is_receiving, false) {
            return;
        }
        following.heard = now;
        // What came before it in messages may not be durable yet.
        let are_durable = are_durable && self.order.durable() >= self.order.end();
        for entry in entries {
            self.order.push(entry);
            self.takes_size(&entry);
        }
        self.order.is_placed_to(self.order.end());
        if are_durable {
            self.order.is_durable(self.order.end());
        }
        self.hear_committed(committed);
    }

    pub(super) fn has_not_received(&mut self, peer: Peer) {
        if let Some(following) = self.following(peer) {
            following.is_receiving = false;
            self.send(peer, Message::Refused(Refusal::OutOfOrder));
            self.act(Action::Disconnect(peer));
        }
    }

    // The driver keeps the bytes of each copy until it is put.
    fn hear_copy(&mut self, peer: Peer, at: Lsn, extent: Extent) {
        let retained = self.config.retention_ns > 0
            && self.label.contents == Contents::Consistent
            && self.applied < at;
        let Some(destination) = self.destination() else { return };
        if destination.copies.len() < COPIES_WAITING_MAX {
            let is_first = destination.copies.is_empty();
            destination.copies.push_back((at, extent));
            // Everything before is applied first: see `aged`.
            if retained && is_first {
                self.tell(News::PointsEnd(at));
            }
        } else {
            self.send(peer, Message::Refused(Refusal::OutOfOrder));
            self.act(Action::Disconnect(peer));
        }
    }

    fn hear_committed(&mut self, to: Lsn) {
        self.committed = self.committed.max(self.order.floor(to));
    }

    fn hear_consistent(&mut self, at: Lsn) {
        if self.label.contents == Contents::Mixed {
            self.label.contents = Contents::MixedUntil(at);
            self.store_label(AfterLabel::Nothing);
        }
    }

    fn hear_in_sync(&mut self, peer: Peer, version: u64, members: MemberSet) {
        self.label.in_sync = members;
        self.label.set_version = version;
        self.store_label(AfterLabel::SetKnown(peer, version));
    }

    pub(super) fn source_is_lost(&mut self, peer: Peer) {
        if self.following(peer).is_none() {
            return;
        }
        if let Some(destination) = self.destination() {
            destination.source = None;
            destination.copies.clear();
        }
        self.act(Action::Room);
    }

    // What may be applied: durable here, committed, known to be so after a crash, old enough, and not before a copy
    // that waits.
    fn apply(&mut self) {
        let named = self.order.named_committed().max(self.label_committed());
        let (committed, applied, durable) = (self.committed, self.applied, self.order.durable());
        let aged = self.aged();
        let (busy, is_cutting) = (self.applying, self.is_cutting());
        let unapplied = self.order.end().0.saturating_sub(applied.0);
        let (is_tick, fills) = (self.is_tick, unapplied > self.order.capacity() / 4);
        let Some(destination) = self.destination() else { return };
        destination.known = destination.known.max(named.min(committed));
        let copies = destination.copies.iter().map(|(at, _)| *at).min();
        let known = destination.known.min(committed);
        let limit = known.min(durable).min(aged).min(copies.unwrap_or(Lsn(u64::MAX)));
        // The next record will name what is committed, and is durable: a label that says so can wait, but for copies, and
        // for a ring that fills.
        let certain = committed.min(durable);
        let lags = certain > known && known <= applied;
        let waits = copies.is_some_and(|at| at > applied);
        let is_due = is_tick || waits || fills;
        let wants_note = lags && is_due && !destination.is_noting && !is_cutting;
        if wants_note {
            destination.is_noting = true;
        }
        let keeps = destination.promotion.is_some();
        if wants_note {
            self.store_label(AfterLabel::CommittedKnown(certain));
        }
        let to = self.order.floor(limit);
        if !busy && to > applied && !keeps && !is_cutting {
            self.applying = true;
            if let Some(destination) = self.destination() {
                destination.bound = destination.bound.max(to);
            }
            self.act(Action::Apply(applied, to));
        }
    }

    // The label in memory may name more than the one that is stored.
    fn label_committed(&self) -> Lsn {
        match self.stored >= self.label.sequence {
            true => self.label.committed,
            false => Lsn(0),
        }
    }

    pub(super) fn committed_is_known(&mut self, to: Lsn) {
        if let Some(destination) = self.destination() {
            destination.is_noting = false;
            destination.known = destination.known.max(to);
        }
    }

    fn is_cutting(&self) -> bool {
        let Role::Destination(destination) = &self.role else { return false };
        destination
            .source
            .as_ref()
            .is_some_and(|source| !matches!(source.stage, Stage::Answered | Stage::Streaming(_)))
    }

    // Up to where records are old enough to be applied.
    fn aged(&self) -> Lsn {
        let has_copies = match &self.role {
            Role::Destination(destination) => !destination.copies.is_empty(),
            Role::Source(_) => false,
        };
        let retains = self.config.retention_ns > 0
            && !has_copies
            && self.label.contents == Contents::Consistent
            && self.order.used() <= self.order.capacity() / 2;
        match retains {
            false => Lsn(u64::MAX),
            true => {
                let newest = self.order.newest_time().unwrap_or_default();
                let before = newest.saturating_sub(self.config.retention_ns);
                // What had come into the volumes before a crash is a copy at one moment only with all that came along.
                self.order.until_time(before, self.committed).max(self.replayed)
            }
        }
    }

    fn put_copies(&mut self) {
        let applied = self.applied;
        let applying = self.applying;
        let Some(destination) = self.destination() else { return };
        if destination.is_putting {
            return;
        }
        if !applying && destination.copies.front().is_some_and(|(at, _)| *at <= applied) {
            destination.is_putting = true;
            self.act(Action::PutCopy);
            return;
        }
        let is_idle = destination.copies.is_empty() || destination.put % COPIES_FLUSHED == 0;
        if is_idle && destination.put > destination.put_durable && !destination.is_flushing_copies {
            destination.is_flushing_copies = true;
            let put = destination.put;
            self.act(Action::FlushCopies(put));
        }
    }

    pub(super) fn copy_is_put(&mut self) {
        if let Some(destination) = self.destination()
            && std::mem::replace(&mut destination.is_putting, false)
            && destination.copies.pop_front().is_some()
        {
            destination.put += 1;
        }
    }

    pub(super) fn copies_are_durable(&mut self, count: u64) {
        let Some(destination) = self.destination() else { return };
        destination.is_flushing_copies = false;
        destination.put_durable = destination.put_durable.max(count);
        let streams =
            destination.source.as_ref().filter(|it| matches!(it.stage, Stage::Streaming(_)));
        if let Some(peer) = streams.map(|source| source.peer) {
            self.send(peer, Message::Copied { count });
        }
    }

    // The source hears how far this member is when that has changed.
    fn report(&mut self) {
        let order = &self.order;
        let now =
            (order.placed(), order.durable(), self.applied.min(order.durable()), order.start());
        let semi = self.config.my_mode == Mode::SemiSync;
        let Some(destination) = self.destination() else { return };
        let Some(following) = &destination.source else { return };
        if !matches!(following.stage, Stage::Streaming(_)) {
            return;
        }
        let (peer, told) = (following.peer, destination.told);
        let is_new = now.1 != told.1 || now.3 != told.3 || (semi && now.0 != told.0);
        if is_new {
            destination.told = now;
            let (placed, to, applied, start) = now;
            self.send(peer, Message::Durable { placed, to, applied, start });
        }
    }

    pub(super) fn tick_as_destination(&mut self) {
        let (now, silence) = (self.now, self.config.silence_ns);
        let Some(destination) = self.destination() else { return };
        let says = now.saturating_sub(destination.said_alive) >= ALIVE_EVERY_NS;
        if says {
            destination.said_alive = now;
            // How far it has applied is told now and then.
            destination.told.1 = Lsn(u64::MAX);
        }
        let Some(following) = &destination.source else { return };
        let peer = following.peer;
        if now.saturating_sub(following.heard) > silence {
            self.act(Action::Disconnect(peer));
        } else if says {
            self.send(peer, Message::Alive);
        }
    }
}

/// Copies that wait to be put, at most. A source has [`crate::core::Config::copy_window`] bytes on the way.
const COPIES_WAITING_MAX: usize = 1024;
/// After so many copies in a row the volumes are flushed.
const COPIES_FLUSHED: u64 = 16;
