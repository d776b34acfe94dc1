//! Decides what a member of a group does, and does nothing itself.
//!
//! [`Core::step`] takes an [`Event`] and the time and returns [`Action`]s; [`Core::submit`] gives a change its place in
//! the order. What a driver has to do stands at [`Action`]. The core knows LSNs and extents, never bytes.
//!
//! ```text
//!   config     what the operator decided
//!   event      events, actions
//!   news       what operators are told
//!   order      the records of this member: assigned, placed, durable, kept
//!   mod        the member: its label, its role, the steps
//!   source     how a source begins and ends, gives writes their place, and says what is committed
//!   streams    what it sends to those who follow
//!   in_sync    who is in sync
//!   hand_over  how another becomes the source in its place
//!   wishes     what an operator may want of it
//!   tuning     what an operator may change while it runs
//!   joining    how a member that comes back is taken in
//!   lease      until when a source may let read, and what members promise
//!   destination  following a source, applying, copies
//!   promotion  how a destination becomes the source
//!   checkpoint how ring space gets free
//! ```

mod checkpoint;
mod config;
mod destination;
mod event;
mod hand_over;
mod in_sync;
mod joining;
mod lease;
mod news;
mod order;
mod other;
mod promotion;
mod source;
mod status;
mod streams;
#[cfg(test)]
mod tests;
mod tuning;
mod wishes;

use std::collections::VecDeque;

use log::Lsn;

pub use self::config::{Config, Congestion, Mode};
pub use self::event::{Action, Event, Lane, Wish};
pub use self::news::{Denial, News};
pub use self::order::Entry;
pub use self::source::{Admitted, Denied, Draft};
pub use self::status::{MemberState, Status};
pub use self::tuning::Tuning;

use self::checkpoint::Checkpoint;
use self::destination::Destination;
use self::lease::Promise;
use self::order::Order;
use self::source::Source;
use crate::dirty::DirtyMap;
use crate::format::{Contents, Kind, Label};
use crate::message::{Message, Peer};
use crate::names::{Epoch, History, MemberId};

/// A member of a group.
#[derive(Debug)]
pub struct Core {
    config: Config,
    /// As it is wanted; the driver may still be storing it.
    label: Label,
    /// The sequence of the label that is durable.
    stored: u64,
    /// Numbers proposals, over all times at which this member is the source: a late answer is of none that came after.
    proposals: u64,
    /// The number of the last order to store a dirty map, and of the last one that is done: orders are done in their order.
    maps_ordered: u64,
    maps_stored: u64,
    /// What happens once labels are durable.
    after: VecDeque<(u64, AfterLabel)>,
    order: Order,
    /// Everything below is committed, as far as this member knows.
    committed: Lsn,
    /// Everything below is in the volumes.
    applied: Lsn,
    /// Up to where the volumes may have been written before this member started, or became a destination.
    replayed: Lsn,
    /// At a source: records above `applied` that are in their volume.
    applied_apart: Vec<Lsn>,
    /// What is under way by [`Action::Apply`].
    applying: bool,
    /// What is under way by [`Action::Persist`].
    persisting: Option<Lsn>,
    checkpoint: Checkpoint,
    role: Role,
    has_failed: bool,
    /// The step is one of time: what can wait for it is done now.
    is_tick: bool,
    /// Since this member started it has been told who is in sync, or has said so.
    knows_set: bool,
    /// To a source: not to be one for a while.
    promise: Promise,
    now: u64,
    actions: Vec<Action>,
}

#[derive(Debug)]
enum Role {
    Source(Box<Source>),
    Destination(Box<Destination>),
}

/// What waits for a label.
#[derive(Clone, Debug)]
enum AfterLabel {
    /// This epoch of this source has begun.
    EpochBegun(Epoch),
    /// The set in sync that was proposed by this number is stored here.
    SetStored(u64),
    /// The member follows the source.
    Following(Peer),
    /// The member knows who is in sync.
    SetKnown(Peer, u64),
    /// The ring is free below.
    Freed,
    /// Committed is durable as this LSN.
    CommittedKnown(Lsn),
    /// Nothing waits.
    Nothing,
}

