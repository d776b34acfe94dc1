//! The writes of a region that are not known to be durable, oldest first, with their bytes.
//!
//! ```text
//!  oldest                                       newest
//!  | write 7 | write 8 | (durable) | write 10 | write 11 | free ...
//!  ^ head: leaves when everything before it is durable    ^ tail
//! ```
//!
//! The bytes stay in the ring until a commit that covers them was acknowledged, whatever happens
//! to the push connection, so that they can be written again by messages. A durable write also stays
//! while an older write is not durable: it marks the bytes of the older write that are replaced for
//! good and must never be written again. Otherwise replaying a write that did arrive is harmless:
//! same bytes, same place, under the same lease ([`super::Control::may_replay`]).
//!
//! The bytes are in one ring of fixed size: a write allocates nothing.

use std::collections::VecDeque;
use std::ops::Range;

/// Position of an operation among all operations of its region; grows by one with each.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Sequence(pub(crate) u64);

/// What a write may overtake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Order {
    /// Anything: the peer orders no placement behind earlier commits (RFC 5040 §5.5).
    Free,
    /// No commit before it.
    BehindCommits,
}

/// The ring and its index.
#[derive(Debug)]
pub(crate) struct Unconfirmed {
    ring: Box<[u8]>,
    /// Position of the next byte, counted over all bytes ever written.
    tail: u64,
    entries: VecDeque<Entry>,
}

/// One write in the ring.
#[derive(Clone, Debug)]
struct Entry {
    sequence: Sequence,
    /// The range in the file.
    range: Range<u64>,
    /// Position of its first byte in the ring, counted over all bytes ever written.
    start: u64,
    order: Order,
    is_durable: bool,
}

impl Unconfirmed {
    /// No writes yet, and room for at most `capacity` bytes in at most `entries_max` writes.
    pub(crate) fn new(capacity: usize, entries_max: usize) -> Self {
        let ring = vec![0; capacity].into_boxed_slice();
        Self { ring, tail: 0, entries: VecDeque::with_capacity(entries_max) }
    }

