//! What all parts of a round know: the file, its blocks, and how long anybody waits.

use std::time::Duration;

use basics::SeededRandom;
use client::{ConnectOptions, SmbUrl};

/// Who plays, and how.
#[derive(Debug)]
pub(crate) struct Contest {
    pub(crate) url: SmbUrl,
    /// Nothing may fail.
    pub(crate) is_kind: bool,
}

impl Contest {
    pub(crate) fn options(&self) -> ConnectOptions {
        ConnectOptions::default()
    }
}

/// What a client decides by chance.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) SeededRandom);

impl Random {
    /// A number below `end`, which is not 0.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    pub(crate) fn one_in(&self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// The numbers of somebody else.
    pub(crate) fn fork(&self) -> Self {
        Self(SeededRandom::new(self.0.next_u64()))
    }

    /// A time up to `2^powers` microseconds, short ones more often.
    pub(crate) fn time(&self, powers: u64) -> Duration {
        let base = 1 << self.below(powers);
        Duration::from_micros(base + self.below(base))
    }
}

/// The bytes of write `number` in block `block`: words that name both.
pub(crate) fn content(number: u64, block: usize) -> Vec<u8> {
    let words = 0..wide(BLOCK) / 8;
    words.flat_map(|word| word_of(number, block, word).to_le_bytes()).collect()
}

fn word_of(number: u64, block: usize, word: u64) -> u64 {
    number << 16 | wide(block) << 8 | word
}

/// A length or index as the wire has it.
pub(crate) fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Bytes of a block.
pub(crate) const BLOCK: usize = 1024;
/// Blocks of the region; behind them stands the pointer.
pub(crate) const BLOCKS: usize = 16;
/// Where the pointer is, in the region.
pub(crate) const POINTER: u64 = (BLOCKS * BLOCK) as u64;
/// Bytes of the region.
pub(crate) const REGION_LEN: u64 = POINTER + BLOCK as u64;
/// Bytes on each side of the region, which nobody writes.
pub(crate) const MARGIN: u64 = 4096;
/// Bytes of the file.
pub(crate) const FILE_LEN: u64 = MARGIN + REGION_LEN + MARGIN;

/// How often a request is made before it counts as one that never succeeds; as seconds, more than a server needs to
/// find out that a client is gone.
pub(crate) const ATTEMPTS: u32 = 300;
/// Between two attempts.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
/// Longer than any message is under way.
pub(crate) const LATEST: Duration = Duration::from_secs(60);
