//! A medium made of memory, reached by CPU stores.
//!
//! ```text
//!   place, >= 256 bytes:   | head: store, write back | whole lines: stream | tail: as head | drain
//!   place, shorter:        | store, write back the one to five lines                       | drain
//!   persist:               | drain
//! ```
//!
//! # Why every placement drains
//!
//! Streamed stores and write-backs are ordered only by a fence of the CPU that issued them; a
//! release store that hands the work to another thread does not order them. So a placement ends
//! with its own drain, on its own thread, and a persist on any other thread has nothing left to
//! do. The drain also keeps stores visible in order: without the drain a reader could see a flag
//! placed later before the bytes that the flag announces. Only [`Medium::try_place_part`] leaves
//! the drain out, because its caller promises a later call that drains.
//!
//! # The bound between store and stream
//!
//! Measured on a Sapphire Rapids virtual machine with DRAM, drain included, ns:
//!
//! | bytes | store + clwb | stream | stream, drain left out |
//! |---|---|---|---|
//! | 64 | 124 | 164 | 2 |
//! | 256 | 156 | 191 | 11 |
//! | 512 | 197 | 197 | 22 |
//! | 1408 | 321 | 239 | 62 |
//! | 4096 | 804 | 354 | 181 |
//! | 65,536 | 11,700 | 3,440 | 3,270 |
//!
//! Streaming begins at 256 bytes, the unit of real persistent memory, below which a part of a
//! line costs the device a read and a write.
//!
//! Spec: Intel SDM vol. 1 §10.4.6.2 (streaming), vol. 2 CLWB and SFENCE.

use std::fmt;

use crate::arch::CACHE_LINE;
use crate::medium::{check_bounds, check_word, length_of};
use crate::presence::Touch;
use crate::{AtomicOp, DirectMemory, DurabilityClass, Medium, MediumError, StoreGranularity};

/// The operations on memory that placement is made of.
///
/// In production the memory is a mapping; the crash recorder is another implementation, so that
/// crash images come from the code below. The caller has checked every offset.
pub(crate) trait Memory: Send + Sync + fmt::Debug {
    /// Where the memory ends: offsets are those of a file.
    fn len(&self) -> usize;
    /// Where the memory begins.
    fn start(&self) -> usize {
        0
    }
    /// The address of the memory, if devices may reach it.
    fn direct(&self) -> Option<DirectMemory> {
        None
    }
    /// Whether an access to the range meets no fault that waits.
    fn is_present(&self, offset: usize, len: usize, touch: Touch) -> bool;
    /// Waits until an access to the range meets no fault that waits.
    fn populate(&self, offset: usize, len: usize, touch: Touch) -> Result<(), MediumError>;
    /// Whether every access to the range before this call reached its memory; the error names the loss.
    fn health(&self, offset: usize, len: usize) -> Result<(), MediumError>;
    fn load(&self, offset: usize, out: &mut [u8]);
    /// Stores through the caches.
    fn store(&self, offset: usize, bytes: &[u8]);
    /// Stores past the caches; whole lines only.
    fn stream(&self, offset: usize, bytes: &[u8]);
    fn write_back(&self, offset: usize, len: usize);
    fn drain(&self);
    fn atomic(&self, offset: usize, op: AtomicOp) -> u64;
}

/// The [`Medium`] over any [`Memory`].
#[derive(Debug)]
pub(crate) struct LineMedium<M> {
    memory: M,
    worth: Worth,
    writable: bool,
}

/// The effect of a persist, which decides what a placement has to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Worth {
    /// Bytes out of the caches survive.
    Durable,
    /// Bytes are placed as on persistent memory, so that the timing is that of persistent memory.
    Emulated,
    /// No byte survives, so placement leaves the bytes in the caches.
    Nothing,
}

impl<M: Memory> LineMedium<M> {
    pub(crate) fn new(memory: M, worth: Worth, writable: bool) -> Self {
        Self { memory, worth, writable }
    }

    fn limit(&self) -> u64 {
        u64::try_from(self.memory.len())
            .expect("no supported machine has more than 64 address bits")
    }

    fn check(&self, offset: u64, len: u64) -> Result<usize, MediumError> {
        let limit = self.limit();
        check_bounds(offset, len, limit)?;
        let at = index(offset);
        if at < self.memory.start() {
            return Err(MediumError::OutOfBounds { offset, len, limit });
        }
        Ok(at)
    }

    fn check_place(&self, offset: u64, bytes: &[u8]) -> Result<usize, MediumError> {
        self.check(offset, length_of(bytes))?;
        self.check_writable()?;
        Ok(index(offset))
    }

    fn check_read(&self, offset: u64, out: &[u8]) -> Result<usize, MediumError> {
        self.check(offset, length_of(out))
    }

    fn check_atomic(&self, offset: u64) -> Result<usize, MediumError> {
        check_word(offset, self.limit())?;
        self.check(offset, AtomicOp::LEN)?;
        self.check_writable()?;
        Ok(index(offset))
    }

    fn check_writable(&self) -> Result<(), MediumError> {
        if self.writable { Ok(()) } else { Err(MediumError::ReadOnly) }
    }

