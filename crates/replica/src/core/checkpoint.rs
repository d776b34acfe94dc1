//! How ring space gets free: what the volumes have durably, and no member in sync lacks, is forgotten.
//!
//! ```text
//!   idle --> flushing the volumes --> noting what absent members lack --> storing the label --> idle, with room
//! ```

use log::Lsn;

use super::event::Action;
use super::news::News;
use super::{AfterLabel, Core, Role};
use crate::core::Congestion;
use crate::format::{Contents, Position};
use crate::names::EPOCHS_MAX;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Checkpoint {
    Idle,
    /// The volumes are being flushed as they are at this LSN.
    Flushing,
    /// The maps of members that lack what is to be forgotten are being stored.
    Noting(Lsn),
    /// The label is being stored.
    Storing(Lsn),
}

impl Checkpoint {
    pub(super) fn is_idle(self) -> bool {
        self == Self::Idle
    }
}

impl Core {
    /// Begins to free ring space when there is little left.
    pub(super) fn check_room(&mut self) {
        if !self.checkpoint.is_idle() || self.has_failed {
            return;
        }
        let frees = self.floor(self.applied) > self.order.start();
        if (self.fills() && frees) || self.label_lags() {
            self.checkpoint = Checkpoint::Flushing;
            self.act(Action::FlushVolumes(self.applied));
        } else if self.fills() {
            self.drop_slow();
        }
    }

    /// Whether the ring is to be freed, and what is kept in it for a while is not kept any longer.
    pub(super) fn fills(&self) -> bool {
        self.order.used() > self.order.capacity() / 2 || self.epochs_held() > EPOCHS_MAX / 4
    }

    /// Makes durable what the volumes have, and frees its records; `false` where all of it is. The ring has no room to want.
    pub(super) fn flush_applied(&mut self) -> bool {
        if self.applied <= self.order.start() || !self.checkpoint.is_idle() || self.has_failed {
            return false;
        }
        self.checkpoint = Checkpoint::Flushing;
        self.act(Action::FlushVolumes(self.applied));
        true
    }

    /// Of how many epochs the ring may hold records. The label knows [`EPOCHS_MAX`] of them, and a record of an epoch that it
    /// does not know is none: the ring is freed long before there are as many, however little is in it, nobody is promoted who
    /// holds as many, and no member takes a history that lacks one.
    pub(super) fn epochs_held(&self) -> usize {
        self.label.history.count_from(self.order.start())
    }

    // A mixture is one no more when what made it so is durable.
    fn label_lags(&self) -> bool {
        matches!(self.label.contents, Contents::MixedUntil(at) if self.applied >= at)
    }

    pub(super) fn volumes_are_durable(&mut self, to: Lsn) {
        if self.checkpoint != Checkpoint::Flushing {
            return;
        }
        let floor = self.floor(to);
        self.drop_slow();
        if floor <= self.order.start() {
            self.checkpoint = Checkpoint::Idle;
            if let Contents::MixedUntil(at) = self.label.contents
                && to >= at
            {
                self.becomes_consistent();
                self.store_label(AfterLabel::Nothing);
            }
            return;
        }
        self.note_lacking(floor);
        self.checkpoint = Checkpoint::Noting(floor);
        self.store_dirty_maps();
        if let Contents::MixedUntil(at) = self.label.contents
            && to >= at
        {
            self.becomes_consistent();
        }
        self.maps_may_be_stored();
    }

    fn becomes_consistent(&mut self) {
        self.label.contents = Contents::Consistent;
        self.act(Action::DropSnapshot);
    }

    /// The oldest record that the ring goes on to keep.
    pub(super) fn keeps_from(&self) -> Lsn {
        match self.checkpoint {
            Checkpoint::Noting(to) | Checkpoint::Storing(to) => to,
            Checkpoint::Idle | Checkpoint::Flushing => self.order.start(),
        }
    }