/// What a driver has found when a member starts.
#[derive(Debug)]
pub struct Found {
    /// The label in force.
    pub label: Label,
    /// The records of the ring from the label's start; all of them are durable.
    pub entries: Vec<Entry>,
    /// The dirty maps of the other members, as they were stored; clean ones where none was.
    pub dirty: Vec<(MemberId, DirtyMap)>,
    /// What the label, or a record behind those that were found, says was committed.
    pub claimed: Lsn,
}

impl Found {
    /// Whether records are gone that the member had made durable. Others were told that a member in sync has everything that was
    /// committed. One that was not waited for may have lost what was not durable there yet, though its source had committed it:
    /// it goes on from what it has. A label names only what was durable.
    pub fn is_damaged(&self, config: &Config) -> bool {
        let label = &self.label;
        let is_waited_for = config.my_mode != Mode::SemiSync && label.in_sync.contains(config.me);
        let claimed = match label.is_source || is_waited_for {
            true => self.claimed,
            false => label.committed,
        };
        claimed > self.end()
    }

    /// Bytes of each volume where the order ends.
    pub fn sizes(&self, config: &Config) -> Vec<u64> {
        sizes_at(&self.label, &config.volumes, &self.entries)
    }

    fn end(&self) -> Lsn {
        self.entries.last().map_or(self.label.start, |last| last.end)
    }
}

impl Core {
    /// A member as it was found. It is a destination until it is promoted or, if it was the source, until
    /// [`Core::resume_as_source`].
    pub fn new(mut config: Config, found: Found) -> Self {
        let first = sizes_at(&found.label, &config.volumes, &[]);
        config.volumes = found.sizes(&config);
        let Found { mut label, entries, mut dirty, claimed } = found;
        // From here on the operator's file changes no size.
        first.iter().zip(&mut label.sizes).for_each(|(size, of)| *of = *size);
        dirty.iter_mut().for_each(|(_, map)| fit(map, &config.volumes));
        let order = Order::new(config.capacity, label.start, label.start_chain, entries);
        let applied = label.start;
        let committed = label.committed.max(order.named_committed()).max(applied).min(order.end());
        // What a source wrote to its volumes was committed, and may be all that is in its ring.
        let bound = match label.is_source {
            true => order.end(),
            false if claimed > order.end() => claimed.max(label.bound),
            false => committed.max(label.bound),
        };
        let destination = Destination::new(bound, dirty);
        Self {
            stored: label.sequence,
            label,
            proposals: 0,
            maps_ordered: 0,
            maps_stored: 0,
            after: VecDeque::new(),
            order,
            committed,
            applied,
            replayed: bound,
            applied_apart: Vec::new(),
            applying: false,
            persisting: None,
            checkpoint: Checkpoint::Idle,
            role: Role::Destination(Box::new(destination)),
            has_failed: false,
            is_tick: false,
            knows_set: false,
            promise: Promise::default(),
            now: 0,
            actions: Vec::new(),
            config,
        }
    }

    /// Whether the member was the source when it stopped.
    pub fn was_source(&self) -> bool {
        self.label.is_source
    }

    /// The label of a member of a new group.
    pub fn first_label(config: &Config) -> Label {
        Label { group: config.group, member: config.me, ..Label::default() }
    }

