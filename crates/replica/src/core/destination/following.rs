//! How a destination begins to follow: it answers a source that greets, and goes on with the order from where that one says.

use log::Lsn;

use super::{Following, Stage, Told};
use crate::core::event::Action;
use crate::core::news::News;
use crate::core::{AfterLabel, Core};
use crate::format::{Contents, Extent};
use crate::message::{EXTENTS_MAX, Message, Peer, Refusal};
use crate::names::MemberSet;

impl Core {
    pub(super) fn hear_hello(&mut self, peer: Peer, hello: Message) {
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

    pub(super) fn answer_hello(&mut self) {
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

    pub(super) fn hear_follow(&mut self, peer: Peer, told: Told) {
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
    pub(super) fn follow(&mut self) {
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
        if self.goes_on(from, chain) && self.keeps_what_is_forgotten(from) {
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

    pub(in crate::core) fn snapshot_is_taken(&mut self) {
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

    // Records of epochs that the source has forgotten would be none any more: they are applied, and freed, before this member
    // forgets those epochs as well. Then it can follow.
    fn keeps_what_is_forgotten(&mut self, from: Lsn) -> bool {
        let (start, applied) = (self.order.start(), self.applied);
        let Some(following) = self.destination().and_then(|it| it.source.as_mut()) else {
            return false;
        };
        let Stage::Told(told) = &following.stage else { return false };
        let first = told.history.epochs().first().map_or(Lsn(0), |first| first.start).min(from);
        if first <= start {
            return false;
        }
        if applied >= first {
            return self.flush_applied();
        }
        let (peer, committed) = (following.peer, told.committed.min(from));
        following.stage = Stage::Answered;
        self.committed = self.committed.max(committed);
        if let Some(destination) = self.destination() {
            destination.outgrown = destination.outgrown.max(first);
        }
        self.act(Action::Disconnect(peer));
        true
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

    pub(in crate::core) fn follows(&mut self, peer: Peer) {
        let Some(following) = self.following(peer) else { return };
        if let Stage::Cutting(epoch) = following.stage {
            following.stage = Stage::Streaming(epoch);
            if let Some(destination) = self.destination() {
                destination.told.1 = Lsn(u64::MAX);
            }
            self.send(peer, Message::Following);
        }
    }
}
