//! Copies of blocks, each put behind the records before it.

use log::Lsn;

use super::Stage;
use crate::core::event::Action;
use crate::core::news::News;
use crate::core::{AfterLabel, Core};
use crate::format::{Contents, Extent};
use crate::message::{Message, Peer, Refusal};

impl Core {
    // The driver keeps the bytes of each copy until it is put.
    pub(super) fn hear_copy(&mut self, peer: Peer, at: Lsn, extent: Extent) {
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

    pub(super) fn hear_consistent(&mut self, at: Lsn) {
        if self.label.contents == Contents::Mixed {
            self.label.contents = Contents::MixedUntil(at);
            self.store_label(AfterLabel::Nothing);
        }
    }

    pub(super) fn put_copies(&mut self) {
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

    pub(in crate::core) fn copy_is_put(&mut self) {
        if let Some(destination) = self.destination()
            && std::mem::replace(&mut destination.is_putting, false)
            && destination.copies.pop_front().is_some()
        {
            destination.put += 1;
        }
    }

    pub(in crate::core) fn copies_are_durable(&mut self, count: u64) {
        let Some(destination) = self.destination() else { return };
        destination.is_flushing_copies = false;
        destination.put_durable = destination.put_durable.max(count);
        let streams =
            destination.source.as_ref().filter(|it| matches!(it.stage, Stage::Streaming(_)));
        if let Some(peer) = streams.map(|source| source.peer) {
            self.send(peer, Message::Copied { count });
        }
    }
}

/// Copies that wait to be put, at most. A source has [`crate::core::Config::copy_window`] bytes on the way.
pub(super) const COPIES_WAITING_MAX: usize = 1024;
/// After so many copies in a row the volumes are flushed.
const COPIES_FLUSHED: u64 = 16;
