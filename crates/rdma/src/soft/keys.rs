//! Random steering tags: a peer cannot guess a tag that it was not told.
//!
//! All 32 bits are random (RFC 5040 §8.1.1 asks for sparse and unpredictable tags). They are drawn
//! from the environment in batches, as a system call costs more than a whole registration.

use basics::Random;

/// Draws tags.
#[derive(Debug)]
pub(super) struct KeySource {
    random: Random,
    drawn: [u8; BATCH_BYTES],
    used: usize,
}

impl KeySource {
    pub(super) const fn new(random: Random) -> Self {
        Self { random, drawn: [0; BATCH_BYTES], used: BATCH_BYTES }
    }

    /// The next tag, never one of the reserved ones; `None` when the environment gives no randomness.
    pub(super) fn draw(&mut self) -> Option<u32> {
        loop {
            if self.used == BATCH_BYTES {
                self.random.fill(&mut self.drawn).ok()?;
                self.used = 0;
            }
            let tag = self.drawn.get_mut(self.used..self.used + TAG_BYTES)?;
            let value = u32::from_be_bytes(<[u8; TAG_BYTES]>::try_from(&*tag).ok()?);
            // A tag that was given out must not stay in memory, where an attacker could read it.
            tag.fill(0);
            self.used += TAG_BYTES;
            if value > RESERVED_MAX {
                return Some(value);
            }
        }
    }
}

const TAG_BYTES: usize = 4;
const BATCH_BYTES: usize = 64 * TAG_BYTES;
/// 0 means "no tag" to several peers, and siw's ready-to-receive frames carry tag 1.
const RESERVED_MAX: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn tags_differ_across_batches() {
        let mut source = KeySource::new(Random::host());
        let tags: HashSet<_> = (0..1000).map(|_| source.draw().unwrap()).collect();
        assert!(tags.len() > 995, "32 random bits collide once in millions of pairs");
    }
}
