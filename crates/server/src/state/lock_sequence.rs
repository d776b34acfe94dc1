//! Which LOCK requests of an open were carried out already: one that comes again after a lost
//! channel must not take, or give back, its ranges a second time.
//!
//! ```text
//!   31                                4 3        0
//!  +-----------------------------------+----------+
//!  | bucket 1..=64, others are ignored | number   |   LockSequenceNumber, LockSequenceIndex
//!  +-----------------------------------+----------+
//! ```
//!
//! A client counts the number of a bucket up with each request it puts there, and puts no request
//! there before the last one is answered. The copy of one that is still under way waits for what comes
//! of it.
//!
//! Spec: MS-SMB2 §2.2.26, §3.3.5.14.

use tokio::sync::{Notify, Semaphore};

use crate::limits::LOCK_COPIES_PER_OPEN_MAX;

/// The last request of each bucket that succeeded, and the one that is under way.
#[derive(Debug)]
pub(crate) struct LockSequences {
    done: [Option<u8>; BUCKETS],
    under_way: [Option<u8>; BUCKETS],
}

/// Copies of requests of one open that wait for the first copy: one for each channel it may have come over.
#[derive(Debug)]
pub(crate) struct LockCopies {
    /// Notified when a request has ended.
    pub(crate) ended: Notify,
    pub(crate) places: Semaphore,
}

impl Default for LockCopies {
    fn default() -> Self {
        Self { ended: Notify::new(), places: Semaphore::new(LOCK_COPIES_PER_OPEN_MAX) }
    }
}

/// What a request is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Copy {
    /// The first one; [`LockSequences::end`] has to follow.
    No,
    /// It has succeeded before.
    OfSuccess,
    /// The first copy is under way.
    OfOneUnderWay,
}

impl Default for LockSequences {
    fn default() -> Self {
        Self { done: [None; BUCKETS], under_way: [None; BUCKETS] }
    }
}

impl LockSequences {
    /// What an open that goes on has of this one: nothing is under way there.
    pub(crate) fn handed_over(&self) -> Self {
        Self { done: self.done, under_way: [None; BUCKETS] }
    }

    /// Says what a request is. If it is carried out its bucket is empty until it succeeds.
    pub(crate) fn begin(&mut self, sequence: u32) -> Copy {
        let Some((bucket, number)) = place(sequence) else { return Copy::No };
        if self.done[bucket] == Some(number) {
            return Copy::OfSuccess;
        }
        if self.under_way[bucket] == Some(number) {
            return Copy::OfOneUnderWay;
        }
        self.done[bucket] = None;
        self.under_way[bucket] = Some(number);
        Copy::No
    }

    /// The request has ended, whatever came of it.
    pub(crate) fn end(&mut self, sequence: u32) {
        if let Some((bucket, number)) = place(sequence)
            && self.under_way[bucket] == Some(number)
        {
            self.under_way[bucket] = None;
        }
    }

    /// The request has succeeded.
    pub(crate) fn set_done(&mut self, sequence: u32) {
        if let Some((bucket, number)) = place(sequence) {
            self.done[bucket] = Some(number);
        }
    }
}

fn place(sequence: u32) -> Option<(usize, u8)> {
    let bucket = usize::try_from(sequence >> 4).ok()?.checked_sub(1)?;
    let [number, ..] = (sequence & 0xf).to_le_bytes();
    (bucket < BUCKETS).then_some((bucket, number))
}

const BUCKETS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(sequences: &mut LockSequences, sequence: u32) -> Copy {
        let copy = sequences.begin(sequence);
        if copy == Copy::No {
            sequences.end(sequence);
        }
        copy
    }

    #[test]
    fn a_request_is_known_until_its_bucket_is_used_again() {
        let mut sequences = LockSequences::default();
        assert_eq!(tried(&mut sequences, 0x11), Copy::No);
        assert_eq!(tried(&mut sequences, 0x11), Copy::No, "it has not succeeded");
        sequences.set_done(0x11);
        assert_eq!(tried(&mut sequences, 0x11), Copy::OfSuccess);
        assert_eq!(tried(&mut sequences, 0x21), Copy::No);
        assert_eq!(tried(&mut sequences, 0x12), Copy::No);
        assert_eq!(tried(&mut sequences, 0x11), Copy::No, "a later one came in between");
    }

    #[test]
    fn a_copy_of_what_is_under_way_waits_and_nothing_else_does() {
        let mut sequences = LockSequences::default();
        assert_eq!(sequences.begin(0x11), Copy::No);
        assert_eq!(sequences.begin(0x11), Copy::OfOneUnderWay);
        assert_eq!(sequences.handed_over().begin(0x11), Copy::No);
        assert_eq!(tried(&mut sequences, 0x21), Copy::No);
        sequences.end(0x11);
        assert_eq!(sequences.begin(0x11), Copy::No, "it failed");
        assert_eq!(sequences.begin(0x12), Copy::No);
        sequences.end(0x11);
        assert_eq!(sequences.begin(0x12), Copy::OfOneUnderWay);
    }

    #[test]
    fn buckets_that_are_none_know_nothing() {
        let mut sequences = LockSequences::default();
        for sequence in [0x01, 64 * 16 + 16 + 1, u32::MAX] {
            sequences.set_done(sequence);
            assert_eq!(sequences.begin(sequence), Copy::No);
            assert_eq!(sequences.begin(sequence), Copy::No);
        }
        sequences.set_done(64 * 16 + 15);
        assert_eq!(sequences.begin(64 * 16 + 15), Copy::OfSuccess);
    }
}
