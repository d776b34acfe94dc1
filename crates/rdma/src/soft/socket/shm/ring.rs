//! A ring of bytes with one end that puts in and one that takes out.
//!
//! ```text
//!   0            head mod L          tail mod L             L = RING_LEN
//!   +------------+-------------------+----------------------+
//!   | free       | put in, not taken | free                 |
//!   +------------+-------------------+----------------------+
//! ```
//!
//! Head and tail count all bytes since the beginning and may wrap. Each end keeps its own position to itself
//! and only tells it to the other; the position that the other tells is copied out once for each use, and is
//! good only if it leaves 0 to L bytes in the ring. So whatever the peer writes, at most L bytes are
//! taken in one go, from inside the ring, and a position that runs backwards or too far ends the connection.

use thiserror::Error;

use super::segment::{RING_LEN, Ring, Segment, Word};

/// The end that puts in.
#[derive(Debug)]
pub(super) struct Producer {
    ring: Ring,
    tail: u64,
}

/// The end that takes out.
#[derive(Debug)]
pub(super) struct Consumer {
    ring: Ring,
    head: u64,
}

/// The peer tells a position that it cannot have.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("the peer is at {theirs:#x} of a ring, and we at {ours:#x}: more than its length apart")]
pub(super) struct PeerPosition {
    theirs: u64,
    ours: u64,
}

impl Producer {
    pub(super) fn new(ring: Ring) -> Self {
        Self { ring, tail: 0 }
    }

    /// Bytes that can be put in.
    pub(super) fn free(&self, segment: &Segment) -> Result<usize, PeerPosition> {
        let head = segment.load(Word::Head(self.ring));
        let used =
            between(head, self.tail).ok_or(PeerPosition { theirs: head, ours: self.tail })?;
        Ok(RING_LEN - used)
    }

    /// Bytes that the peer has taken out since the beginning.
    pub(super) fn taken_out(&self, segment: &Segment) -> Result<u64, PeerPosition> {
        let used = RING_LEN - self.free(segment)?;
        Ok(self.tail.wrapping_sub(as_u64(used)))
    }

    /// Puts in what fits, and tells the peer; returns how much that was.
    pub(super) fn put(&mut self, segment: &Segment, bytes: &[u8]) -> Result<usize, PeerPosition> {
        let len = self.free(segment)?.min(bytes.len());
        let at = place(self.tail);
        let (first, rest) = bytes.split_at(len).0.split_at(len.min(RING_LEN - at));
        segment.copy_in(self.ring, at, first);
        segment.copy_in(self.ring, 0, rest);
        if len > 0 {
            self.tail = self.tail.wrapping_add(as_u64(len));
            segment.store(Word::Tail(self.ring), self.tail);
        }
        Ok(len)
    }
}

impl Consumer {
    pub(super) fn new(ring: Ring) -> Self {
        Self { ring, head: 0 }
    }

    /// Bytes that can be taken.
    pub(super) fn there(&self, segment: &Segment) -> Result<usize, PeerPosition> {
        let tail = segment.load(Word::Tail(self.ring));
        between(self.head, tail).ok_or(PeerPosition { theirs: tail, ours: self.head })
    }

    /// Bytes that the peer has put in since the beginning.
    pub(super) fn put_in(&self, segment: &Segment) -> Result<u64, PeerPosition> {
        Ok(self.head.wrapping_add(as_u64(self.there(segment)?)))
    }

    /// Takes what fits into `room`, and gives the peer the place; returns how much that was.
    pub(super) fn take(
        &mut self,
        segment: &Segment,
        room: &mut [u8],
    ) -> Result<usize, PeerPosition> {
        let len = self.there(segment)?.min(room.len());
        let at = place(self.head);
        let (first, rest) = room.split_at_mut(len).0.split_at_mut(len.min(RING_LEN - at));
        segment.copy_out(self.ring, at, first);
        segment.copy_out(self.ring, 0, rest);
        if len > 0 {
            self.head = self.head.wrapping_add(as_u64(len));
            segment.store(Word::Head(self.ring), self.head);
        }
        Ok(len)
    }
}

/// Bytes from head to tail, if so many fit the ring.
fn between(head: u64, tail: u64) -> Option<usize> {
    usize::try_from(tail.wrapping_sub(head)).ok().filter(|len| *len <= RING_LEN)
}

/// Where in the ring a position is.
fn place(position: u64) -> usize {
    usize::try_from(position % as_u64(RING_LEN)).expect("less than the length of the ring")
}

