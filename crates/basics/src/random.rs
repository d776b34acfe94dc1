//! Bytes that nobody can guess, or that a seed decides.

use std::fmt;
use std::sync::Arc;

use crate::RandomError;

/// Random bytes. Clones draw from one source.
#[derive(Clone)]
pub struct Random(Source);

#[derive(Clone)]
enum Source {
    Host,
    Given(Arc<dyn RandomSource>),
}

impl Random {
    /// The kernel's random numbers, fit for keys.
    pub const fn host() -> Self {
        Self(Source::Host)
    }

    /// What `source` yields: as secret as that is.
    pub fn given(source: Arc<dyn RandomSource>) -> Self {
        Self(Source::Given(source))
    }

    /// Fills `out`.
    ///
    /// # Errors
    /// The kernel has no random numbers; what is in `out` then is not random.
    pub fn fill(&self, out: &mut [u8]) -> Result<(), RandomError> {
        match &self.0 {
            Source::Host => getrandom::fill(out),
            Source::Given(source) => {
                source.fill(out);
                Ok(())
            }
        }
    }

    /// A random number of the whole range.
    ///
    /// # Errors
    /// As [`Random::fill`].
    pub fn u32(&self) -> Result<u32, RandomError> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Host => "Random(host)",
            Source::Given(_) => "Random(given)",
        })
    }
}

/// Bytes that a test or a simulator decides.
pub trait RandomSource: Send + Sync {
    /// Fills `out` with the next bytes.
    fn fill(&self, out: &mut [u8]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededRandom;

    #[test]
    fn the_kernel_fills_all_of_a_buffer() {
        let mut out = [0; 64];
        Random::host().fill(&mut out).unwrap();
        // Chance alone leaves eight zero bytes in one of 2^61 runs.
        assert!(out.chunks(8).all(|chunk| chunk != [0; 8]), "{out:?}");
    }

    #[test]
    fn clones_of_a_given_source_draw_one_sequence_in_turn() {
        let random = Random::given(Arc::new(SeededRandom::new(1)));
        let (one, alone) = (random.clone(), Random::given(Arc::new(SeededRandom::new(1))));
        let drawn = [random.u32().unwrap(), one.u32().unwrap(), random.u32().unwrap()];
        assert_eq!(drawn, [(); 3].map(|()| alone.u32().unwrap()));
    }
}