    /// Whether a write of `len` bytes fits now.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        let head = self.entries.front().map_or(self.tail, |entry| entry.start);
        let used = self.tail - head;
        self.entries.len() < self.entries.capacity()
            && used.saturating_add(wide(len)) <= wide(self.ring.len())
    }

    /// The longest write that fits the empty ring, in bytes.
    pub(crate) fn write_max(&self) -> usize {
        self.ring.len()
    }

    /// Adds a write. The caller has asked [`Unconfirmed::has_room`].
    pub(crate) fn push(&mut self, sequence: Sequence, offset: u64, bytes: &[u8], order: Order) {
        debug_assert!(self.has_room(bytes.len()), "a write is kept where it fits");
        let start = self.tail;
        let position = self.position(start);
        let first = bytes.len().min(self.ring.len() - position);
        self.ring[position..position + first].copy_from_slice(&bytes[..first]);
        self.ring[..bytes.len() - first].copy_from_slice(&bytes[first..]);
        self.tail += wide(bytes.len());
        let range = offset..offset + wide(bytes.len());
        self.entries.push_back(Entry { sequence, range, start, order, is_durable: false });
    }

    /// The newest store of a word within `range` that was posted after everything the peer has answered, if there is one.
    pub(crate) fn open_store(&self, range: &Range<u64>, answered: Sequence) -> Option<Range<u64>> {
        let posted_after = self.entries.iter().rev().take_while(|entry| entry.sequence > answered);
        let mut stores = posted_after.filter(|entry| entry.order == Order::BehindCommits);
        let within =
            |entry: &&Entry| entry.range.start < range.end && range.start < entry.range.end;
        stores.find(within).map(|entry| entry.range.clone())
    }

    /// Handles the acknowledgement of a commit of `range` that was posted at `sequence`.
    pub(crate) fn committed(&mut self, sequence: Sequence, range: &Range<u64>) {
        for entry in &mut self.entries {
            if entry.sequence > sequence {
                break;
            }
            entry.is_durable |= range.start <= entry.range.start && entry.range.end <= range.end;
        }
        while self.entries.front().is_some_and(|entry| entry.is_durable) {
            self.entries.pop_front();
        }
    }

    /// The file range that covers every unconfirmed write, if there is one.
    pub(crate) fn span(&self) -> Option<Range<u64>> {
        let kept = || self.entries.iter().filter(|entry| !entry.is_durable);
        let start = kept().map(|entry| entry.range.start).min()?;
        let end = kept().map(|entry| entry.range.end).max()?;
        Some(start..end)
    }

    /// The writes to carry out again, oldest first: sequence, file offset, and the bytes in one or
    /// two pieces. `unanswered` are the operations without an outcome, in order.
    ///
    /// A byte is written with the newest value that it may have there, never with one that a newer write
    /// replaced: the peer may have carried the newer one out, made it durable and published it, and a failure
    /// of the peer would then find the older. Only what is ordered behind commits is not written ahead of
    /// them. A durable write is not written again, and the older writes that it replaced stay replaced.
    pub(crate) fn replay(&self, unanswered: &[Sequence]) -> Vec<(Sequence, u64, [&[u8]; 2])> {
        let mut writes = Vec::new();
        for (index, entry) in self.entries.iter().enumerate().filter(|(_, one)| !one.is_durable) {
            let barrier = unanswered.iter().find(|operation| **operation > entry.sequence);
            let newer = || self.entries.range(index + 1..).rev();
            let is_there = |later: &&Entry| {
                later.is_durable || barrier.is_none_or(|barrier| later.sequence < *barrier)
            };
            // Replaced for good, or by what comes before anything can look at it.
            let mut left = vec![entry.range.clone()];
            for later in newer().filter(is_there) {
                left = left.into_iter().flat_map(|range| without(range, &later.range)).collect();
            }
            for later in newer().filter(|later| !is_there(later) && later.order == Order::Free) {
                for range in &left {
                    let start = range.start.max(later.range.start);
                    let end = range.end.min(later.range.end);
                    if start < end {
                        writes.push((entry.sequence, start, self.bytes(later, start..end)));
                    }
                }
                left = left.into_iter().flat_map(|range| without(range, &later.range)).collect();
            }
            writes.extend(left.into_iter().map(|range| {
                let start = range.start;
                (entry.sequence, start, self.bytes(entry, range))
            }));
        }
        writes
    }

    /// The ranges of bytes that are not known to be durable, in order.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        let left = self.replay(&[]).into_iter();
        let ranges = left
            .map(|(_, start, [first, rest])| start..start + wide(first.len()) + wide(rest.len()));
        merged(ranges.collect())
    }

    /// Part of a write, in one or two pieces.
    fn bytes(&self, entry: &Entry, range: Range<u64>) -> [&[u8]; 2] {
        let len = usize::try_from(range.end - range.start)
            .expect("a kept write fits the ring, whose length is a usize");
        let position = self.position(entry.start + (range.start - entry.range.start));
        let first = len.min(self.ring.len() - position);
        [&self.ring[position..position + first], &self.ring[..len - first]]
    }

    /// Empties the ring: everything is durable.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    fn position(&self, start: u64) -> usize {
        if self.ring.is_empty() {
            return 0;
        }
        usize::try_from(start % wide(self.ring.len())).expect("less than a usize")
    }
}

/// The parts of `range` outside `cut`: none, one or two.
fn without(range: Range<u64>, cut: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let before = range.start..range.end.min(cut.start);
    let after = range.start.max(cut.end)..range.end;
    [before, after].into_iter().filter(|piece| piece.start < piece.end)
}

