//! What a file in flash is made of: reads, writes, flushes, and what the file system knows of holes.
//!
//! In production the device is a file ([`crate::Disk`]); over a [`MediumDevice`] the crash recorder records what this
//! crate asks of the machine, and tests put delays and errors between. So crash images and faults come from the code that
//! runs in production.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use memmap2::MmapMut;
use pmem::{Backing, Medium, MediumError};

/// The operations on a file. Every method may wait. Offsets and lengths of reads are multiples of a page; a read that
/// reaches the end of the file is short.
pub trait Device: Send + Sync + fmt::Debug {
    /// Present length, which other processes may change.
    ///
    /// # Errors
    ///
    /// The file cannot be asked.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no byte at present.
    ///
    /// # Errors
    ///
    /// The file cannot be asked.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads bytes at `offset`; a short count says no more than that so many bytes came.
    ///
    /// # Errors
    ///
    /// The device refused.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize>;

    /// Writes bytes at `offset`; placed in the file and visible there, not durable.
    ///
    /// # Errors
    ///
    /// The device refused, or has no room.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Carries out transfers in any order, and waits for all of them.
    fn transfer(&self, batch: &mut [Transfer]) {
        for transfer in batch {
            transfer.carry_out(self);
        }
    }

    /// Makes everything written so far durable.
    ///
    /// # Durability
    ///
    /// After `Ok`, every write that returned before this call survives a crash.
    ///
    /// # Errors
    ///
    /// [`MediumError::Poisoned`] for good once any flush of the file has failed.
    fn persist(&self) -> Result<(), MediumError>;

    /// Whether a flush has failed.
    fn is_poisoned(&self) -> bool;

    /// Notes that bytes of the file are lost: no later [`Device::persist`] succeeds.
    fn poison(&self);

    /// Something else than [`Device::write`] has changed the bytes below; no page of the range comes in meanwhile.
    fn changed_below(&self, _offset: u64, _len: u64) {}

    /// The descriptor that pages are read from past the page cache, for reads that their thread does not wait for.
    fn direct(&self) -> Option<&Arc<File>> {
        None
    }

    /// The bytes from `offset` on that are all in a hole, or all not; `None` if the file system does not say.
    fn extent_at(&self, _offset: u64) -> Option<Extent> {
        None
    }

    /// The device and the file that callers may wait for.
    fn backing(&self) -> Option<Backing> {
        None
    }

    /// Pages that came from a faster directory, for the operator.
    fn tier_bytes(&self) -> u64 {
        0
    }

    /// How bytes move, for the operator.
    fn how(&self) -> How {
        How { is_direct: false, is_ring: false }
    }
}

/// A stretch of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Extent {
    /// The bytes.
    pub range: Range<u64>,
    /// Nothing was ever written there, and zeros are read.
    pub is_hole: bool,
}

/// How bytes move between a file and this process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct How {
    /// Past the page cache of the kernel (O_DIRECT).
    pub is_direct: bool,
    /// Batches by io_uring; otherwise by threads.
    pub is_ring: bool,
}

/// One read or write of a batch, with memory of its own.
#[derive(Debug)]
pub struct Transfer {
    /// Where in the file.
    pub offset: u64,
    /// How many bytes, at most [`Transfer::LEN_MAX`].
    pub len: usize,
    /// To the file, otherwise from it.
    pub is_write: bool,
    /// What came of it: how many bytes.
    pub result: io::Result<usize>,
    buffer: MmapMut,
}

impl Transfer {
    /// The most bytes of a transfer.
    pub const LEN_MAX: usize = 64 * 1024;

    pub(crate) fn new() -> io::Result<Self> {
        Self::of(Self::LEN_MAX)
    }

    /// One for at most `room` bytes.
    pub(crate) fn of(room: usize) -> io::Result<Self> {
        let buffer = MmapMut::map_anon(room)?;
        Ok(Self { offset: 0, len: 0, is_write: false, result: Ok(0), buffer })
    }

    /// One that stands for a transfer that is elsewhere: it has no room.
    pub(crate) fn empty() -> io::Result<Self> {
        let buffer = MmapMut::map_anon(1)?;
        Ok(Self { offset: 0, len: 0, is_write: false, result: Ok(0), buffer })
    }

    /// The most bytes of this one.
    pub(crate) fn room(&self) -> usize {
        self.buffer.len()
    }

    /// Prepares the memory for another transfer.
    pub(crate) fn set(&mut self, offset: u64, len: usize, is_write: bool) {
        debug_assert!(len <= self.room(), "transfers are divided before");
        (self.offset, self.len, self.is_write, self.result) = (offset, len, is_write, Ok(0));
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.len]
    }

    /// Carries out the rest of the transfer, up to its end or the end of the file, by plain calls.
    pub fn carry_out(&mut self, device: &(impl Device + ?Sized)) {
        let mut done = match &self.result {
            Ok(done) => *done,
            Err(_) => return,
        };
        while done < self.len {
            let at = self.offset + u64::try_from(done).expect("a short buffer");
            let piece = &mut self.buffer[done..self.len];
            let moved = match self.is_write {
                true => device.write(at, piece),
                false => device.read(at, piece),
            };
            match moved {
                Ok(0) if self.is_write => {
                    self.result = Err(io::Error::from_raw_os_error(libc::ENOSPC));
                    return;
                }
                Ok(0) => break,
                Ok(moved) => done += moved,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.result = Err(error);
                    return;
                }
            }
        }
        self.result = Ok(done);
    }
}

/// A medium as a device: that of the crash recorder, or memory.
#[derive(Debug)]
pub struct MediumDevice(pub Arc<dyn Medium>);

impl MediumDevice {
    fn outcome<T>(outcome: Result<T, MediumError>) -> io::Result<T> {
        outcome.map_err(|error| match error {
            MediumError::MediaIo(errno) => io::Error::from_raw_os_error(errno),
            _ => io::Error::from_raw_os_error(libc::EIO),
        })
    }
}

impl Device for MediumDevice {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let left = self.0.len().saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
        Self::outcome(self.0.read(offset, &mut out[..len])).map(|()| len)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        Self::outcome(self.0.place(offset, bytes)).map(|()| bytes.len())
    }

    fn persist(&self) -> Result<(), MediumError> {
        self.0.persist(0, self.0.len())
    }

    fn is_poisoned(&self) -> bool {
        self.0.try_persist(0, 0) == Err(MediumError::Poisoned)
    }

    fn poison(&self) {}
}
