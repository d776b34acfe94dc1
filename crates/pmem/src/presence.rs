//! Remembers which parts of a mapping have been fetched, so that an engine never faults.
//!
//! ```text
//!   one byte per 64 KiB chunk:   7 . . . . 2 | 1        | 0
//!                                unused      | writable | readable
//! ```
//!
//! The states lie in anonymous memory of their own, which the kernel zeroes page by page on first
//! use, so creation takes the same time for any length; one page of states covers 256 MiB.
//! A bit is a hint about latency, never about correctness: the operating system may evict a page
//! later, and the access then faults as usual.

use crate::mapping::{Mapping, MappingError};

/// Records the present chunks of one mapping.
#[derive(Debug)]
pub(crate) struct Presence {
    states: Mapping,
}

impl Presence {
    /// A record for `len` bytes, of which none is present.
    pub(crate) fn absent(len: usize) -> Result<Self, MappingError> {
        Ok(Self { states: Mapping::anonymous(len.div_ceil(CHUNK))? })
    }

    /// Whether every chunk of the range was fetched for this use.
    #[inline]
    pub(crate) fn covers(&self, offset: usize, len: usize, touch: Touch) -> bool {
        chunks(offset, len).all(|chunk| self.states.window().byte(chunk) & touch.bits() != 0)
    }

    /// Notes that every chunk of the range was fetched.
    pub(crate) fn note(&self, offset: usize, len: usize, touch: Touch) {
        // A chunk that is present for writing is present for reading.
        let bits = match touch {
            Touch::Read => Touch::Read.bits(),
            Touch::Write => Touch::Read.bits() | Touch::Write.bits(),
        };
        chunks(offset, len).for_each(|chunk| self.states.window().set_bits(chunk, bits));
    }
}

/// The access for which a page is fetched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Touch {
    /// A load from the page.
    Read,
    /// A store to the page.
    Write,
}

impl Touch {
    const fn bits(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
        }
    }
}

fn chunks(offset: usize, len: usize) -> std::ops::Range<usize> {
    match len.checked_sub(1) {
        None => 0..0,
        Some(last) => offset / CHUNK..(offset + last) / CHUNK + 1,
    }
}

/// Bytes of a chunk: large enough that the states take little memory, small enough that the fetch
/// of a chunk for a 4 KiB write stays in the tens of microseconds.
pub(crate) const CHUNK: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "lazily reserved mappings")]
    fn a_range_is_covered_only_when_each_chunk_is() {
        let presence = Presence::absent(4 * CHUNK).unwrap();
        presence.note(CHUNK, CHUNK, Touch::Write);
        assert!(presence.covers(CHUNK, CHUNK, Touch::Write));
        assert!(presence.covers(2 * CHUNK - 1, 1, Touch::Read));
        assert!(!presence.covers(2 * CHUNK - 1, 2, Touch::Read));
        assert!(!presence.covers(CHUNK - 1, 2, Touch::Write));
    }

    #[test]
    #[cfg_attr(miri, ignore = "lazily reserved mappings")]
    fn a_chunk_fetched_for_reading_is_not_present_for_writing() {
        let presence = Presence::absent(CHUNK).unwrap();
        presence.note(0, 1, Touch::Read);
        assert!(presence.covers(0, CHUNK, Touch::Read));
        assert!(!presence.covers(0, CHUNK, Touch::Write));
    }

    #[test]
    #[cfg_attr(miri, ignore = "lazily reserved mappings")]
    fn an_empty_range_is_always_present() {
        let presence = Presence::absent(CHUNK).unwrap();
        assert!(presence.covers(CHUNK, 0, Touch::Write));
    }
}
