//! Memory of a cache: frames of one page each, written and read by copy.
//!
//! A cache of pages gives its bytes to several threads at once, and a peer decides what is written. So the frames keep the
//! rule of every medium of this crate: bytes go in and out by copy, no Rust reference points into a frame, and each
//! aligned word of 8 bytes holds the word of either of two writers, whole.

use crate::mapping::Mapping;
use crate::{AtomicOp, MapError};

/// Frames of [`Frames::LEN`] bytes, numbered from 0. A frame costs memory from its first use on.
#[derive(Debug)]
pub struct Frames {
    mapping: Mapping,
    count: u32,
}

impl Frames {
    /// Bytes of a frame.
    pub const LEN: usize = 4096;

    /// Zeroed frames, in constant time.
    ///
    /// # Errors
    ///
    /// When the address space or the mappings of the process are used up.
    pub fn new(count: u32) -> Result<Self, MapError> {
        let len = u64::from(count) * FRAME_LEN;
        let len = usize::try_from(len).map_err(|_| MapError::ConfigTooLong { len })?;
        Ok(Self { mapping: Mapping::anonymous(len)?, count })
    }

    /// The number of frames.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Copies the bytes at `at` of a frame into `out`.
    ///
    /// # Panics
    ///
    /// As every method: if there is no such frame, or the range leaves the frame.
    pub fn load(&self, frame: u32, at: usize, out: &mut [u8]) {
        let offset = self.offset(frame, at, out.len());
        self.mapping.window().load(offset, out);
    }

    /// Copies `bytes` to `at` of a frame. The bytes are visible, not durable.
    pub fn store(&self, frame: u32, at: usize, bytes: &[u8]) {
        let offset = self.offset(frame, at, bytes.len());
        self.mapping.window().store(offset, bytes);
    }

    /// Applies `op` to the word at `at`, a multiple of 8, and returns the word before.
    pub fn atomic(&self, frame: u32, at: usize, op: AtomicOp) -> u64 {
        let offset = self.offset(frame, at, 8);
        self.mapping.window().atomic(offset, op)
    }

    fn offset(&self, frame: u32, at: usize, len: usize) -> usize {
        assert!(frame < self.count, "no such frame");
        assert!(at <= Self::LEN && len <= Self::LEN - at, "range outside the frame");
        usize::try_from(frame).expect("the frames are in memory") * Self::LEN + at
    }
}

const FRAME_LEN: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_keeps_its_bytes_apart_from_its_neighbours() {
        let frames = Frames::new(3).unwrap();
        assert_eq!(frames.count(), 3);
        frames.store(1, 0, &[7; Frames::LEN]);
        let mut out = [9; 8];
        for (frame, expected) in [(0, 0), (1, 7), (2, 0)] {
            frames.load(frame, Frames::LEN - 8, &mut out);
            assert_eq!(out, [expected; 8]);
        }
        assert_eq!(frames.atomic(2, 8, AtomicOp::FetchAdd { add: 5, mask: 0 }), 0);
        assert_eq!(frames.atomic(2, 8, AtomicOp::Store(1)), 5);
    }

    #[test]
    #[should_panic(expected = "range outside the frame")]
    fn a_range_that_leaves_its_frame_is_refused() {
        Frames::new(2).unwrap().store(0, Frames::LEN - 1, &[0; 2]);
    }
}
