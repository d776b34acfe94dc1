//! Records that a source sends or places, and what of them is committed.

use log::Lsn;

use super::Stage;
use super::copies::COPIES_WAITING_MAX;
use crate::core::event::Action;
use crate::core::{Core, Entry};
use crate::message::{Message, Peer, Refusal};
use crate::names::Epoch;

impl Core {
    /// Whether records that a source sends may be put into the ring now. If so, [`crate::core::Event::Received`] or
    /// [`crate::core::Event::NotReceived`] follows. The answer is the checksum of the header before the first record.
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
    /// driver, once nothing more can come, looks for them, says [`crate::core::Event::Received`], and then
    /// [`crate::core::Event::Lost`]. The answer is where to look, and the checksum of the header before.
    pub fn may_adopt(&mut self, peer: Peer) -> Option<(Lsn, u32)> {
        let (end, chain) = (self.order.end(), self.order.chain());
        let following = self.following(peer)?;
        if !matches!(following.stage, Stage::Streaming(_)) || following.is_receiving {
            return None;
        }
        following.is_receiving = true;
        Some((end, chain))
    }

    pub(in crate::core) fn has_received(
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

    pub(in crate::core) fn has_not_received(&mut self, peer: Peer) {
        if let Some(following) = self.following(peer) {
            following.is_receiving = false;
            self.send(peer, Message::Refused(Refusal::OutOfOrder));
            self.act(Action::Disconnect(peer));
        }
    }

    pub(super) fn hear_committed(&mut self, to: Lsn) {
        self.committed = self.committed.max(self.order.floor(to));
    }
}
