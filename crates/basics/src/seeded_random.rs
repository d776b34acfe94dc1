//! Random numbers that a seed decides: one seed, one sequence, on every machine.
//!
//! The generator is SplitMix64: its state is a counter, so draws of several threads need no lock, and a
//! run on one thread draws the same each time. Whoever sees a few of its numbers knows all of them:
//! it is for tests, never for keys of people.
//!
//! Spec: Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (OOPSLA 2014), figure 13.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::RandomSource;

/// Random numbers that a seed decides.
#[derive(Debug)]
pub struct SeededRandom {
    counter: AtomicU64,
}

impl SeededRandom {
    /// The sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Self { counter: AtomicU64::new(seed) }
    }

    /// The next number of the sequence.
    pub fn next_u64(&self) -> u64 {
        let before = self.counter.fetch_add(GAMMA, Ordering::Relaxed);
        let mut mixed = before.wrapping_add(GAMMA);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

impl RandomSource for SeededRandom {
    // A number for each eight bytes begun, low byte first.
    fn fill(&self, out: &mut [u8]) {
        for chunk in out.chunks_mut(size_of::<u64>()) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// The fraction of the golden ratio in 64 bits, made odd.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    // As Java's SplittableRandom and the C program of Vigna yield them.
    #[test]
    fn a_seed_yields_the_numbers_of_other_implementations() {
        let random = SeededRandom::new(1_234_567);
        let drawn = [(); 5].map(|()| random.next_u64());
        let golden = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(drawn, golden);
    }

    #[test]
    fn a_buffer_that_ends_within_a_number_gets_its_low_bytes() {
        let mut out = [0; 11];
        SeededRandom::new(1_234_567).fill(&mut out);
        let (first, second) = (6_457_827_717_110_365_317_u64, 3_203_168_211_198_807_973_u64);
        assert_eq!(out[..8], first.to_le_bytes());
        assert_eq!(out[8..], second.to_le_bytes()[..3]);
    }
}
