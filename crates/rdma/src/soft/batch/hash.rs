//! CRC-32C of a target, in pieces on a worker's stack.

use std::sync::atomic::Ordering;

use super::{Failure, Target, Turn, Withdrawn};

/// A hash that has begun.
#[derive(Debug, Default)]
pub(super) struct Hashing {
    hash: Hash,
    done: u64,
}

impl Hashing {
    /// Continues the hash; `None`: the turn ended before the target did. Blocks.
    pub(super) fn go_on(
        &mut self,
        target: &Target,
        turn: &mut Turn<'_>,
        withdrawn: &Withdrawn,
    ) -> Result<Option<u32>, Failure> {
        let mut piece = [0; PIECE];
        while self.done < target.len {
            if turn.stop.load(Ordering::Relaxed) {
                return Err(Failure::Stopped);
            }
            if withdrawn.covers(target.tag) {
                return Err(Failure::Withdrawn);
            }
            if turn.bytes_left == 0 {
                return Ok(None);
            }
            let left = (target.len - self.done).min(turn.bytes_left);
            let len = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let Some(piece) = piece.get_mut(..len) else { break };
            target.medium.read(target.offset + self.done, piece).map_err(Failure::Medium)?;
            self.hash.update(piece);
            let len = u64::try_from(len).expect("a piece is short");
            self.done += len;
            turn.bytes_left -= len;
        }
        Ok(Some(self.hash.finish()))
    }
}

/// CRC-32C over bytes that come in pieces.
#[derive(Debug)]
pub(in super::super) struct Hash(crc_fast::Digest);

impl Hash {
    pub(in super::super) fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    pub(in super::super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(in super::super) fn finish(&self) -> u32 {
        u32::try_from(self.0.finalize()).expect("CRC-32C has 32 bits")
    }
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}

const PIECE: usize = 16 * 1024;
