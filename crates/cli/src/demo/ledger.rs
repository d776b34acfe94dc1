//! Records written and acknowledged blocks, and checks a file against the record.
//!
//! Write number `n` fills one block with words made from `n`, so that every word of the file
//! identifies its write. After a crash each word of a block may be of the last acknowledged write
//! of the block or of a later write in flight; nothing older and nothing else.

use std::collections::VecDeque;

use crate::failure::Failure;

/// The record of one stream of commits.
#[derive(Debug)]
pub(crate) struct Ledger {
    blocks: u64,
    next: u64,
    /// For each block its last acknowledged write; 0 is the state before the first.
    acknowledged: Vec<u64>,
    /// Writes in flight, oldest first.
    outstanding: VecDeque<Write>,
}

/// One write: its number and its block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Write {
    number: u64,
    block: u64,
}

impl Write {
    /// The offset of its block in the region, in bytes.
    pub(crate) fn offset(self) -> u64 {
        self.block * wide(BLOCK)
    }

    /// Fills `out` with the bytes of the write.
    pub(crate) fn fill(self, out: &mut [u8; BLOCK]) {
        for (index, word) in out.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&word_of(self.number, self.block, index));
        }
    }
}

impl Ledger {
    /// The record of a region of `blocks` blocks, all zero.
    pub(crate) fn new(blocks: u64) -> Self {
        let count = usize::try_from(blocks).expect("a region in memory");
        Self { blocks, next: 1, acknowledged: vec![0; count], outstanding: VecDeque::new() }
    }

    /// The next write to send.
    pub(crate) fn draw(&mut self) -> Write {
        let write = Write { number: self.next, block: mixed(self.next) % self.blocks };
        self.next += 1;
        self.outstanding.push_back(write);
        write
    }

    /// Notes that the oldest write in flight was acknowledged as durable.
    pub(crate) fn acknowledge(&mut self) {
        let write = self.outstanding.pop_front().expect("only what was sent is acknowledged");
        self.acknowledged[index(write.block)] = write.number;
    }

    /// Acknowledged writes so far.
    pub(crate) fn count(&self) -> u64 {
        self.next - 1 - wide(self.outstanding.len())
    }

    /// Checks the region after a crash.
    pub(crate) fn check(&self, region: &[u8]) -> Result<(), Failure> {
        for (block, bytes) in (0..self.blocks).zip(region.chunks_exact(BLOCK)) {
            for (position, word) in bytes.chunks_exact(8).enumerate() {
                if !self.may_be(block, position, word) {
                    let acknowledged = self.acknowledged[index(block)];
                    return Err(Failure::Lost(format!(
                        "block {block} word {position} holds {word:02x?}, which is neither write \
                         {acknowledged} (acknowledged) nor one sent after it"
                    )));
                }
            }
        }
        Ok(())
    }

    /// New writes for every block whose state is unknown, so that the next crash is checked
    /// exactly.
    pub(crate) fn unsettled(&mut self) -> Vec<Write> {
        let mut blocks: Vec<u64> = self.outstanding.drain(..).map(|write| write.block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let writes = blocks.into_iter().map(|block| {
            let write = Write { number: self.next, block };
            self.next += 1;
            write
        });
        let writes: Vec<Write> = writes.collect();
        self.outstanding.extend(&writes);
        writes
    }

    fn may_be(&self, block: u64, position: usize, word: &[u8]) -> bool {
        let acknowledged = self.acknowledged[index(block)];
        let before =
            if acknowledged == 0 { [0; 8] } else { word_of(acknowledged, block, position) };
        let on_their_way = self.outstanding.iter().filter(|write| write.block == block);
        word == before
            || on_their_way.into_iter().any(|write| word == word_of(write.number, block, position))
    }
}

fn word_of(number: u64, block: u64, position: usize) -> [u8; 8] {
    mixed(number ^ mixed(block ^ mixed(wide(position)))).to_le_bytes()
}

/// A bijection that spreads neighbours far apart (the finaliser of SplitMix64).
fn mixed(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn wide(value: usize) -> u64 {
    u64::try_from(value).expect("a usize fits a u64 on every target")
}

fn index(block: u64) -> usize {
    usize::try_from(block).expect("a region in memory")
}

/// Bytes of one write.
pub(crate) const BLOCK: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u64 = 4;

    fn apply(region: &mut [u8], write: Write) {
        let mut bytes = [0; BLOCK];
        write.fill(&mut bytes);
        let start = index(write.offset());
        region[start..start + BLOCK].copy_from_slice(&bytes);
    }

    fn acknowledged_stream() -> (Ledger, Vec<u8>, Write) {
        let mut ledger = Ledger::new(BLOCKS);
        let mut region = vec![0; BLOCK * index(BLOCKS)];
        let mut last = None;
        for _ in 0..20 {
            let write = ledger.draw();
            apply(&mut region, write);
            ledger.acknowledge();
            last = Some(write);
        }
        (ledger, region, last.unwrap())
    }

    #[test]
    fn a_region_with_every_acknowledged_write_passes() {
        let (ledger, region, _) = acknowledged_stream();
        ledger.check(&region).unwrap();
        assert_eq!(ledger.count(), 20);
    }

    #[test]
    fn one_lost_word_is_found() {
        let (ledger, mut region, last) = acknowledged_stream();
        region[index(last.offset()) + 8] ^= 1;
        assert!(matches!(ledger.check(&region), Err(Failure::Lost(_))));
    }

    #[test]
    fn a_torn_write_passes_only_if_it_was_in_flight() {
        let (mut ledger, mut region, _) = acknowledged_stream();
        let write = ledger.draw();
        let mut bytes = [0; BLOCK];
        write.fill(&mut bytes);
        let start = index(write.offset());
        region[start..start + 64].copy_from_slice(&bytes[..64]);
        ledger.check(&region).unwrap();
        ledger.acknowledge();
        assert!(ledger.check(&region).is_err());
    }

    #[test]
    fn blocks_with_unknown_state_are_overwritten_before_the_next_round() {
        let (mut ledger, mut region, _) = acknowledged_stream();
        ledger.draw();
        for write in ledger.unsettled() {
            apply(&mut region, write);
            ledger.acknowledge();
        }
        ledger.check(&region).unwrap();
    }
}
