//! One moment of a run: the writes that are certain, and every legal choice among the others.
//!
//! ```text
//!   group A (a line, a sector):  w1 w2 w3      choose how many, oldest first: 0..=3
//!   group B (a streamed word):   w             choose 0 or 1
//!   image = base, then all certain and all chosen writes in the order they were made
//! ```

use std::collections::HashMap;

/// The images that a crash at one moment may leave.
#[derive(Debug)]
pub struct CrashPoint<'r> {
    at: usize,
    base: &'r [u8],
    writes: Vec<Choosable<'r>>,
    /// Number of writes in each group.
    sizes: Vec<u32>,
    numbers: HashMap<Group, usize>,
}

impl<'r> CrashPoint<'r> {
    pub(super) fn new(at: usize, base: &'r [u8]) -> Self {
        Self { at, base, writes: Vec::new(), sizes: Vec::new(), numbers: HashMap::new() }
    }

    /// Adds the next write in order; a certain write has no group.
    pub(super) fn push(&mut self, group: Option<Group>, offset: usize, bytes: &'r [u8]) {
        let needs = group.map(|group| {
            let number = *self.numbers.entry(group).or_insert(self.sizes.len());
            if number == self.sizes.len() {
                self.sizes.push(0);
            }
            self.sizes[number] += 1;
            (number, self.sizes[number])
        });
        self.writes.push(Choosable { needs, offset, bytes });
    }

    /// How many events lie before the crash.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The number of choices, or `None` if 64 bits cannot hold it. Some choices give equal images.
    pub fn count(&self) -> Option<u64> {
        self.sizes.iter().try_fold(1_u64, |product, size| product.checked_mul(u64::from(*size) + 1))
    }

    /// Every image, or `None` if [`CrashPoint::count`] is `None`.
    pub fn states(&self) -> Option<impl Iterator<Item = Vec<u8>> + '_> {
        let count = self.count()?;
        Some((0..count).map(|number| {
            let mut image = Vec::new();
            self.nth(number, &mut image);
            image
        }))
    }

    /// The image of the choice with this number, below [`CrashPoint::count`].
    pub fn nth(&self, mut number: u64, image: &mut Vec<u8>) {
        let digits = self.sizes.iter().map(|size| {
            let options = u64::from(*size) + 1;
            let digit = number % options;
            number /= options;
            u32::try_from(digit).expect("a remainder of a 32-bit number and one")
        });
        let chosen: Vec<u32> = digits.collect();
        self.build(&chosen, image);
    }

    /// An image that `seed` selects. Seed 0 loses all uncertain writes, seed 1 loses none.
    ///
    /// Every other seed loses few, half or most of the uncertain writes: a uniform choice among
    /// thousands of words would never come near the two ends, where faults show.
    pub fn sample(&self, seed: u64, image: &mut Vec<u8>) {
        let mut random = seed;
        let survivors_of_16 = match seed {
            0 => 0,
            1 => 16,
            _ => [1, 4, 8, 12, 15][index_below(&mut random, 5)],
        };
        let choose = |size: &u32| match index_below(&mut random, 16) < survivors_of_16 {
            // A group that survives mostly survives whole, sometimes in part.
            true if seed != 1 && *size > 1 && index_below(&mut random, 4) == 0 => {
                let part = index_below(&mut random, usize::try_from(*size).unwrap_or(1));
                u32::try_from(part).expect("below a 32-bit number")
            }
            true => *size,
            false => 0,
        };
        let chosen: Vec<u32> = self.sizes.iter().map(choose).collect();
        self.build(&chosen, image);
    }

    fn build(&self, chosen: &[u32], image: &mut Vec<u8>) {
        image.clear();
        image.extend_from_slice(self.base);
        for write in &self.writes {
            if write.needs.is_none_or(|(group, rank)| chosen[group] >= rank) {
                image[write.offset..write.offset + write.bytes.len()].copy_from_slice(write.bytes);
            }
        }
    }
}

/// Writes that become durable in the order they were made.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Group {
    /// Cached stores to one cache line.
    Line(usize),
    /// One word of one streamed store.
    Streamed { cpu: usize, word: usize, event: usize },
    /// Writes to one sector.
    Sector(usize),
}

