//! What a program reads of the world beside its inputs, as one value.

use crate::{Clock, Random};

/// Clocks and randomness. Clones share their sources.
#[derive(Clone, Debug)]
pub struct Environment {
    /// What time it is.
    pub clock: Clock,
    /// Bytes that nobody can guess.
    pub random: Random,
}

impl Environment {
    /// The kernel's clocks and random numbers.
    pub const fn host() -> Self {
        Self { clock: Clock::host(), random: Random::host() }
    }
}
