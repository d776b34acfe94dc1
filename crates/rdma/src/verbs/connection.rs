//! One queue pair: its connection, its memory, and its requests that have not ended.
//!
//! ```text
//!   connect: Resolving --address--> Resolving --route--> Calling --------.
//!                                                                        +--> Up --> (gone)
//!   accept:  Answering --the next round--> Answered ---- established ----'
//! ```
//!
//! A reliable connection carries out and completes its sends in posting order, so the posted sends
//! are a queue, and a completion also ends everything in front of it. Not every request asks the
//! device for a completion: an unsignaled request has ended when a later one has.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use super::count::Counted;
use super::greeting::Answers;
use super::ring::{RING_LEN, Ring};
use super::sys::cm::Terms;
use super::sys::memory::Memory;
use super::sys::queue::QueuePair;
use crate::interface::{
    Access, DisconnectReason, Lkey, LocalSlice, PostError, QpCapabilities, QpConfig, WcOpcode,
};

/// See the module. Fields are dropped in order: the queue pair before its memory.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) queue: QueuePair,
    pub(super) stage: Stage,
    pub(super) config: QpConfig,
    pub(super) capabilities: QpCapabilities,
    pub(super) is_initiator: bool,
    pub(super) is_iwarp: bool,
    /// What our own device answers, to be sent in the greeting.
    pub(super) answers: Answers,
    /// Place of the device in the engine's list.
    pub(super) device: usize,
    pub(super) sends: Sends,
    pub(super) receives: Receives,
    pub(super) ring: Option<Ring>,
    /// By remote key.
    pub(super) regions: HashMap<u32, Region>,
    /// Listed among the busy connections of the engine.
    pub(super) is_busy: bool,
    /// The completion queue of this connection announces the next completion.
    pub(super) is_armed: bool,
    /// The owner has asked for the end of the connection; sends may still leave until then.
    pub(super) closing: Option<Instant>,
    /// Why the connection ends, if that is known before the connection manager reports it.
    pub(super) fault: Option<DisconnectReason>,
    /// The device has put the queue pair into its error state without a reason.
    pub(super) is_broken: bool,
    /// The reason that the device gave for the error state; a completion or the connection manager
    /// may give a better one.
    pub(super) told: Option<DisconnectReason>,
}

/// How far a connection is.
#[derive(Debug)]
pub(super) enum Stage {
    /// The address or the route of the peer is being resolved; then the request is sent with these
    /// terms.
    Resolving(Terms),
    /// The request has been sent to the peer.
    Calling,
    /// The owner has accepted; the answer to send.
    Answering(Terms),
    /// The answer has been sent to the peer.
    Answered,
    /// Connected.
    Up,
}

/// One registration.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) memory: Memory,
    pub(super) len: u64,
    pub(super) access: Access,
    pub(super) _counted: Counted,
}

/// A send that was posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) wr_id: u64,
    pub(super) opcode: WcOpcode,
    /// The owner wants the completion of a success.
    pub(super) is_reported: bool,
    pub(super) len: u32,
    /// Bytes that the payload takes in the ring.
    pub(super) ring: u64,
}

/// The send queue.
#[derive(Debug, Default)]
pub(super) struct Sends {
    queue: VecDeque<Sent>,
    /// Number of the oldest send in the queue.
    first: u64,
    /// Requests since the last one that asked for a completion, and their bytes in the ring.
    quiet: u32,
    quiet_bytes: u64,
}

impl Sends {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The number of the next send, and whether that send has to ask the device for a completion:
    /// if its owner wants one, or if the queue could otherwise never tell that there is room.
    pub(super) fn next(&self, depth: u16, is_reported: bool, ring: u64) -> (u64, bool) {
        let number = self.first + u64::try_from(self.queue.len()).expect("at most the depth");
        let often = (u32::from(depth) / QUIET_PART).max(1);
        let due = self.quiet + 1 >= often || self.quiet_bytes + ring >= RING_LEN / QUIET_RING_PART;
        (number, is_reported || due)
    }

    pub(super) fn push(&mut self, sent: Sent, asks: bool) {
        self.queue.push_back(sent);
        if asks {
            (self.quiet, self.quiet_bytes) = (0, 0);
        } else {
            self.quiet += 1;
            self.quiet_bytes += sent.ring;
        }
    }