fn as_u64(len: usize) -> u64 {
    u64::try_from(len).expect("usize has at most 64 bits")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RING: Ring = Ring::ToAcceptor;

    /// A ring whose ends both begin at `position`.
    fn ring_at(position: u64) -> (Segment, Producer, Consumer) {
        let (segment, _fd) = Segment::create().unwrap();
        segment.store(Word::Tail(RING), position);
        segment.store(Word::Head(RING), position);
        let producer = Producer { ring: RING, tail: position };
        (segment, producer, Consumer { ring: RING, head: position })
    }

    #[test]
    fn bytes_leave_in_the_order_they_came_also_where_positions_wrap() {
        let (segment, mut producer, mut consumer) = ring_at(u64::MAX - 1000);
        let (mut came, mut left) = (0_u8, 0_u8);
        let mut room = [0; 5000];
        for len in (0..400).map(|round| round * 37 % 4999) {
            let bytes: Vec<u8> = (0..len)
                .map(|_| {
                    came = came.wrapping_add(1);
                    came
                })
                .collect();
            assert_eq!(producer.put(&segment, &bytes), Ok(len));
            assert_eq!(consumer.take(&segment, &mut room), Ok(len));
            for byte in &room[..len] {
                left = left.wrapping_add(1);
                assert_eq!(*byte, left);
            }
        }
        assert!(producer.tail < u64::MAX / 2, "the test never wrapped");
    }

    #[test]
    fn a_full_ring_takes_nothing_and_an_empty_one_gives_nothing() {
        let (segment, mut producer, mut consumer) = ring_at(5);
        let mut room = [0; 16];
        assert_eq!(consumer.take(&segment, &mut room), Ok(0));
        assert_eq!(producer.put(&segment, &vec![7; RING_LEN + 1]), Ok(RING_LEN));
        assert_eq!(producer.put(&segment, &[8]), Ok(0));
        assert_eq!(consumer.there(&segment), Ok(RING_LEN));
        assert_eq!(consumer.take(&segment, &mut room), Ok(16));
        assert_eq!(producer.free(&segment), Ok(16));
    }

    #[test]
    fn a_position_outside_the_ring_is_refused_by_both_ends() {
        let (segment, mut producer, mut consumer) = ring_at(0);
        let beyond = u64::try_from(RING_LEN).unwrap() + 1;
        for lie in [beyond, u64::MAX, 1 << 63] {
            segment.store(Word::Tail(RING), lie);
            let refused = PeerPosition { theirs: lie, ours: 0 };
            assert_eq!(consumer.take(&segment, &mut [0; 8]), Err(refused));
        }
        for lie in [1, beyond, 1 << 63] {
            segment.store(Word::Head(RING), lie);
            let refused = PeerPosition { theirs: lie, ours: 0 };
            assert_eq!(producer.put(&segment, b"never"), Err(refused));
        }
        assert_eq!((producer.tail, consumer.head), (0, 0), "nothing was put or taken");
    }

    /// What an end of ours does, and what the peer writes in between.
    #[derive(Clone, Debug)]
    enum Operation {
        Put(usize),
        Take(usize),
        Lie(Word, u64),
    }

    fn operations() -> impl Strategy<Value = Vec<Operation>> {
        let near = prop_oneof![any::<u64>(), 0..600_000_u64, (0..600_000_u64).prop_map(|n| !n)];
        let operation = prop_oneof![
            (0..RING_LEN + 10).prop_map(Operation::Put),
            (0..RING_LEN + 10).prop_map(Operation::Take),
            near.clone().prop_map(|value| Operation::Lie(Word::Tail(RING), value)),
            near.prop_map(|value| Operation::Lie(Word::Head(RING), value)),
        ];
        prop::collection::vec(operation, 0..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn whatever_positions_a_peer_writes_no_end_panics_or_moves_more_than_it_was_asked(
            operations in operations(), start in any::<u64>(),
        ) {
            let (segment, mut producer, mut consumer) = ring_at(start);
            let (bytes, mut room) = (vec![1; RING_LEN + 10], vec![0; RING_LEN + 10]);
            for operation in operations {
                match operation {
                    Operation::Put(len) => {
                        let put = producer.put(&segment, &bytes[..len]);
                        prop_assert!(put.is_err() || put.is_ok_and(|put| put <= len.min(RING_LEN)));
                    }
                    Operation::Take(len) => {
                        let taken = consumer.take(&segment, &mut room[..len]);
                        let most = len.min(RING_LEN);
                        prop_assert!(taken.is_err() || taken.is_ok_and(|taken| taken <= most));
                    }
                    Operation::Lie(word, value) => segment.store(word, value),
                }
            }
        }
    }
}