#[derive(Debug)]
struct Choosable<'r> {
    /// The group of this write, and how many writes of the group must survive for this write to
    /// survive; `None` for a certain write.
    needs: Option<(usize, u32)>,
    offset: usize,
    bytes: &'r [u8],
}

/// A number below `bound` from a sequence that depends on `state` alone (splitmix64).
fn index_below(state: &mut u64, bound: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let bound = u64::try_from(bound.max(1)).expect("64 address bits at most");
    usize::try_from((z ^ (z >> 31)) % bound).expect("below a usize")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_three_words<T>(use_it: impl FnOnce(&CrashPoint<'_>) -> T) -> T {
        let base = [0; 4];
        let mut point = CrashPoint::new(3, &base);
        point.push(Some(Group::Line(0)), 0, &[1]);
        point.push(Some(Group::Line(0)), 1, &[2]);
        point.push(None, 2, &[3]);
        point.push(Some(Group::Line(1)), 3, &[4]);
        use_it(&point)
    }

    #[test]
    fn every_legal_choice_is_enumerated_exactly_once() {
        let states: Vec<_> = with_three_words(|point| {
            assert_eq!(point.count(), Some(6));
            point.states().unwrap().collect()
        });
        let expected =
            [[0, 0, 3, 0], [1, 0, 3, 0], [1, 2, 3, 0], [0, 0, 3, 4], [1, 0, 3, 4], [1, 2, 3, 4]];
        assert_eq!(states, expected);
    }

    #[test]
    fn samples_are_legal_and_reach_every_state() {
        let mut seen = std::collections::BTreeSet::new();
        with_three_words(|point| {
            let legal: Vec<_> = point.states().unwrap().collect();
            let mut image = Vec::new();
            for seed in 0..1000 {
                point.sample(seed, &mut image);
                assert!(legal.contains(&image));
                seen.insert(image.clone());
            }
            assert_eq!(seen.len(), legal.len());
            point.sample(0, &mut image);
            assert_eq!(image, [0, 0, 3, 0]);
            point.sample(1, &mut image);
            assert_eq!(image, [1, 2, 3, 4]);
        });
    }

    #[test]
    fn states_beyond_64_bits_of_count_are_not_enumerated() {
        let base = [0; 512];
        let mut point = CrashPoint::new(0, &base);
        for word in 0..64 {
            point.push(Some(Group::Streamed { cpu: 0, word, event: 0 }), word * 8, &[1; 8]);
        }
        assert_eq!(point.count(), None);
        assert!(point.states().is_none());
    }

    /// How many of 1,024 groups survive a sample whole, and how many in part; each group has so many writes.
    fn survivors(writes: usize, seed: u64) -> (usize, usize) {
        const GROUPS: usize = 1024;
        let base = vec![0; GROUPS * 8];
        let mut point = CrashPoint::new(0, &base);
        for (line, write) in (0..GROUPS).flat_map(|line| (0..writes).map(move |at| (line, at))) {
            point.push(Some(Group::Line(line)), line * 8 + write, &[1]);
        }
        let mut image = Vec::new();
        point.sample(seed, &mut image);
        let survived = image.chunks(8).map(|line| line.iter().filter(|byte| **byte == 1).count());
        let survived: Vec<usize> = survived.collect();
        let whole = survived.iter().filter(|count| **count == writes).count();
        (whole, survived.iter().filter(|count| **count > 0 && **count < writes).count())
    }

    #[test]
    fn seed_0_loses_everything_and_seed_1_nothing() {
        for writes in [1, 4] {
            assert_eq!(survivors(writes, 0), (0, 0));
            assert_eq!(survivors(writes, 1), (1024, 0));
        }
    }

    #[test]
    fn a_sample_loses_few_or_most_and_what_survives_survives_mostly_whole() {
        let alone: Vec<usize> = (2..40).map(|seed| survivors(1, seed).0).collect();
        assert!(alone.iter().any(|whole| *whole < 100), "most are lost: {alone:?}");
        assert!(alone.iter().any(|whole| *whole > 900), "few are lost: {alone:?}");
        for (whole, part) in (2..40).map(|seed| survivors(4, seed)) {
            assert!(part > 0 && whole > 2 * part, "{whole} whole, {part} in part");
        }
    }
}