    /// The oldest send, if it is not newer than `number`; and whether it has that number.
    pub(super) fn pop_until(&mut self, number: u64) -> Option<(Sent, bool)> {
        if self.first > number {
            return None;
        }
        let sent = self.queue.pop_front()?;
        self.first += 1;
        Some((sent, self.first == number + 1))
    }

    pub(super) fn pop(&mut self) -> Option<Sent> {
        let sent = self.queue.pop_front()?;
        self.first += 1;
        Some(sent)
    }
}

/// The receive queue: what the owner calls each buffer, oldest first.
#[derive(Debug, Default)]
pub(super) struct Receives {
    queue: VecDeque<u64>,
    first: u64,
}

impl Receives {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Number of the next receive.
    pub(super) fn next(&self) -> u64 {
        self.first + u64::try_from(self.queue.len()).expect("at most the depth")
    }

    pub(super) fn push(&mut self, wr_id: u64) {
        self.queue.push_back(wr_id);
    }

    /// Removes the receive with this number, which has to be the oldest: a device fills receives in
    /// posting order.
    pub(super) fn pop_named(&mut self, number: u64) -> Option<u64> {
        if number == self.first { self.pop() } else { None }
    }

    pub(super) fn pop(&mut self) -> Option<u64> {
        let wr_id = self.queue.pop_front()?;
        self.first += 1;
        Some(wr_id)
    }
}

impl Connection {
    /// Whether a request is posted whose completion will come.
    pub(super) fn has_work(&self) -> bool {
        !self.sends.is_empty() || !self.receives.is_empty()
    }

    /// The memory of a slice, if the rights of this connection allow the use.
    pub(super) fn locate(
        &self,
        slice: LocalSlice,
        need: Access,
    ) -> Result<super::sys::queue::Piece, PostError> {
        let LocalSlice { lkey: Lkey(lkey), offset, len } = slice;
        let found = self.regions.values().find(|region| region.memory.lkey() == lkey);
        let region = found.ok_or(PostError::ConfigLocalKey(Lkey(lkey)))?;
        if offset.checked_add(u64::from(len)).is_none_or(|end| end > region.len) {
            return Err(PostError::ConfigLocalBounds(Lkey(lkey)));
        }
        if !region.access.contains(need) {
            return Err(PostError::ConfigLocalAccess(Lkey(lkey)));
        }
        let address = region.memory.address() + offset;
        Ok(super::sys::queue::Piece { address, len, lkey })
    }
}

/// At least one request in this part of the queue's depth asks for a completion.
const QUIET_PART: u32 = 4;
/// The same for this part of the ring.
const QUIET_RING_PART: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(wr_id: u64) -> Sent {
        Sent { wr_id, opcode: WcOpcode::Write, is_reported: false, len: 0, ring: 100 }
    }

    #[test]
    fn unsignaled_requests_end_with_a_later_completion() {
        let mut sends = Sends::default();
        for wr_id in 10..13 {
            let (number, asks) = sends.next(256, wr_id == 12, 100);
            assert_eq!((number, asks), (wr_id - 10, wr_id == 12));
            sends.push(sent(wr_id), asks);
        }
        let mut over = Vec::new();
        while let Some((sent, is_it)) = sends.pop_until(2) {
            over.push((sent.wr_id, is_it));
        }
        assert_eq!(over, [(10, false), (11, false), (12, true)]);
        assert!(sends.pop_until(2).is_none(), "a completion counts once");
    }

    #[test]
    fn a_receive_completes_only_by_its_own_number() {
        let mut receives = Receives::default();
        receives.push(10);
        receives.push(11);
        assert_eq!(receives.pop_named(1), None, "the one before it is not");
        assert_eq!(receives.pop_named(0), Some(10));
        assert_eq!(receives.pop_named(0), None, "a completion counts once");
        assert_eq!(receives.pop_named(1), Some(11));
    }

    #[test]
    fn room_in_the_send_queue_never_depends_on_an_unrequested_completion() {
        let mut sends = Sends::default();
        let mut asked = 0;
        for wr_id in 0..8 {
            let (_, asks) = sends.next(8, false, 1);
            asked += u32::from(asks);
            sends.push(sent(wr_id), asks);
        }
        assert_eq!(asked, 4, "every other one where the queue has eight");
        assert!(sends.next(4096, false, RING_LEN / 4).1, "a quarter of the ring asks too");
        assert!(Sends::default().next(1, false, 0).1, "and so does a queue of one");
    }
}
