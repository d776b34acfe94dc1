//! redb in memory that a commit makes durable: a mapped file of this machine, or a region of another one.
//!
//! ```text
//!   0     8  LFREDBM1
//!   8     8  length of the database; stored in one piece, which commits a change of the length
//!  4096      the database
//! ```

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmem::Memory;
use redb::StorageBackend;

/// Memory as redb's storage. The database grows up to what the memory has room for.
pub struct MemoryBackend<M> {
    state: Mutex<State<M>>,
}

struct State<M> {
    memory: M,
    len: u64,
    /// What was placed and not committed: from, to.
    dirty: Option<(u64, u64)>,
}

impl<M: Memory + Send + 'static> MemoryBackend<M>
where
    M::Error: Error + Send + Sync + 'static,
{
    /// The database in this memory, or an empty one where the memory begins with zeros.
    ///
    /// # Errors
    ///
    /// The memory is too small, holds something else, or fails.
    pub fn open(mut memory: M) -> io::Result<Self> {
        if memory.len() < START {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the memory is too small for a database",
            ));
        }
        let mut head = [0; 16];
        memory.read(0, &mut head).map_err(io::Error::other)?;
        let (magic, len) = head.split_at(8);
        let len = u64::from_le_bytes(len.try_into().expect("eight bytes"));
        let room = memory.len() - START;
        if magic == [0; 8] {
            // The length is zero before the magic says that it counts.
            memory.atomic_write(8, 0).map_err(io::Error::other)?;
            memory.commit(8, 8).map_err(io::Error::other)?;
            memory.atomic_write(0, u64::from_le_bytes(MAGIC)).map_err(io::Error::other)?;
            memory.commit(0, 8).map_err(io::Error::other)?;
            return Ok(Self { state: Mutex::new(State { memory, len: 0, dirty: None }) });
        }
        if magic != MAGIC || len > room {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the memory holds no database of this kind",
            ));
        }
        Ok(Self { state: Mutex::new(State { memory, len, dirty: None }) })
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Memory> State<M>
where
    M::Error: Error + Send + Sync + 'static,
{
    /// Where the bytes at `offset` of the database are.
    fn place_of(&self, offset: u64, len: usize) -> io::Result<u64> {
        let len = u64::try_from(len).expect("usize fits u64");
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(START + offset),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn mark(&mut self, from: u64, to: u64) {
        let (first, last) = self.dirty.unwrap_or((from, to));
        self.dirty = Some((first.min(from), last.max(to)));
    }

    fn commit(&mut self) -> io::Result<()> {
        if let Some((from, to)) = self.dirty {
            self.memory.commit(from, to - from).map_err(io::Error::other)?;
            self.dirty = None;
        }
        Ok(())
    }
}

impl<M> fmt::Debug for MemoryBackend<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryBackend(..)")
    }
}

impl<M: Memory + Send + 'static> StorageBackend for MemoryBackend<M>
where
    M::Error: Error + Send + Sync + 'static,
{
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.lock();
        let place = state.place_of(offset, out.len())?;
        state.memory.read(place, out).map_err(io::Error::other)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.lock();
        let room = state.memory.len() - START;
        if len > room {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "the memory has no room for a larger database",
            ));
        }
        // New bytes are zero, and durably so before the length says that they count.
        let (mut at, zeros) = (state.len, vec![0; ZEROS]);
        while at < len {
            let count = (len - at).min(ZEROS as u64);
            let bytes = &zeros[..usize::try_from(count).expect("at most ZEROS")];
            state.memory.place(START + at, bytes).map_err(io::Error::other)?;
            state.mark(START + at, START + at + count);
            at += count;
        }
        state.commit()?;
        state.memory.atomic_write(8, len).map_err(io::Error::other)?;
        state.memory.commit(8, 8).map_err(io::Error::other)?;
        state.len = len;
        Ok(())
    }

    /// # Durability
    ///
    /// On `Ok` every earlier write survives what the class of the memory survives.
    fn sync_data(&self) -> io::Result<()> {
        self.lock().commit()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        let place = state.place_of(offset, data.len())?;
        state.memory.place(place, data).map_err(io::Error::other)?;
        state.mark(place, place + u64::try_from(data.len()).expect("usize fits u64"));
        Ok(())
    }
}

const MAGIC: [u8; 8] = *b"LFREDBM1";
/// The database begins behind a page.
const START: u64 = 4096;
const ZEROS: usize = 64 << 10;