    fn present(&self, offset: usize, len: usize, touch: Touch) -> Result<(), MediumError> {
        match self.memory.is_present(offset, len, touch) {
            true => Ok(()),
            false => Err(MediumError::WouldBlock),
        }
    }

    /// Populates the range unless it is known to be present.
    fn fetch(&self, offset: usize, len: usize, touch: Touch) -> Result<(), MediumError> {
        match self.memory.is_present(offset, len, touch) {
            true => Ok(()),
            false => self.memory.populate(offset, len, touch),
        }
    }

    fn place_present(&self, offset: usize, bytes: &[u8]) -> Result<(), MediumError> {
        self.place_undrained(offset, bytes);
        if self.worth != Worth::Nothing {
            self.memory.drain();
        }
        self.memory.health(offset, bytes.len())
    }

    fn place_undrained(&self, offset: usize, bytes: &[u8]) {
        match self.worth {
            Worth::Nothing => self.memory.store(offset, bytes),
            Worth::Durable | Worth::Emulated if bytes.len() < STREAM_MIN => {
                self.place_cached(offset, bytes);
            }
            Worth::Durable | Worth::Emulated => {
                let (head, rest) = bytes.split_at(offset.wrapping_neg() & (CACHE_LINE - 1));
                let (lines, tail) = rest.split_at(rest.len() & !(CACHE_LINE - 1));
                self.place_cached(offset, head);
                self.memory.stream(offset + head.len(), lines);
                self.place_cached(offset + head.len() + lines.len(), tail);
            }
        }
    }

    fn place_cached(&self, offset: usize, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.memory.store(offset, bytes);
            self.memory.write_back(offset, bytes.len());
        }
    }

    fn read_present(&self, offset: usize, out: &mut [u8]) -> Result<(), MediumError> {
        self.memory.load(offset, out);
        self.memory.health(offset, out.len())
    }

    fn atomic_present(&self, offset: usize, op: AtomicOp) -> Result<u64, MediumError> {
        let previous = self.memory.atomic(offset, op);
        if self.worth != Worth::Nothing {
            self.memory.write_back(offset, 8);
            self.memory.drain();
        }
        self.memory.health(offset, 8).map(|()| previous)
    }
}

impl<M: Memory> Medium for LineMedium<M> {
    fn class(&self) -> DurabilityClass {
        match self.worth {
            Worth::Durable => DurabilityClass::Pmem,
            Worth::Emulated | Worth::Nothing => DurabilityClass::Volatile,
        }
    }

    fn store_granularity(&self) -> StoreGranularity {
        match self.worth {
            Worth::Durable | Worth::Emulated => StoreGranularity::CacheLine,
            Worth::Nothing => StoreGranularity::Byte,
        }
    }

    fn len(&self) -> u64 {
        self.limit()
    }

    fn is_emulated(&self) -> bool {
        self.worth == Worth::Emulated
    }

    fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        let offset = self.check_place(offset, bytes)?;
        self.present(offset, bytes.len(), Touch::Write)?;
        self.place_present(offset, bytes)
    }

    fn try_place_part(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        let offset = self.check_place(offset, bytes)?;
        self.present(offset, bytes.len(), Touch::Write)?;
        self.place_undrained(offset, bytes);
        self.memory.health(offset, bytes.len())
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        let offset = self.check_read(offset, out)?;
        self.present(offset, out.len(), Touch::Read)?;
        self.read_present(offset, out)
    }

    fn try_persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.check(offset, len)?;
        if self.worth == Worth::Nothing {
            return Err(MediumError::VolatileRefused);
        }
        self.memory.drain();
        // Bytes stored to a page that the file had lost are lost.
        self.memory.health(index(offset), index(len))
    }

    fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        let offset = self.check_atomic(offset)?;
        self.present(offset, 8, Touch::Write)?;
        self.atomic_present(offset, op)
    }

    fn direct(&self) -> Option<DirectMemory> {
        self.memory.direct()
    }

    fn persist_foreign(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.check(offset, len)?;
        // Bytes that a device has placed may lie in the caches, and no placement has written them back.
        if self.worth != Worth::Nothing {
            self.memory.write_back(index(offset), index(len));
        }
        self.try_persist(offset, len)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        let offset = self.check_place(offset, bytes)?;
        self.fetch(offset, bytes.len(), Touch::Write)?;
        self.place_present(offset, bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        let offset = self.check_read(offset, out)?;
        self.fetch(offset, out.len(), Touch::Read)?;
        self.read_present(offset, out)
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.try_persist(offset, len)
    }

    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        let offset = self.check_atomic(offset)?;
        self.fetch(offset, 8, Touch::Write)?;
        self.atomic_present(offset, op)
    }

    fn prepare(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.check(offset, len)?;
        let touch = if self.writable { Touch::Write } else { Touch::Read };
        self.memory.populate(index(offset), index(len), touch)
    }
}

/// Converts an offset into mapped memory, which always fits.
fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("checked against the length of mapped memory")
}

/// Placements of at least this many bytes stream their whole lines.
const STREAM_MIN: usize = 256;
