//! SMB2 messages waiting to leave, and the fragments they are cut into.
//!
//! ```text
//!   front of the queue: |#### sent ####|-- next fragment --|-------- remaining --------|
//! ```
//!
//! A message is copied once, from the queue into the caller's transmit buffer. The token to
//! invalidate goes with the last fragment, because only then the peer has the whole answer.
//!
//! Spec: MS-SMBD §3.1.4.2, §3.1.5.4.

use std::collections::VecDeque;

use thiserror::Error;

use crate::descriptor::Token;
use crate::error::CloseReason;

/// The messages of one connection that have not left yet.
#[derive(Debug)]
pub(crate) struct SendQueue {
    messages: VecDeque<Outgoing>,
    sent: usize,
    size_max: u32,
}

#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    invalidate: Option<Token>,
}

/// One fragment, already copied out.
#[derive(Debug)]
pub(crate) struct Fragment {
    /// Bytes of the fragment.
    pub(crate) len: u32,
    /// Bytes of the message behind the fragment.
    pub(crate) remaining: u32,
    /// The message, if this fragment was its last.
    pub(crate) finished: Option<Finished>,
}

/// A message that has left.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The buffer of the message, for the caller to use again.
    pub(crate) message: Vec<u8>,
    /// The token of the peer to invalidate.
    pub(crate) invalidate: Option<Token>,
}

impl SendQueue {
    /// An empty queue for messages of at most `size_max` bytes.
    pub(crate) fn new(size_max: u32) -> Self {
        Self { messages: VecDeque::new(), sent: 0, size_max }
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(crate) fn push(
        &mut self,
        message: Vec<u8>,
        invalidate: Option<Token>,
    ) -> Result<(), Unsent> {
        let max = self.size_max;
        let reason = match u32::try_from(message.len()) {
            Ok(0) => SendError::ConfigEmpty,
            Ok(len) if len <= max && self.messages.len() < SEND_QUEUE_MAX => {
                self.messages.push_back(Outgoing { bytes: message, invalidate });
                return Ok(());
            }
            Ok(len) if len <= max => SendError::QueueFull,
            Ok(_) | Err(_) => SendError::ConfigTooLong { len: message.len(), max },
        };
        Err(Unsent { reason, message })
    }

    /// Copies as much of the first message as fits into `room`. `None` when nothing waits.
    pub(crate) fn next_fragment(&mut self, room: &mut [u8]) -> Option<Fragment> {
        let front = self.messages.front()?;
        let rest = &front.bytes[self.sent..];
        let len = rest.len().min(room.len());
        room[..len].copy_from_slice(&rest[..len]);
        let remaining = narrow(rest.len() - len);
        self.sent += len;
        let finished = if remaining == 0 { self.finish() } else { None };
        Some(Fragment { len: narrow(len), remaining, finished })
    }

    fn finish(&mut self) -> Option<Finished> {
        self.sent = 0;
        let Outgoing { bytes, invalidate } = self.messages.pop_front()?;
        Some(Finished { message: bytes, invalidate })
    }
}

fn narrow(len: usize) -> u32 {
    u32::try_from(len).expect("push admits no message longer than a u32")
}

/// A message that the queue did not take, with the reason. The message is unchanged.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("message of {} bytes not queued: {reason}", message.len())]
pub struct Unsent {
    /// The reason.
    #[source]
    pub reason: SendError,
    /// The message.
    pub message: Vec<u8>,
}

/// The reason why the queue did not take a message.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SendError {
    /// The message is empty, which no SMB2 message is.
    #[error("it is empty")]
    ConfigEmpty,
    /// The message is larger than the peer reassembles.
    #[error("it has {len} bytes, the peer takes {max}")]
    ConfigTooLong {
        /// Bytes of the message.
        len: usize,
        /// The largest message that the peer reassembles, in bytes.
        max: u32,
    },
    /// The queue is full: try again when messages have left.
    #[error("{SEND_QUEUE_MAX} messages are waiting")]
    QueueFull,
    /// The connection has ended.
    #[error("the connection has ended: {0}")]
    Closed(CloseReason),
}

/// Most messages that wait on one connection. SMB2 credits keep a well-behaved peer far below this bound.
pub const SEND_QUEUE_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_and_its_last_fragment_carries_the_token() {
        let mut queue = SendQueue::new(100);
        queue.push(b"abcde".to_vec(), Some(Token(7))).unwrap();
        queue.push(b"f".to_vec(), None).unwrap();
        let mut room = [0; 3];
        let first = queue.next_fragment(&mut room).unwrap();
        assert_eq!((&room, first.len, first.remaining), (b"abc", 3, 2));
        assert!(first.finished.is_none());
        let second = queue.next_fragment(&mut room).unwrap();
        assert_eq!((&room[..2], second.len, second.remaining), (&b"de"[..], 2, 0));
        let finished = second.finished.unwrap();
        assert_eq!((finished.message, finished.invalidate), (b"abcde".to_vec(), Some(Token(7))));
        let third = queue.next_fragment(&mut room).unwrap();
        assert_eq!(third.finished.unwrap().invalidate, None);
        assert!(queue.next_fragment(&mut room).is_none());
    }

    #[test]
    fn a_message_that_cannot_be_queued_is_returned() {
        let mut queue = SendQueue::new(4);
        let reason = |queue: &mut SendQueue, len| {
            queue.push(vec![0; len], None).map_err(|unsent| (unsent.reason, unsent.message.len()))
        };
        assert_eq!(reason(&mut queue, 0), Err((SendError::ConfigEmpty, 0)));
        assert_eq!(reason(&mut queue, 5), Err((SendError::ConfigTooLong { len: 5, max: 4 }, 5)));
        for _ in 0..SEND_QUEUE_MAX {
            assert_eq!(reason(&mut queue, 4), Ok(()));
        }
        assert_eq!(reason(&mut queue, 4), Err((SendError::QueueFull, 4)));
    }
}
