//! What a source sends to the members that follow: records in order, and copies of blocks.

use log::Lsn;

use super::Core;
use super::Role;
use super::event::Action;
use super::news::News;
use super::other::{Copying, Link, Stream};
use super::source::SetTold;
use crate::format::Extent;
use crate::message::{Message, Peer};

impl Core {
    pub(super) fn ship_all(&mut self) {
        let (window, capacity) = (self.config.window, self.order.capacity());
        let (placed, committed, epoch) = (self.order.placed(), self.committed, self.epoch());
        let (is_tick, untold_max) = (self.is_tick, UNTOLD_MAX.min(capacity / 8));
        let mut actions = Vec::new();
        let Role::Source(source) = &mut self.role else { return };
        for other in &mut source.peers {
            let Link::Streaming(stream) = &mut other.link else { continue };
            let peer = stream.peer;
            let limit = placed
                .min(stream.durable.plus(window))
                .min(stream.start.map_or(stream.sent, |start| start.plus(capacity)));
            while stream.sent < limit && stream.unaware.is_none() {
                let to = self.order.piece(stream.sent, limit.min(stream.sent.plus(SHIP_MAX)));
                if to <= stream.sent || to > limit {
                    break;
                }
                let from = std::mem::replace(&mut stream.sent, to);
                stream.told_committed = committed;
                actions.push(Action::Ship { peer, epoch, from, to, committed });
            }
            // Each record says what was committed before it, so that a message of its own can wait: for time to pass, or
            // until the member could apply much, or copies wait for it.
            let is_due = is_tick
                || stream.copying.is_some()
                || committed.0 >= stream.told_committed.0.saturating_add(untold_max);
            let is_told = stream.told_committed >= committed;
            // Also where the next record has no room there: what it is told of is what makes room.
            if !is_told && is_due {
                stream.told_committed = committed;
                actions.push(Action::Send(peer, Message::Committed { epoch, to: committed }));
            }
        }
        self.actions.append(&mut actions);
    }

    pub(super) fn copy_all(&mut self) {
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
                other.lacks_since_ns = None;
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

    pub(super) fn copies_are_there(&mut self, peer: Peer, count: u64) {
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
        source.doubt.of = source.doubt.of.without(peer.member);
        let takes_over = source.handing_over.filter(|it| it.told.is_some()).map(|it| it.to);
        if takes_over == Some(peer.member) {
            self.has_not_taken_over();
        }
        // The set may have changed since it was told from where to go on.
        let epoch = self.epoch();
        let Some(source) = self.source() else { return };
        let SetTold { version, members } = source.told;
        let unaware = (!members.contains(peer.member)).then_some(version);
        let Some(other) = source.at(peer) else { return };
        other.known = from;
        // It was heard for the sake of what it knows, or is in sync as long as nobody takes its place; an operator wants nothing
        // to be sent to it.
        other.leaves |= other.is_suspended;
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
            is_dropped: false,
            asked: None,
            leased_until: 0,
            unaware,
        }));
        let bytes = other.dirty.bytes();
        let news = match copies {
            true => News::CopyBegins(peer.member, bytes),
            false => News::Replays(peer.member),
        };
        self.tell(news);
        self.send(peer, Message::InSync { epoch, version, members });
    }

    pub(super) fn is_told_durable(
        &mut self,
        peer: Peer,
        placed: Lsn,
        to: Lsn,
        applied: Lsn,
        start: Lsn,
    ) {
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

    pub(super) fn differs(&mut self, peer: Peer, lsn: Lsn, extent: Extent) {
        self.tell(News::Differs(peer.member, lsn, extent));
        let Some(other) = self.source().and_then(|source| source.at(peer)) else { return };
        other.dirty.mark(extent);
        if let Link::Streaming(stream) = &mut other.link
            && stream.copying.is_none()
        {
            stream.copying = Some(Copying::default());
        }
    }

    pub(super) fn has_lost(&mut self, peer: Peer) {
        let Some(other) = self.source().and_then(|source| source.at(peer)) else { return };
        other.known = other.known();
        other.link = Link::Down;
        // When it comes back it is told of the set anew.
        if let Some(change) = self.source().and_then(|source| source.change.as_mut()) {
            change.waits_for = change.waits_for.without(peer.member);
        }
    }
}

/// Bytes of records that are ordered to be sent at once, at most; a single record may be longer.
const SHIP_MAX: u64 = 1 << 20;
/// Committed bytes of which a member is told before time passes.
const UNTOLD_MAX: u64 = 256 << 10;
/// Bytes of one order to copy.
const COPY_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::super::event::Event;
    use super::super::tests::{LEN, draft, has_all, proposal, source_of_two};
    use super::*;

    #[test]
    fn a_member_is_sent_no_record_before_it_knows_durably_that_it_is_in_sync_no_more() {
        let (mut core, peer) = source_of_two();
        // Its connection is lost, others commit without it, and it is back.
        let mut told = core.step(12, Event::Lost(peer));
        let admitted = core.submit(draft(64), |_| 77).unwrap();
        told.extend(core.step(13, Event::Placed(admitted.record.lsn)));
        told.extend(core.step(14, Event::RingDurable(admitted.record.end())));
        told.extend(core.step(15, Event::Tick));
        let number = proposal(&told);
        let peer = Peer { connection: 6, ..peer };
        core.step(16, Event::Dialed(peer));
        let end = Lsn(2 * LEN);
        let here = has_all(core.label().history.clone(), end);
        core.step(17, Event::Said(peer, here));
        core.step(18, Event::Proposed { number, is_taken: true });
        let ships =
            |told: &[Action]| told.iter().any(|action| matches!(action, Action::Ship { .. }));
        let mut follows = core.step(20, Event::Said(peer, Message::Following));
        let says = Message::Durable { placed: end, to: end, applied: end, start: Lsn(0) };
        follows.extend(core.step(20, Event::Said(peer, says)));
        assert!(!ships(&follows), "{follows:?}");
        let version = core.label().set_version + 1;
        let knows = core.step(21, Event::Said(peer, Message::Stored { version }));
        assert!(ships(&knows), "{knows:?}");
    }
}
