//! One queue pair: its connection, its memory, and what is posted and has not ended.
//!
//! ```text
//!   connect: Resolving --address--> Resolving --route--> Calling --------.
//!                                                                        +--> Up --> (gone)
//!   accept:  Answering --the next round--> Answered ---- established ----'
//! ```
//!
//! A reliable connection carries out and completes its sends in posting order, so what is posted
//! is a queue, and a completion tells of everything in front of it. Not every request asks the
//! device for a completion: an unsignaled one is known to be over when a later one is.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use super::greeting::Answers;
use super::ring::{RING_LEN, Ring};
use super::sys::cm::Terms;
use super::sys::memory::Memory;
use super::sys::queue::QueuePair;
use crate::verbs::{
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
    /// What our own device answers, for the greeting.
    pub(super) answers: Answers,
    /// Place of the device in the engine's list.
    pub(super) device: usize,
    pub(super) sends: Sends,
    pub(super) receives: Receives,
    pub(super) ring: Option<Ring>,
    /// By remote key.
    pub(super) regions: HashMap<u32, Region>,
    /// Among the engine's busy ones.
    pub(super) is_busy: bool,
    /// Its completion queue announces the next completion.
    pub(super) is_armed: bool,
    /// The owner has asked for the end; sends may still leave until then.
    pub(super) closing: Option<Instant>,
    /// Why it ends, if that is known before the connection manager tells.
    pub(super) fault: Option<DisconnectReason>,
    /// The device has given the queue pair up and not said why.
    pub(super) is_broken: bool,
    /// Why the device has given it up, as the device says; others may know better.
    pub(super) told: Option<DisconnectReason>,
}

/// How far a connection is.
#[derive(Debug)]
pub(super) enum Stage {
    /// The way to the peer is being looked for; what to say then.
    Resolving(Terms),
    /// The peer has been asked.
    Calling,
    /// The owner has said yes; what to answer.
    Answering(Terms),
    /// The peer has been answered.
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
}

/// A send that was posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) wr_id: u64,
    pub(super) opcode: WcOpcode,
    /// The owner wants to hear of its success.
    pub(super) is_reported: bool,
    pub(super) len: u32,
    /// What it took of the ring.
    pub(super) ring: u64,
}

/// The send queue.
#[derive(Debug, Default)]
pub(super) struct Sends {
    queue: VecDeque<Sent>,
    /// Number of the oldest in the queue.
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

    /// The number of the next one, and whether it has to ask the device for a completion: if its
    /// owner wants one, or if room would otherwise never be known to be free.
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

    /// The oldest one, if it is not newer than `number`; and whether it is that one.
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

    /// Number of the next one.
    pub(super) fn next(&self) -> u64 {
        self.first + u64::try_from(self.queue.len()).expect("at most the depth")
    }

    pub(super) fn push(&mut self, wr_id: u64) {
        self.queue.push_back(wr_id);
    }

    /// Takes out the one with this number, which has to be the oldest: a device fills them in the
    /// order in which they were posted.
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
    /// Something is posted whose completion will come.
    pub(super) fn has_work(&self) -> bool {
        !self.sends.is_empty() || !self.receives.is_empty()
    }

    /// Where a slice lies, if this connection may use it so.
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

/// A completion is asked for at least once per this part of the queue's depth.
const QUIET_PART: u32 = 4;
/// And per this part of the ring.
const QUIET_RING_PART: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(wr_id: u64) -> Sent {
        Sent { wr_id, opcode: WcOpcode::Write, is_reported: false, len: 0, ring: 100 }
    }

    #[test]
    fn quiet_requests_are_over_when_a_later_one_is() {
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
    fn a_receive_is_complete_by_its_own_number_alone() {
        let mut receives = Receives::default();
        receives.push(10);
        receives.push(11);
        assert_eq!(receives.pop_named(1), None, "the one before it is not");
        assert_eq!(receives.pop_named(0), Some(10));
        assert_eq!(receives.pop_named(0), None, "a completion counts once");
        assert_eq!(receives.pop_named(1), Some(11));
    }

    #[test]
    fn room_never_waits_for_a_completion_that_nobody_asked_for() {
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
