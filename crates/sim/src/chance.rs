//! What a seed decides, by purpose: a run that asks one source more often draws the same from the others.

use basics::SeededRandom;

/// Draws of one purpose.
#[derive(Debug)]
pub(crate) struct Chance(SeededRandom);

impl Chance {
    /// The draws of `seed` for a purpose.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mixed = SeededRandom::new(seed).next_u64();
        Self(SeededRandom::new(mixed ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93)))
    }

    /// A number below `end`, which is at least 1.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    /// An index below `len`, which is at least 1.
    pub(crate) fn index(&self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// True `one` time `in_all`.
    pub(crate) fn happens(&self, one: u64, in_all: u64) -> bool {
        one > 0 && self.below(in_all) < one
    }

    /// A number from `from` to `to`, small ones more often: the logarithm is even.
    pub(crate) fn skewed(&self, from: u64, to: u64) -> u64 {
        let (low, high) = (from.max(1).ilog2(), to.max(1).ilog2());
        let power = low + u32::try_from(self.below(u64::from(high - low + 1))).unwrap_or(0);
        let base = 1 << power;
        (base + self.below(base)).clamp(from, to)
    }

    /// Random bytes.
    pub(crate) fn fill(&self, out: &mut [u8]) {
        basics::RandomSource::fill(&self.0, out);
    }
}