    /// What has happened, and what is to be done. Actions of one lane are carried out in their order.
    pub fn step(&mut self, now: u64, event: Event) -> Vec<Action> {
        self.clock_goes_on(now);
        self.is_tick = matches!(event, Event::Tick);
        self.take(event);
        self.go_on();
        std::mem::take(&mut self.actions)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Placed(lsn) => {
                self.order.is_placed(lsn);
            }
            Event::RingDurable(to) => {
                self.persisting = None;
                self.order.is_durable(to);
            }
            Event::Applied(lsn) => self.is_applied(lsn),
            Event::AppliedTo(to) => {
                self.applying = false;
                self.applied = self.applied.max(to);
            }
            Event::VolumesDurable(to) => self.volumes_are_durable(to),
            Event::LabelStored(sequence) => self.label_is_stored(sequence),
            Event::DirtyStored(_, number) => self.dirty_is_stored(number),
            Event::StorageFailed => self.storage_failed(),
            Event::Tick => self.tick(),
            Event::Wanted(wish) => self.wants(wish),
            Event::Revoked
            | Event::WritersStopped
            | Event::Proposed { .. }
            | Event::Dialed(_)
            | Event::Shipped(..)
            | Event::DurableThere(..)
            | Event::CopiesSent(..)
            | Event::SnapshotTaken
            | Event::Accepted(_)
            | Event::Lost(_)
            | Event::Said(..)
            | Event::Received { .. }
            | Event::NotReceived(_)
            | Event::CopyPut
            | Event::CopiesDurable(_) => self.take_by_role(event),
        }
    }

    fn take_by_role(&mut self, event: Event) {
        match (&self.role, event) {
            (Role::Source(_), Event::Proposed { number, is_taken }) => {
                self.is_proposed(number, is_taken);
            }
            (Role::Source(_), Event::WritersStopped) => self.writers_have_stopped(),
            (Role::Source(_), Event::Dialed(peer)) => self.greet(peer),
            (Role::Source(_), Event::Shipped(peer, to)) => self.is_shipped(peer, to),
            (Role::Source(_), Event::DurableThere(peer, to)) => self.is_durable_there(peer, to),
            (Role::Source(_), Event::CopiesSent(peer, extent, count)) => {
                self.copies_are_sent(peer, extent, count);
            }
            (Role::Source(_), Event::Lost(peer)) => self.has_lost(peer),
            (Role::Source(_), Event::Said(peer, message)) => self.hear_as_source(peer, message),
            (Role::Destination(_), Event::Said(peer, message)) => {
                self.hear_as_destination(peer, message);
            }
            (Role::Destination(_), Event::Dialed(peer)) => self.act(Action::Disconnect(peer)),
            (Role::Destination(_), Event::Lost(peer)) => self.source_is_lost(peer),
            (Role::Destination(_), Event::Received { peer, entries, committed, are_durable }) => {
                self.has_received(peer, entries, committed, are_durable);
            }
            (Role::Destination(_), Event::NotReceived(peer)) => self.has_not_received(peer),
            (Role::Destination(_), Event::CopyPut) => self.copy_is_put(),
            (Role::Destination(_), Event::CopiesDurable(count)) => self.copies_are_durable(count),
            (Role::Destination(_), Event::SnapshotTaken) => self.snapshot_is_taken(),
            (Role::Destination(_), Event::Revoked) => self.is_revoked(),
            // What comes late from before a change of roles.
            _ => {}
        }
    }

    /// What follows from what is known now.
    fn go_on(&mut self) {
        if self.has_failed {
            return;
        }
        self.persist();
        match self.role {
            Role::Source(_) => self.go_on_as_source(),
            Role::Destination(_) => self.go_on_as_destination(),
        }
        self.check_room();
    }

    // One at a time: what is placed meanwhile is made durable together.
    fn persist(&mut self) {
        if self.persisting.is_none() && self.order.placed() > self.order.durable() {
            self.persisting = Some(self.order.placed());
            self.act(Action::Persist(self.order.placed()));
        }
    }

    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn tell(&mut self, news: News) {
        self.act(Action::Tell(news));
    }

    fn send(&mut self, peer: Peer, message: Message) {
        self.act(Action::Send(peer, message));
    }

    // At a source, records come into their volumes in any order.
    fn is_applied(&mut self, lsn: Lsn) {
        if lsn >= self.applied {
            self.applied_apart.push(lsn);
        }
        self.settle_applied();
    }

    fn settle_applied(&mut self) {
        let limit = self.committed;
        let mut applied = self.applied;
        for entry in self.order.range(applied, limit) {
            let is_there = match self.applied_apart.iter().position(|lsn| *lsn == entry.lsn) {
                Some(at) => {
                    self.applied_apart.swap_remove(at);
                    true
                }
                None => entry.kind == Kind::Pad,
            };
            if !is_there {
                break;
            }
            applied = entry.end;
        }
        self.applied = applied;
    }

    fn store_label(&mut self, after: AfterLabel) {
        self.label.sequence += 1;
        // A label that named what may still be lost would make a member that lost it a damaged one.
        let certain = self.committed.min(self.order.durable());
        self.label.committed = self.label.committed.max(certain);
        let is_sealed = self.label.history.is_sealed_from(self.label.start);
        self.label.key_check = if is_sealed { self.config.key_check } else { 0 };
        self.after.push_back((self.label.sequence, after));
        self.act(Action::StoreLabel(Box::new(self.label.clone())));
    }

    fn label_is_stored(&mut self, sequence: u64) {
        self.stored = self.stored.max(sequence);
        while self.after.front().is_some_and(|(of, _)| *of <= self.stored) {
            let Some((_, after)) = self.after.pop_front() else { break };
            match after {
                AfterLabel::EpochBegun(epoch) => self.epoch_has_begun(epoch),
                AfterLabel::SetStored(number) => self.set_is_stored(number),
                AfterLabel::Following(peer) => self.follows(peer),
                AfterLabel::SetKnown(peer, version) => {
                    self.send_to_source(peer, Message::Stored { version });
                }
                AfterLabel::Freed => self.is_freed(),
                AfterLabel::CommittedKnown(to) => self.committed_is_known(to),
                AfterLabel::Nothing => {}
            }
        }
    }

    fn storage_failed(&mut self) {
        if self.has_failed {
            return;
        }
        self.has_failed = true;
        self.tell(News::StorageFailed);
        self.act(Action::StopWriters);
        let peers: Vec<Peer> = match &self.role {
            Role::Source(source) => source.connections().collect(),
            Role::Destination(destination) => destination.connection().into_iter().collect(),
        };
        for peer in peers {
            self.act(Action::Disconnect(peer));
        }
    }

    fn wants(&mut self, wish: Wish) {
        let denial = match (&mut self.role, wish) {
            (Role::Source(source), Wish::Promote { .. }) => {
                Some(source.may_be_elsewhere().map_or(Denial::IsSource, Denial::Unheard))
            }
            (Role::Destination(_), Wish::Promote { nonce, above, was_in_sync, by_force }) => {
                let epoch = self.next_epoch(nonce, above);
                self.promote(epoch, above, (was_in_sync, by_force)).err()
            }
            (Role::Source(_), Wish::Demote) => {
                self.demote();
                None
            }
            (Role::Destination(_), _) => Some(Denial::NotSource),
            (Role::Source(_), wish) => self.wants_as_source(wish).err(),
        };
        if let Some(denial) = denial {
            self.tell(News::Denied(denial));
        }
    }

    /// The next epoch: newer than all that this member or, with number `above`, the witness knows.
    fn next_epoch(&self, nonce: u64, above: u32) -> Epoch {
        Epoch { number: self.label.history.current().number.max(above) + 1, restart: 0, nonce }
    }

    fn tick(&mut self) {
        match self.role {
            Role::Source(_) => self.tick_as_source(),
            Role::Destination(_) => self.tick_as_destination(),
        }
    }

    /// Whether this member is a source, which may not be ready yet.
    pub fn is_source(&self) -> bool {
        matches!(self.role, Role::Source(_))
    }

    /// Whether storage failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Everything below is committed, as far as this member knows.
    pub fn committed(&self) -> Lsn {
        self.committed
    }

    /// Everything below is in the volumes.
    pub fn applied(&self) -> Lsn {
        self.applied
    }

    /// Everything below is durable here.
    pub fn durable(&self) -> Lsn {
        self.order.durable()
    }

    /// The modes of the other members.
    pub fn modes(&self) -> Vec<(MemberId, Mode)> {
        self.config.others.clone()
    }

    /// The oldest record that the ring keeps, and where the next one goes.
    pub fn kept(&self) -> (Lsn, Lsn) {
        (self.order.start(), self.order.end())
    }

    /// The epochs that made this member's order.
    pub fn history(&self) -> &History {
        &self.label.history
    }

    /// The sequence of the label that is durable.
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// The label as it is wanted.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// Whether the volumes are a copy at one moment, and may be mounted.
    pub fn is_consistent(&self) -> bool {
        self.has_whole_copy() && self.applied >= self.replayed
    }

    /// Whether the volumes, once everything below an LSN is applied, hold that and nothing else: they can be compared
    /// with what a source had there.
    pub fn is_exact_at(&self, at: Lsn) -> bool {
        let is_whole = match self.label.contents {
            Contents::Consistent => true,
            Contents::Mixed => false,
            Contents::MixedUntil(until) => at >= until,
        };
        is_whole && at >= self.replayed
    }

    /// Whether volumes and ring have what a copy at one moment needs.
    fn has_whole_copy(&self) -> bool {
        match self.label.contents {
            Contents::Consistent => true,
            Contents::Mixed => false,
            Contents::MixedUntil(at) => self.applied >= at,
        }
    }

    /// Checksum of the header of the record that ends at `lsn`, while the ring keeps it.
    pub fn sum_before(&self, lsn: Lsn) -> Option<u32> {
        self.order.chain_at(lsn)
    }

    /// Whether records are being applied right now, or copies put.
    pub fn is_applying(&self) -> bool {
        self.applying
    }

    /// Bytes of each volume where the order ends.
    pub fn sizes(&self) -> &[u64] {
        &self.config.volumes
    }

    /// Bytes of each volume where a record begins, or the order ends.
    pub fn sizes_at(&self, lsn: Lsn) -> Vec<u64> {
        let mut sizes = self.label.sizes[..self.config.volumes.len()].to_vec();
        let kept = self.order.range(self.order.start(), lsn);
        kept.for_each(|entry| grow(&mut sizes, entry));
        sizes
    }

    /// A record has come into the order: a volume may be longer behind it.
    pub(super) fn takes_size(&mut self, entry: &Entry) {
        if entry.kind != Kind::Resize {
            return;
        }
        grow(&mut self.config.volumes, entry);
        if let Role::Source(source) = &mut self.role {
            let volumes = &self.config.volumes;
            source.peers.iter_mut().for_each(|other| fit(&mut other.dirty, volumes));
        }
    }

    fn clean_map(&self) -> DirtyMap {
        DirtyMap::clean(&self.config.volumes)
    }
}

/// Bytes of each volume behind records, which the ring of a label begins with.
fn sizes_at(label: &Label, configured: &[u64], entries: &[Entry]) -> Vec<u64> {
    let of = |(size, recorded): (&u64, &u64)| if *recorded == 0 { *size } else { *recorded };
    let mut sizes: Vec<u64> = configured.iter().zip(&label.sizes).map(of).collect();
    entries.iter().for_each(|entry| grow(&mut sizes, entry));
    sizes
}

fn grow(sizes: &mut [u64], entry: &Entry) {
    let grown = entry.extent.filter(|_| entry.kind == Kind::Resize);
    if let Some(extent) = grown
        && let Some(size) = sizes.get_mut(usize::from(extent.volume))
    {
        *size = (*size).max(extent.offset + extent.len);
    }
}

/// A map of other sizes is of these from here on.
fn fit(map: &mut DirtyMap, sizes: &[u64]) {
    let all = (0_u8..).zip(map.sizes().into_iter().zip(sizes));
    let others: Vec<(u8, u64)> = all
        .filter(|(_, (is, size))| is != *size)
        .map(|(volume, (_, size))| (volume, *size))
        .collect();
    others.into_iter().for_each(|(volume, size)| map.resize(volume, size));
}
