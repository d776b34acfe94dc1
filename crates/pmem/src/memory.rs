//! What a log, a store or any other structure needs of its memory, wherever the memory is.
//!
//! ```text
//!   place record --> commit record --> atomic_write pointer --> commit pointer
//! ```
//!
//! A structure that is written against [`Memory`] runs over a file of this machine ([`LocalMemory`]) and over one
//! of another (`remote::RemoteRegion`), and one proof of its crash images serves both.

use std::ops::Range;
use std::sync::Arc;

use crate::medium::{check_bounds, check_word, length_of};
use crate::{AtomicOp, Medium, MediumError};

/// Bytes with one writer, who places, commits and reads them. Offsets count from the first byte.
///
/// A commit that fails breaks the memory for good: it is unknown which bytes are durable, and every later call
/// fails, so that nothing can follow a commit that did not happen.
pub trait Memory {
    /// Why a call failed.
    type Error;

    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether the memory has no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Places `bytes` at `offset`. Later reads of this writer see the bytes; a crash may undo them.
    ///
    /// # Errors
    ///
    /// The range reaches beyond the end, or the memory is broken. A failure of a peer may be reported by the next
    /// commit instead.
    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Makes durable what was placed in the range before.
    ///
    /// # Durability
    ///
    /// On `Ok` the bytes survive what the memory's class survives. A crash before leaves any mixture of old and
    /// new aligned 8-byte words. After an error the memory is broken.
    fn commit(&mut self, offset: u64, len: u64) -> Result<(), Self::Error>;

    /// Reads into `out` what this writer placed, or what was there.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Self::Error>;

    /// Stores eight bytes, little-endian, at a multiple of 8, and only if every earlier commit succeeded.
    ///
    /// # Durability
    ///
    /// The store is durable after a commit of the word. Whether a crash before that can leave a mixture of the
    /// bytes of both words is the implementation's to say.
    fn atomic_write(&mut self, offset: u64, value: u64) -> Result<(), Self::Error>;
}

/// A range of a medium of this machine as [`Memory`]. Its atomic write is stored in one piece.
#[derive(Debug)]
pub struct LocalMemory {
    medium: Arc<dyn Medium>,
    start: u64,
    len: u64,
    is_broken: bool,
}

impl LocalMemory {
    /// The bytes of `range`.
    ///
    /// # Errors
    ///
    /// [`MediumError::OutOfBounds`]; [`MediumError::Misaligned`] if the range does not begin at a multiple of 8.
    pub fn new(medium: Arc<dyn Medium>, range: Range<u64>) -> Result<Self, MediumError> {
        let len = range.end.saturating_sub(range.start);
        check_bounds(range.start, len, medium.len())?;
        if !range.start.is_multiple_of(AtomicOp::LEN) {
            return Err(MediumError::Misaligned { offset: range.start });
        }
        Ok(Self { medium, start: range.start, len, is_broken: false })
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        check_bounds(offset, len, self.len)?;
        if self.is_broken { Err(MediumError::Poisoned) } else { Ok(()) }
    }

    /// Whatever failed, it is unknown what was placed or made durable.
    fn or_break<T>(&mut self, outcome: Result<T, MediumError>) -> Result<T, MediumError> {
        outcome.inspect_err(|_| self.is_broken = true)
    }
}

impl Memory for LocalMemory {
    type Error = MediumError;

    fn len(&self) -> u64 {
        self.len
    }

    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.check(offset, length_of(bytes))?;
        let placed = self.medium.place(self.start + offset, bytes);
        self.or_break(placed)
    }

    fn commit(&mut self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.check(offset, len)?;
        let durable = self.medium.persist(self.start + offset, len);
        self.or_break(durable)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.check(offset, length_of(out))?;
        self.medium.read(self.start + offset, out)
    }

    fn atomic_write(&mut self, offset: u64, value: u64) -> Result<(), MediumError> {
        check_word(offset, self.len)?;
        self.check(offset, AtomicOp::LEN)?;
        // Words of a medium are native-endian.
        let stored = self.medium.atomic(self.start + offset, AtomicOp::Store(value.to_le()));
        self.or_break(stored).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenOptions, anonymous, anonymous_with};

    #[test]
    fn a_local_memory_reaches_its_range_alone() {
        let emulated = OpenOptions { emulate_persistence: true };
        let medium = anonymous_with(4096, emulated).unwrap();
        let mut memory = LocalMemory::new(Arc::clone(&medium), 64..128).unwrap();
        memory.place(0, &[1; 64]).unwrap();
        memory.atomic_write(56, 0x0807_0605_0403_0201).unwrap();
        memory.commit(0, 64).unwrap();
        let beyond = MediumError::OutOfBounds { offset: 60, len: 8, limit: 64 };
        assert_eq!(memory.place(60, &[2; 8]), Err(beyond));
        assert_eq!(memory.atomic_write(57, 0), Err(MediumError::Misaligned { offset: 57 }));
        let mut bytes = [0; 192];
        medium.read(0, &mut bytes).unwrap();
        assert_eq!(bytes[..64], [0; 64]);
        assert_eq!(bytes[64..120], [1; 56]);
        assert_eq!(bytes[120..128], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[128..], [0; 64]);
        let mut word = [0; 8];
        memory.read(56, &mut word).unwrap();
        assert_eq!(word, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_commit_of_a_local_memory_is_of_its_place_in_the_medium() {
        let medium = Arc::new(crate::bare::Bare::new(256));
        let mut memory = LocalMemory::new(Arc::clone(&medium) as Arc<dyn Medium>, 64..128).unwrap();
        assert_eq!((memory.len(), memory.is_empty()), (64, false));
        memory.place(8, &[7; 4]).unwrap();
        assert_eq!(medium.bytes.lock().unwrap()[72..76], [7; 4]);
        memory.commit(8, 4).unwrap();
        assert_eq!(*medium.persisted.lock().unwrap(), [(72, 4)]);
        assert!(
            LocalMemory::new(Arc::clone(&medium) as Arc<dyn Medium>, 64..64).unwrap().is_empty()
        );
    }

    #[test]
    fn nothing_follows_a_commit_that_failed() {
        let medium = anonymous(4096).unwrap();
        let mut memory = LocalMemory::new(Arc::clone(&medium), 0..4096).unwrap();
        memory.place(0, &[1; 8]).unwrap();
        assert_eq!(memory.commit(0, 8), Err(MediumError::VolatileRefused));
        assert_eq!(memory.atomic_write(64, 7), Err(MediumError::Poisoned));
        let mut word = [9; 8];
        medium.read(64, &mut word).unwrap();
        assert_eq!(word, [0; 8]);
    }

    #[test]
    fn a_range_outside_of_the_medium_is_no_memory() {
        let medium = anonymous(4096).unwrap();
        let beyond = LocalMemory::new(Arc::clone(&medium), 0..4097).unwrap_err();
        assert_eq!(beyond, MediumError::OutOfBounds { offset: 0, len: 4097, limit: 4096 });
        let odd = LocalMemory::new(medium, 4..64).unwrap_err();
        assert_eq!(odd, MediumError::Misaligned { offset: 4 });
    }
}