/// The same bytes in as few ranges as possible, in order.
pub(super) fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("usize has at most 64 bits here")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contents(unconfirmed: &Unconfirmed) -> Vec<(u64, Vec<u8>)> {
        let writes = unconfirmed.replay(&[]).into_iter();
        writes.map(|(_, offset, pieces)| (offset, pieces.concat())).collect()
    }

    #[test]
    fn a_replay_writes_no_older_bytes_over_newer_durable_ones() {
        let mut unconfirmed = Unconfirmed::new(64, 8);
        unconfirmed.push(Sequence(1), 0, b"11111", Order::Free);
        unconfirmed.push(Sequence(2), 1, b"2", Order::Free);
        unconfirmed.committed(Sequence(3), &(1..2));
        assert_eq!(contents(&unconfirmed), [(0, b"1".to_vec()), (2, b"111".to_vec())]);
    }

    #[test]
    fn a_commit_within_two_writes_is_never_undone_by_a_replay() {
        let mut unconfirmed = Unconfirmed::new(64, 8);
        unconfirmed.push(Sequence(1), 0, b"1111", Order::Free);
        unconfirmed.push(Sequence(2), 0, b"2222", Order::Free);
        // The commit covers neither write as a whole, yet it acknowledged the newer bytes.
        unconfirmed.committed(Sequence(3), &(1..3));
        assert_eq!(contents(&unconfirmed), [(0, b"2222".to_vec())]);
    }

    #[test]
    fn a_replay_writes_bytes_before_the_unanswered_operation_that_reads_them() {
        let mut unconfirmed = Unconfirmed::new(64, 8);
        unconfirmed.push(Sequence(1), 0, b"1111", Order::Free);
        unconfirmed.push(Sequence(3), 0, b"3333", Order::Free);
        let writes = unconfirmed.replay(&[Sequence(2)]);
        let writes: Vec<_> = writes.iter().map(|(sequence, ..)| sequence.0).collect();
        assert_eq!(writes, [1, 3]);
    }

    #[test]
    fn a_write_that_is_replaced_before_anything_looks_at_it_is_not_carried_out_again() {
        let mut unconfirmed = Unconfirmed::new(64, 8);
        unconfirmed.push(Sequence(1), 0, b"1111", Order::Free);
        unconfirmed.push(Sequence(2), 0, b"2222", Order::Free);
        let writes = unconfirmed.replay(&[Sequence(5)]);
        let writes: Vec<_> = writes.iter().map(|(sequence, ..)| sequence.0).collect();
        assert_eq!(writes, [2]);
    }

    #[test]
    fn a_store_is_open_for_what_overlaps_it_until_something_behind_it_is_answered() {
        let mut unconfirmed = Unconfirmed::new(64, 8);
        unconfirmed.push(Sequence(1), 8, b"pointer1", Order::BehindCommits);
        unconfirmed.push(Sequence(3), 32, b"freely", Order::Free);
        let open = |range, answered| unconfirmed.open_store(&range, Sequence(answered));
        for range in [0..9, 15..16, 8..16, 0..64] {
            assert_eq!(open(range.clone(), 0), Some(8..16), "{range:?}");
        }
        for range in [0..8, 16..24, 32..40] {
            assert_eq!(open(range.clone(), 0), None, "{range:?}");
        }
        assert_eq!(open(8..16, 1), None, "the peer has carried it out");
    }

    #[test]
    fn a_replay_sends_no_write_without_bytes() {
        let mut unconfirmed = Unconfirmed::new(64, 8);
        unconfirmed.push(Sequence(1), 0, b"1111", Order::Free);
        unconfirmed.push(Sequence(3), 4, b"3333", Order::Free);
        let writes = unconfirmed.replay(&[Sequence(2)]).into_iter();
        let writes: Vec<_> = writes.map(|(_, at, pieces)| (at, pieces.concat())).collect();
        assert_eq!(writes, [(0, b"1111".to_vec()), (4, b"3333".to_vec())]);
    }

    #[test]
    fn the_list_of_writes_never_grows() {
        let mut unconfirmed = Unconfirmed::new(1 << 20, 8);
        let capacity = unconfirmed.entries.capacity();
        let mut sequence = 0;
        while unconfirmed.has_room(1) {
            sequence += 1;
            unconfirmed.push(Sequence(sequence), sequence, b"a", Order::Free);
        }
        assert_eq!(unconfirmed.entries.len(), capacity);
    }

    #[test]
    fn a_range_that_lies_around_the_end_of_the_ring_is_named_whole() {
        let mut unconfirmed = Unconfirmed::new(8, 8);
        unconfirmed.push(Sequence(1), 0, b"aaaaaa", Order::Free);
        unconfirmed.committed(Sequence(2), &(0..6));
        unconfirmed.push(Sequence(3), 100, b"bcdefg", Order::Free);
        let ranges = unconfirmed.ranges();
        assert_eq!((ranges.len(), &ranges[0]), (1, &(100..106)));
        assert_eq!(contents(&unconfirmed), [(100, b"bcdefg".to_vec())]);
    }

    #[test]
    fn what_was_carried_out_again_is_not_kept() {
        let mut unconfirmed = Unconfirmed::new(8, 8);
        unconfirmed.push(Sequence(1), 0, b"aaaaaaaa", Order::Free);
        assert!(!unconfirmed.has_room(1));
        unconfirmed.clear();
        assert!(contents(&unconfirmed).is_empty() && unconfirmed.has_room(8));
    }

    #[test]
    fn a_replay_undoes_no_write_that_may_have_been_published() {
        // The peer may have carried out all of it: the record, its commit, and the pointer to it.
        let mut unconfirmed = Unconfirmed::new(64, 8);
        unconfirmed.push(Sequence(1), 0, b"older", Order::Free);
        unconfirmed.push(Sequence(3), 0, b"newer", Order::Free);
        unconfirmed.push(Sequence(5), 8, b"pointer!", Order::BehindCommits);
        let writes = unconfirmed.replay(&[Sequence(2), Sequence(4), Sequence(6)]);
        let writes =
            writes.into_iter().map(|(sequence, at, pieces)| (sequence.0, at, pieces.concat()));
        let expected: [(u64, u64, &[u8]); 3] =
            [(1, 0, b"newer"), (3, 0, b"newer"), (5, 8, b"pointer!")];
        assert_eq!(
            writes.collect::<Vec<_>>(),
            expected.map(|(one, at, is)| (one, at, is.to_vec()))
        );
    }

    #[test]
    fn a_replay_brings_no_pointer_ahead_of_the_commit_that_it_waits_for() {
        let mut unconfirmed = Unconfirmed::new(64, 8);
        unconfirmed.push(Sequence(1), 8, b"pointer1", Order::BehindCommits);
        unconfirmed.push(Sequence(3), 8, b"pointer2", Order::BehindCommits);
        let writes = unconfirmed.replay(&[Sequence(2), Sequence(4)]);
        let writes: Vec<_> = writes.into_iter().map(|(_, _, pieces)| pieces.concat()).collect();
        assert_eq!(writes, [b"pointer1", b"pointer2"]);
    }

    #[test]
    fn a_commit_frees_only_what_it_covers_and_was_posted_before_it() {
        let mut unconfirmed = Unconfirmed::new(64, 8);
        unconfirmed.push(Sequence(1), 0, b"aaaa", Order::Free);
        unconfirmed.push(Sequence(2), 100, b"bbbb", Order::Free);
        unconfirmed.push(Sequence(4), 0, b"cccc", Order::Free);
        unconfirmed.committed(Sequence(3), &(0..50));
        assert_eq!(contents(&unconfirmed), [(100, b"bbbb".to_vec()), (0, b"cccc".to_vec())]);
        assert_eq!(unconfirmed.span(), Some(0..104));
    }

    #[test]
    fn unconfirmed_ranges_are_named_in_order_and_once() {
        let mut unconfirmed = Unconfirmed::new(64, 8);
        unconfirmed.push(Sequence(1), 20, b"aaaa", Order::Free);
        unconfirmed.push(Sequence(2), 0, b"bbbbbbbb", Order::Free);
        unconfirmed.push(Sequence(3), 6, b"cccc", Order::Free);
        unconfirmed.push(Sequence(4), 21, b"dd", Order::Free);
        unconfirmed.committed(Sequence(5), &(21..23));
        assert_eq!(unconfirmed.ranges(), [0..10, 20..21, 23..24]);
    }

    #[test]
    fn a_partly_covered_write_is_kept() {
        let mut unconfirmed = Unconfirmed::new(64, 8);
        unconfirmed.push(Sequence(1), 10, b"aaaa", Order::Free);
        unconfirmed.committed(Sequence(2), &(0..13));
        assert_eq!(contents(&unconfirmed).len(), 1);
    }

    #[test]
    fn a_durable_write_behind_an_older_one_keeps_its_room() {
        let mut unconfirmed = Unconfirmed::new(8, 8);
        unconfirmed.push(Sequence(1), 0, b"aaaa", Order::Free);
        unconfirmed.push(Sequence(2), 10, b"bbbb", Order::Free);
        unconfirmed.committed(Sequence(3), &(10..14));
        assert!(!unconfirmed.has_room(1), "the ring is freed from its head");
        unconfirmed.committed(Sequence(4), &(0..4));
        assert!(unconfirmed.has_room(8));
    }

    proptest! {
        #[test]
        fn a_replay_writes_only_newest_bytes_and_all_that_may_be_lost(
            operations in prop::collection::vec((0_usize..40, 1_usize..12, any::<bool>()), 1..40),
        ) {
            let mut unconfirmed = Unconfirmed::new(1000, 64);
            let (mut newest, mut durable) = ([0_u8; 64], [0_u8; 64]);
            for (sequence, (offset, len, commits)) in (1_u64..).zip(operations) {
                let (start, end) = (wide(offset), wide(offset + len));
                if commits {
                    unconfirmed.committed(Sequence(sequence), &(start..end));
                    durable[offset..offset + len].copy_from_slice(&newest[offset..offset + len]);
                } else {
                    let byte = u8::try_from(sequence).unwrap();
                    unconfirmed.push(Sequence(sequence), start, &vec![byte; len], Order::Free);
                    newest[offset..offset + len].fill(byte);
                }
            }
            // The worst that a lost connection can leave: only the acknowledged bytes.
            for (_, offset, pieces) in unconfirmed.replay(&[]) {
                let (at, bytes) = (usize::try_from(offset).unwrap(), pieces.concat());
                prop_assert_eq!(&bytes[..], &newest[at..at + bytes.len()]);
                durable[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            prop_assert_eq!(durable, newest);
        }

        #[test]
        fn the_ring_keeps_what_a_plain_list_keeps(
            operations in prop::collection::vec((0_u64..64, 1_usize..24, any::<u8>(), any::<bool>()), 1..200),
        ) {
            let mut unconfirmed = Unconfirmed::new(100, 16);
            let mut model: Vec<(u64, u64, Vec<u8>)> = Vec::new();
            for (sequence, (offset, len, byte, commits)) in (0_u64..).zip(operations) {
                let end = offset + u64::try_from(len).unwrap();
                if commits || !unconfirmed.has_room(len) {
                    unconfirmed.committed(Sequence(sequence), &(offset..end));
                    model.retain(|(_, at, bytes)| {
                        !(offset <= *at && *at + u64::try_from(bytes.len()).unwrap() <= end)
                    });
                } else {
                    let bytes = vec![byte; len];
                    unconfirmed.push(Sequence(sequence), offset, &bytes, Order::Free);
                    model.push((sequence, offset, bytes));
                }
                let kept = unconfirmed.entries.iter().filter(|entry| !entry.is_durable);
                let kept: Vec<_> = kept
                    .map(|entry| {
                        let bytes = unconfirmed.bytes(entry, entry.range.clone()).concat();
                        (entry.sequence.0, entry.range.start, bytes)
                    })
                    .collect();
                prop_assert_eq!(kept, model.clone());
            }
        }
    }
}
