//! What both directions of a link of several connections have on the way.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};

use super::super::error::LinkError;
use super::super::link::OneSender;
use super::super::socket::Socket;
use super::bounds::{AHEAD_MAX, FRAMES_AHEAD_MAX};
use crate::message::Message;

/// A frame that was sent.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) number: u64,
    /// Head and body.
    pub(super) head: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.payload.len()
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) number: u64,
    /// Which of the link's connections it is.
    pub(super) slot: usize,
    pub(super) socket: Arc<Socket>,
    pub(super) sender: Arc<Mutex<OneSender>>,
    /// What its thread sends next.
    pub(super) queue: VecDeque<Arc<Frame>>,
    /// It says next what was taken.
    pub(super) owes: bool,
    /// Bytes that are queued or being sent.
    pub(super) waits: usize,
    pub(super) bell: Arc<Condvar>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) parts: Vec<Part>,
    /// Connections that there were.
    pub(super) made: u64,
    /// The number of the next frame that is sent.
    pub(super) next: u64,
    /// What was sent and not taken, with the connections over which it went.
    kept: VecDeque<(Arc<Frame>, u64)>,
    kept_bytes: usize,
    /// The number of the next frame that is taken.
    pub(super) expected: u64,
    /// Frames that came before others that are expected first, or that nobody has taken yet.
    came: BTreeMap<u64, (Message, Vec<u8>, usize)>,
    came_bytes: usize,
    /// What was taken since the other end was told.
    untold: (u64, usize),
    pub(super) end: Option<LinkError>,
}

impl State {
    /// Whether a frame of this length may be sent.
    pub(super) fn has_room(&self, len: usize) -> bool {
        let is_alone = self.kept.is_empty();
        self.kept.len() < FRAMES_AHEAD_MAX && (is_alone || self.kept_bytes + len <= AHEAD_MAX)
    }

    /// The place of the connection with the least to do.
    pub(super) fn idlest(&self) -> Option<usize> {
        let all = self.parts.iter().enumerate();
        all.min_by_key(|(_, part)| (part.waits, part.slot)).map(|(at, _)| at)
    }

    /// Keeps a frame that goes over the connection at this place.
    pub(super) fn keep(&mut self, frame: &Arc<Frame>, at: usize) {
        self.kept_bytes += frame.len();
        self.kept.push_back((Arc::clone(frame), self.parts[at].number));
    }

    /// The other end has taken everything below.
    pub(super) fn has_got(&mut self, got: u64) -> Result<(), LinkError> {
        if got > self.next {
            return Err(LinkError::PeerGot { got, sent: self.next });
        }
        while let Some((frame, _)) = self.kept.front().filter(|(frame, _)| frame.number < got) {
            self.kept_bytes -= frame.len();
            self.kept.pop_front();
        }
        Ok(())
    }

    /// Bytes have gone over a connection.
    pub(super) fn has_gone(&mut self, number: u64, len: usize) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.number == number) {
            part.waits = part.waits.saturating_sub(len);
        }
    }

    /// A connection is there no more: what it had goes over the others. `false` if it had been taken out before.
    pub(super) fn take_out(&mut self, number: u64) -> bool {
        let Some(at) = self.parts.iter().position(|part| part.number == number) else {
            return false;
        };
        let part = self.parts.swap_remove(at);
        part.socket.close();
        part.bell.notify_all();
        for index in 0..self.kept.len() {
            if self.kept[index].1 != number {
                continue;
            }
            let Some(at) = self.idlest() else { break };
            let frame = Arc::clone(&self.kept[index].0);
            let part = &mut self.parts[at];
            self.kept[index].1 = part.number;
            part.waits += frame.len();
            part.queue.push_back(frame);
            part.bell.notify_one();
        }
        true
    }

    /// A frame came. Whether it was not there yet.
    pub(super) fn comes(
        &mut self,
        number: u64,
        message: Message,
        payload: Vec<u8>,
        len: usize,
    ) -> Result<bool, LinkError> {
        if number < self.expected || self.came.contains_key(&number) {
            return Ok(false);
        }
        let ahead = number - self.expected;
        let is_far = usize::try_from(ahead).is_ok_and(|ahead| ahead >= FRAMES_AHEAD_MAX);
        // The other end keeps what was not taken, and no more than this.
        let is_much = !self.came.is_empty() && self.came_bytes + len > AHEAD_MAX;
        if is_far || is_much {
            return Err(LinkError::PeerAhead { number, expected: self.expected });
        }
        self.came_bytes += len;
        self.came.insert(number, (message, payload, len));
        Ok(true)
    }

    /// Takes the next frame in order, if it is there.
    pub(super) fn take(&mut self) -> Option<(Message, Vec<u8>)> {
        let (message, payload, len) = self.came.remove(&self.expected)?;
        self.came_bytes -= len;
        self.expected += 1;
        self.untold = (self.untold.0 + 1, self.untold.1 + len);
        if self.untold.0 >= UNTOLD_FRAMES || self.untold.1 >= UNTOLD_BYTES {
            self.untold = (0, 0);
            if let Some(at) = self.idlest() {
                self.parts[at].owes = true;
                self.parts[at].bell.notify_one();
            }
        }
        Some((message, payload))
    }
}

/// The other end is told after so many frames, or bytes, that they were taken; and now and then.
const UNTOLD_FRAMES: u64 = 256;
const UNTOLD_BYTES: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_in_order_once_and_not_too_far_ahead() {
        let mut state = State::default();
        let come =
            |state: &mut State, number, len| state.comes(number, Message::Alive, vec![0; 1], len);
        assert!(come(&mut state, 1, 100).unwrap());
        assert!(state.take().is_none());
        assert!(!come(&mut state, 1, 100).unwrap());
        assert!(come(&mut state, 0, 100).unwrap());
        assert!(state.take().is_some() && state.take().is_some() && state.take().is_none());
        assert!(!come(&mut state, 1, 100).unwrap());
        come(&mut state, 2 + FRAMES_AHEAD_MAX as u64, 1).unwrap_err();
        assert!(come(&mut state, 3, AHEAD_MAX).unwrap());
        come(&mut state, 4, 1).unwrap_err();
    }

    #[test]
    fn what_was_taken_is_kept_no_more_and_nobody_takes_what_was_not_sent() {
        let mut state = State { next: 2, ..State::default() };
        for number in 0..2 {
            let frame = Arc::new(Frame { number, head: vec![0; 4], payload: vec![0; 6] });
            state.kept_bytes += frame.len();
            state.kept.push_back((frame, 0));
        }
        state.has_got(1).unwrap();
        assert_eq!((state.kept.len(), state.kept_bytes), (1, 10));
        state.has_got(3).unwrap_err();
        assert!(state.has_room(AHEAD_MAX - 10) && !state.has_room(AHEAD_MAX));
    }
}
