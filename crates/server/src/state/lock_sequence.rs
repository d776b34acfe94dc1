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
//! there before the last one is answered.
//!
//! Spec: MS-SMB2 §2.2.26, §3.3.5.14.

/// The last request of each bucket that succeeded.
#[derive(Clone, Debug)]
pub(crate) struct LockSequences([Option<u8>; BUCKETS]);

impl Default for LockSequences {
    fn default() -> Self {
        Self([None; BUCKETS])
    }
}

impl LockSequences {
    /// Whether this request has succeeded before. If not, its bucket is empty until it does.
    pub(crate) fn is_replay(&mut self, sequence: u32) -> bool {
        let Some((bucket, number)) = place(sequence) else { return false };
        let known = self.0[bucket] == Some(number);
        if !known {
            self.0[bucket] = None;
        }
        known
    }

    /// The request has succeeded.
    pub(crate) fn set_done(&mut self, sequence: u32) {
        if let Some((bucket, number)) = place(sequence) {
            self.0[bucket] = Some(number);
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

    #[test]
    fn a_request_is_known_until_its_bucket_is_used_again() {
        let mut sequences = LockSequences::default();
        assert!(!sequences.is_replay(0x11));
        assert!(!sequences.is_replay(0x11), "it has not succeeded");
        sequences.set_done(0x11);
        assert!(sequences.is_replay(0x11) && !sequences.is_replay(0x21));
        assert!(!sequences.is_replay(0x12));
        assert!(!sequences.is_replay(0x11), "a later one came in between");
    }

    #[test]
    fn buckets_that_are_none_know_nothing() {
        let mut sequences = LockSequences::default();
        for sequence in [0x01, 64 * 16 + 16 + 1, u32::MAX] {
            sequences.set_done(sequence);
            assert!(!sequences.is_replay(sequence));
        }
        sequences.set_done(64 * 16 + 15);
        assert!(sequences.is_replay(64 * 16 + 15));
    }
}