    /// Up to where nobody needs the ring.
    fn floor(&self, to: Lsn) -> Lsn {
        let Role::Source(source) = &self.role else { return to };
        // Who is away holds the ring no longer than the label can tell its epochs.
        let blocks =
            self.config.congestion == Congestion::Block && self.epochs_held() <= EPOCHS_MAX / 2;
        source.peers.iter().fold(to, |floor, other| {
            let follows = matches!(other.link, super::other::Link::Streaming(_));
            let holds = source.confirmed.contains(other.member)
                || follows
                || (blocks && !other.is_suspended);
            let floor = if holds { floor.min(other.known()) } else { floor };
            other.shipped().map_or(floor, |shipped| floor.min(shipped))
        })
    }

    // Whoever holds the ring for the others, and is not in sync, gets copies later.
    fn drop_slow(&mut self) {
        let (used, capacity) = (self.order.used(), self.order.capacity());
        let is_full = used > capacity / 4 * 3 && self.config.congestion != Congestion::Block;
        if !is_full && self.epochs_held() <= EPOCHS_MAX / 2 {
            return;
        }
        let start = self.order.start();
        let history = self.label.history.clone();
        let Role::Source(source) = &mut self.role else { return };
        let confirmed = source.confirmed;
        let mut slow = Vec::new();
        for other in &mut source.peers {
            let known = other.known();
            let super::other::Link::Streaming(stream) = &mut other.link else { continue };
            let lags = is_full && known.since(start) < capacity / 4;
            let holds = lags || history.count_from(known) > EPOCHS_MAX / 2;
            let is_slow = holds && !confirmed.contains(other.member);
            // It is told once, not with each write until the connection has ended.
            if is_slow && !std::mem::replace(&mut stream.is_dropped, true) {
                slow.push(stream.peer);
            }
        }
        for peer in slow {
            self.tell(News::FellBehind(peer.member));
            self.act(Action::Disconnect(peer));
        }
    }

    // What members lack of the records below `to` is noted by block.
    fn note_lacking(&mut self, to: Lsn) {
        let start = self.order.start();
        let positions = self.label.positions;
        let Role::Source(source) = &mut self.role else { return };
        for other in &mut source.peers {
            let at = usize::from(other.member.0);
            let follows = matches!(other.link, super::other::Link::Streaming(_));
            if follows {
                continue;
            }
            let Position::Has(known) = positions[at] else { continue };
            let from = known.max(start);
            for entry in self.order.range(from, to) {
                if let Some(extent) = entry.extent {
                    other.dirty.mark(extent);
                    other.lacks_since_ns.get_or_insert(entry.time_ns);
                }
            }
        }
    }

    pub(super) fn maps_may_be_stored(&mut self) {
        let Checkpoint::Noting(to) = self.checkpoint else { return };
        if let Role::Source(source) = &self.role
            && source.peers.iter().any(|other| self.maps_stored < other.dirty_ordered)
        {
            return;
        }
        self.checkpoint = Checkpoint::Storing(to);
        let chain = self.order.chain_at(to);
        debug_assert!(chain.is_some(), "records are applied whole");
        if let Role::Source(source) = &self.role {
            for other in &source.peers {
                let at = usize::from(other.member.0);
                // The map says what it lacks from there on. It counts as long as the member still has what it said to have.
                if let Position::Has(has) = self.label.positions[at] {
                    self.label.positions[at] = Position::Has(has.max(other.known()));
                }
            }
        }
        let sizes = self.sizes_at(to);
        sizes.iter().zip(&mut self.label.sizes).for_each(|(size, of)| *of = *size);
        self.label.start = to;
        self.label.start_chain = chain.unwrap_or_default();
        self.store_label(AfterLabel::Freed);
    }

    pub(super) fn is_freed(&mut self) {
        let Checkpoint::Storing(to) = self.checkpoint else { return };
        self.checkpoint = Checkpoint::Idle;
        self.order.free(to);
        self.act(Action::Room);
    }
}
