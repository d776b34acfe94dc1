//! An append stream: records that one client at a time appends, and any number of clients read.
//!
//! ```text
//!   0          8        16                64
//!   | LFSTREAM | tail   | zeros           | record | record | ...         tail counts bytes from 64 on
//!   record     length 4 | CRC-32C 4 | bytes | zeros to a multiple of 8    the CRC covers length and bytes
//! ```
//!
//! The tail moves when the records before it are visible at every copy: a reader that sees a tail finds them all. The
//! one store of the tail makes records part of the stream.

use super::{crc32c, u32_at, u64_at};
use crate::client::Region;
use crate::error::StoreError;
use crate::layout::wide;

/// The end that appends. There is one at a time; who breaks this rule loses records of one of them.
#[derive(Debug)]
pub struct StreamWriter {
    region: Region,
    /// Where the next record begins, counted from [`BEGIN`].
    tail: u64,
    /// Records that are not in the region yet.
    buffer: Vec<u8>,
}

impl StreamWriter {
    /// Makes an empty stream of a region.
    ///
    /// # Errors
    /// The region is too short, or cannot be written.
    pub fn create(region: Region) -> Result<Self, StoreError> {
        let mut head = [0; 64];
        head[..8].copy_from_slice(MAGIC);
        region.write(0, &head)?;
        Ok(Self { region, tail: 0, buffer: Vec::new() })
    }

    /// Appends to the stream of a region.
    ///
    /// # Errors
    /// The region holds no stream, or cannot be read.
    pub fn open(region: Region) -> Result<Self, StoreError> {
        let tail = tail_of(&region)?;
        Ok(Self { region, tail, buffer: Vec::new() })
    }

    /// Appends a record. It is part of the stream after the next [`StreamWriter::flush`], or when enough of them wait.
    ///
    /// # Errors
    /// [`StoreError::Full`]: the record was not appended; else the region cannot be written.
    pub fn append(&mut self, record: &[u8]) -> Result<(), StoreError> {
        let len = u32::try_from(record.len()).map_err(|_| StoreError::Full("stream"))?;
        let padded = (8 + record.len()).next_multiple_of(8);
        let used = self.tail + wide(self.buffer.len());
        let room = self.region.len().saturating_sub(BEGIN + used);
        if wide(padded) > room {
            return Err(StoreError::Full("stream"));
        }
        let end = self.buffer.len() + padded;
        self.buffer.extend(len.to_le_bytes());
        self.buffer.extend(crc32c(&[&len.to_le_bytes(), record]).to_le_bytes());
        self.buffer.extend_from_slice(record);
        self.buffer.resize(end, 0);
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    /// Makes the records appended so far part of the stream: visible to every reader.
    ///
    /// # Errors
    /// The region cannot be written; the records are kept for the next flush.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.region.write(BEGIN + self.tail, &self.buffer)?;
        let tail = self.tail + wide(self.buffer.len());
        self.region.write(TAIL, &tail.to_le_bytes())?;
        self.tail = tail;
        self.buffer.clear();
        Ok(())
    }

    /// The region; records that were not flushed are gone.
    pub fn into_region(self) -> Region {
        self.region
    }
}

/// An end that reads.
#[derive(Debug)]
pub struct StreamReader {
    region: Region,
    tail: u64,
    at: u64,
    buffer: Vec<u8>,
    /// Where the buffer begins in the stream.
    base: u64,
}

impl StreamReader {
    /// Reads the stream of a region from its beginning.
    ///
    /// # Errors
    /// The region holds no stream, or cannot be read.
    pub fn open(region: Region) -> Result<Self, StoreError> {
        let tail = tail_of(&region)?;
        Ok(Self { region, tail, at: 0, buffer: Vec::new(), base: 0 })
    }

    /// The next record; `None` when there is none yet.
    ///
    /// # Errors
    /// The region cannot be read, or holds what is no record.
    pub fn next_record(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        if self.at == self.tail {
            self.tail = tail_of(&self.region)?;
            if self.at == self.tail {
                return Ok(None);
            }
        }
        let name = self.region.name().to_owned();
        let garbled = StoreError::Garbled { name, what: "record of a stream" };
        let head = self.bytes(8)?;
        let (len, crc) = (u32_at(&head, 0), u32_at(&head, 4));
        let whole = usize::try_from(len).ok().and_then(|len| len.checked_add(8));
        let whole = whole.filter(|whole| wide(*whole) <= self.tail - self.at);
        let Some(whole) = whole else { return Err(garbled) };
        let record = self.bytes(whole)?.split_off(8);
        if crc32c(&[&len.to_le_bytes(), &record]) != crc {
            return Err(garbled);
        }
        self.at += wide(whole.next_multiple_of(8));
        Ok(Some(record))
    }

    /// The next bytes of the stream, of which there are so many before the tail.
    fn bytes(&mut self, len: usize) -> Result<Vec<u8>, StoreError> {
        let start = usize::try_from(self.at - self.base).unwrap_or(usize::MAX);
        if start.checked_add(len).is_none_or(|end| end > self.buffer.len()) {
            let left = usize::try_from(self.tail - self.at).unwrap_or(usize::MAX);
            let taken = left.min(len.max(BUFFER));
            self.buffer.resize(taken, 0);
            self.base = self.at;
            self.region.read(BEGIN + self.at, &mut self.buffer)?;
        }
        let start = usize::try_from(self.at - self.base).expect("the buffer begins before it");
        Ok(self.buffer[start..start + len].to_vec())
    }
}

fn tail_of(region: &Region) -> Result<u64, StoreError> {
    let mut head = [0; 16];
    region.read(0, &mut head)?;
    let tail = u64_at(&head, 8);
    let is_sound = head[..8] == *MAGIC && tail.is_multiple_of(8) && tail <= region.len() - BEGIN;
    let garbled = || StoreError::Garbled { name: region.name().to_owned(), what: "stream" };
    is_sound.then_some(tail).ok_or_else(garbled)
}

const MAGIC: &[u8; 8] = b"LFSTREAM";
const TAIL: u64 = 8;
const BEGIN: u64 = 64;
/// Records that wait together, and bytes that are read together.
const BUFFER: usize = 256 << 10;
