//! Incomplete messages, and the terms that the next segment of each must meet.
//!
//! A tagged and an untagged message may alternate at segment boundaries, two messages of the same
//! model may not. Both directions keep to that rule, so one record of each model is enough.

use crate::ddp::{QueueNumber, Stag};
use crate::rdmap::Opcode;

/// A tagged message that is not complete.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct OpenTagged {
    pub(super) opcode: Opcode,
    pub(super) stag: Stag,
    /// Offset at which the next segment begins.
    pub(super) next: u64,
}

/// An untagged message that is not complete.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct OpenUntagged {
    pub(super) opcode: Opcode,
    pub(super) ulp_word: u32,
    /// Offset at which the next segment begins.
    pub(super) next: u32,
}

/// The next message number of each queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequences([u32; QUEUES]);

impl Sequences {
    /// RFC 5041 §4.3: the first message of each queue has number 1.
    pub(super) fn new() -> Self {
        Self([1; QUEUES])
    }

    pub(super) fn next(&self, queue: QueueNumber) -> u32 {
        self.0[index(queue)]
    }

    /// RFC 5041 §4.3: 0 comes after 2^32 - 1.
    pub(super) fn advance(&mut self, queue: QueueNumber) {
        let next = &mut self.0[index(queue)];
        *next = next.wrapping_add(1);
    }
}

/// Callers pass only queues that an [`Opcode`] uses.
fn index(queue: QueueNumber) -> usize {
    match queue {
        QueueNumber::SEND => 0,
        QueueNumber::REQUEST => 1,
        QueueNumber::TERMINATE => 2,
        _ => 3,
    }
}

const QUEUES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_numbers_begin_at_one_and_wrap_to_zero_per_queue() {
        let mut sequences = Sequences::new();
        sequences.0[1] = u32::MAX;
        sequences.advance(QueueNumber::REQUEST);
        sequences.advance(QueueNumber::RESPONSE);
        assert_eq!(sequences.next(QueueNumber::REQUEST), 0);
        assert_eq!(sequences.next(QueueNumber::RESPONSE), 2);
        assert_eq!(sequences.next(QueueNumber::SEND), 1);
    }

    #[test]
    fn each_queue_has_numbers_of_its_own() {
        let queues = [
            QueueNumber::SEND,
            QueueNumber::REQUEST,
            QueueNumber::TERMINATE,
            QueueNumber::RESPONSE,
        ];
        for queue in queues {
            let mut sequences = Sequences::new();
            sequences.advance(queue);
            for other in queues {
                let expected = if other == queue { 2 } else { 1 };
                assert_eq!(sequences.next(other), expected, "{other:?} after one of {queue:?}");
            }
        }
    }
}
