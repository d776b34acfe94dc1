//! What both directions of a link of several connections have on the way: no socket, no thread.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::super::error::LinkError;
use super::bounds::{AHEAD_MAX, FRAMES_AHEAD_MAX};
use crate::message::Message;

/// A frame that was sent.
#[derive(Debug)]
pub struct Frame {
    /// Its place among those of its direction.
    pub number: u64,
    /// Head and body.
    pub head: Vec<u8>,
    /// What follows it.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        self.head.len() + self.payload.len()
    }
}

/// What both directions of a link have on the way.
#[derive(Debug, Default)]
pub struct Flow {
    /// The number of the next frame that is sent.
    next: u64,
    /// What was sent and not taken, with the connections over which it went.
    kept: VecDeque<(Arc<Frame>, u64)>,
    kept_bytes: usize,
    /// The number of the next frame that is taken.
    expected: u64,
    /// Frames that came before others that are expected first, or that nobody has taken yet.
    came: BTreeMap<u64, (Message, Vec<u8>, usize)>,
    came_bytes: usize,
    /// What was taken since the other end was told.
    untold: (u64, usize),
}

impl Flow {
    /// Whether a frame of this length may be sent.
    pub fn has_room(&self, len: usize) -> bool {
        let is_alone = self.kept.is_empty();
        self.kept.len() < FRAMES_AHEAD_MAX && (is_alone || self.kept_bytes + len <= AHEAD_MAX)
    }

    /// The next frame. It goes over the connection of that number, and is kept until the other end has taken it.
    pub fn send(&mut self, head: Vec<u8>, payload: Vec<u8>, over: u64) -> Arc<Frame> {
        let frame = Arc::new(Frame { number: self.next, head, payload });
        self.next += 1;
        self.kept_bytes += frame.bytes();
        self.kept.push_back((Arc::clone(&frame), over));
        frame
    }

    /// The other end has taken everything below.
    ///
    /// # Errors
    ///
    /// So much was not sent.
    pub fn has_got(&mut self, got: u64) -> Result<(), LinkError> {
        if got > self.next {
            return Err(LinkError::PeerGot { got, sent: self.next });
        }
        while let Some((frame, _)) = self.kept.front().filter(|(frame, _)| frame.number < got) {
            self.kept_bytes -= frame.bytes();
            self.kept.pop_front();
        }
        Ok(())
    }

    /// What went over a connection and was not taken, in order, with the number that says over which it goes.
    pub fn kept_over(&mut self, number: u64) -> impl Iterator<Item = (&Arc<Frame>, &mut u64)> {
        self.kept.iter_mut().filter(move |(_, of)| *of == number).map(|(frame, of)| (&*frame, of))
    }

    /// Everything below was taken here.
    pub const fn got(&self) -> u64 {
        self.expected
    }

    /// A frame came. Whether it was not there yet.
    ///
    /// # Errors
    ///
    /// It is further ahead than may be sent.
    pub fn comes(
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
    pub fn take(&mut self) -> Option<(Message, Vec<u8>)> {
        let (message, payload, len) = self.came.remove(&self.expected)?;
        self.came_bytes -= len;
        self.expected += 1;
        self.untold = (self.untold.0 + 1, self.untold.1 + len);
        Some((message, payload))
    }

    /// Whether so much was taken that the other end is told now; counts anew then.
    pub fn is_to_be_told(&mut self) -> bool {
        let is_much = self.untold.0 >= UNTOLD_FRAMES || self.untold.1 >= UNTOLD_BYTES;
        if is_much {
            self.untold = (0, 0);
        }
        is_much
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
        let mut flow = Flow::default();
        let come =
            |flow: &mut Flow, number, len| flow.comes(number, Message::Alive, vec![0; 1], len);
        assert!(come(&mut flow, 1, 100).unwrap());
        assert!(flow.take().is_none());
        assert!(!come(&mut flow, 1, 100).unwrap());
        assert!(come(&mut flow, 0, 100).unwrap());
        assert!(flow.take().is_some() && flow.take().is_some() && flow.take().is_none());
        assert!(!come(&mut flow, 1, 100).unwrap());
        come(&mut flow, 2 + FRAMES_AHEAD_MAX as u64, 1).unwrap_err();
        assert!(come(&mut flow, 3, AHEAD_MAX).unwrap());
        come(&mut flow, 4, 1).unwrap_err();
    }

    #[test]
    fn what_was_taken_is_kept_no_more_and_nobody_takes_what_was_not_sent() {
        let mut flow = Flow::default();
        for over in 0..2 {
            flow.send(vec![0; 4], vec![0; 6], over);
        }
        flow.has_got(1).unwrap();
        assert_eq!((flow.kept.len(), flow.kept_bytes), (1, 10));
        assert_eq!((flow.kept_over(0).count(), flow.kept_over(1).count()), (0, 1));
        flow.has_got(3).unwrap_err();
        assert!(flow.has_room(AHEAD_MAX - 10) && !flow.has_room(AHEAD_MAX));
    }
}
