//! What of the order comes into the volumes: what is durable, committed, known to be so after a crash, and old enough.

use log::Lsn;

use super::Stage;
use crate::core::event::Action;
use crate::core::{AfterLabel, Core, Role};
use crate::format::Contents;

impl Core {
    // What may be applied: durable here, committed, known to be so after a crash, old enough, and not before a copy
    // that waits.
    pub(super) fn apply(&mut self) {
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

    pub(in crate::core) fn committed_is_known(&mut self, to: Lsn) {
        if let Some(destination) = self.destination() {
            destination.is_noting = false;
            destination.known = destination.known.max(to);
        }
    }

    pub(super) fn is_cutting(&self) -> bool {
        let Role::Destination(destination) = &self.role else { return false };
        destination
            .source
            .as_ref()
            .is_some_and(|source| !matches!(source.stage, Stage::Answered | Stage::Streaming(_)))
    }

    // Up to where records are old enough to be applied.
    fn aged(&self) -> Lsn {
        let (has_copies, outgrown) = match &self.role {
            Role::Destination(destination) => {
                (!destination.copies.is_empty(), destination.outgrown)
            }
            Role::Source(_) => (false, Lsn(0)),
        };
        let retains = self.config.retention_ns > 0
            && !has_copies
            && self.label.contents == Contents::Consistent
            && !self.fills();
        match retains {
            false => Lsn(u64::MAX),
            true => {
                let newest = self.order.newest_time().unwrap_or_default();
                let before = newest.saturating_sub(self.config.retention_ns);
                // What had come into the volumes before a crash is a copy at one moment only with all that came along.
                let aged = self.order.until_time(before, self.committed);
                aged.max(self.replayed).max(outgrown)
            }
        }
    }
}
