//! Records that were appended and that no commit has taken yet.
//!
//! ```text
//!   kept from .......... durable ........ taken ......... tail
//!              (members)        (a commit is under way)  (staged here)
//! ```

use std::ops::Range;

use crate::direct::Reserved;
use crate::error::LogError;
use crate::format::{ALIGNMENT, HEADER_LEN, Header, Kind, Label, LogId, record};
use crate::lsn::{Generation, Lsn};
use crate::ring::Ring;
use crate::scan::to_u64;
use crate::seal::{SALT_LEN, SEAL_LEN, Sealer};

/// Encodes records, and keeps them until a commit takes them.
#[derive(Debug)]
pub(crate) struct Staging {
    id: LogId,
    ring: Ring,
    unit: u64,
    generation: Generation,
    seal: Option<Sealer>,
    /// The oldest record that must stay.
    kept_from: Lsn,
    /// The LSN of the first staged byte.
    start: Lsn,
    bytes: Vec<u8>,
}

/// What a commit writes.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) start: Lsn,
    pub(crate) bytes: Vec<u8>,
}

impl Batch {
    /// Behind the last record.
    pub(crate) fn end(&self) -> Lsn {
        self.start.plus(to_u64(self.bytes.len()))
    }

    pub(crate) fn range(&self) -> Range<Lsn> {
        self.start..self.end()
    }
}

impl Staging {
    pub(crate) fn new(label: &Label, seal: Option<Sealer>, tail: Lsn) -> Self {
        Self {
            id: label.id,
            ring: Ring { capacity: label.capacity },
            unit: u64::from(label.unit),
            generation: label.generation,
            seal,
            kept_from: label.start,
            start: tail,
            bytes: Vec::new(),
        }
    }

    /// The LSN of the next record, unless it has to begin at the ring's beginning.
    pub(crate) fn tail(&self) -> Lsn {
        self.start.plus(to_u64(self.bytes.len()))
    }

    /// Frees the room before `lsn`.
    pub(crate) fn keep_from(&mut self, lsn: Lsn) {
        self.kept_from = self.kept_from.max(lsn);
    }

    /// From now on commits end at multiples of `unit`, which is larger than before.
    pub(crate) fn raise_unit(&mut self, unit: u32) {
        self.unit = self.unit.max(u64::from(unit));
    }

    /// Whether a record of `len` bytes has to wait for a commit to take what is staged.
    pub(crate) fn is_crowded_for(&self, len: usize) -> bool {
        !self.bytes.is_empty() && self.bytes.len() + len > STAGED_MAX
    }

    /// The longest record of this log.
    pub(crate) fn record_max(&self) -> usize {
        let longest = usize::try_from(self.ring.capacity / 4).unwrap_or(RECORD_MAX).min(RECORD_MAX);
        longest - HEADER_LEN - SEAL_LEN
    }

    /// Adds a record of `len` bytes that `fill` writes into zeroed memory.
    pub(crate) fn append(
        &mut self,
        len: usize,
        durable: Lsn,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Lsn, LogError> {
        let (stored, filler) = self.plan(len)?;
        if filler > 0 {
            self.fill_up(filler, durable);
        }
        self.add(len, stored, durable, fill)
    }

    /// Room for a record that its thread places by itself; `None` while anything is staged that has to come before, or if
    /// records need what happens here: a seal, or units of a disk.
    pub(crate) fn reserve(
        &mut self,
        len: usize,
        durable: Lsn,
    ) -> Result<Option<Reserved>, LogError> {
        if !self.bytes.is_empty() || self.seal.is_some() || self.unit != ALIGNMENT {
            return Ok(None);
        }
        let (stored, filler) = self.plan(len)?;
        let start = self.tail();
        let lsn = start.plus(filler);
        let end = lsn.plus(record::extent_of(to_u64(stored)));
        self.start = end;
        let (id, ring, generation) = (self.id, self.ring, self.generation);
        Ok(Some(Reserved { id, ring, generation, start, lsn, end, durable }))
    }

    /// Everything below is being made durable, or is: no commit finds it here.
    pub(crate) fn taken(&self) -> Lsn {
        self.start
    }

    /// Bytes that a record of `len` stores, and those of the filler before it.
    fn plan(&self, len: usize) -> Result<(usize, u64), LogError> {
        let max = self.record_max();
        if len > max {
            return Err(LogError::TooLong { len, max });
        }
        let stored = len + if self.seal.is_some() { SEAL_LEN } else { 0 };
        let extent = record::extent_of(to_u64(stored));
        let room = self.ring.until_end(self.tail());
        let filler = if extent > room { room } else { 0 };
        self.check_room(filler + extent)?;
        Ok((stored, filler))
    }

    /// Whether a record of `len` bytes fits now.
    pub(crate) fn has_room_for(&self, len: usize) -> Result<(), LogError> {
        self.plan(len).map(drop)
    }

    fn check_room(&self, more: u64) -> Result<(), LogError> {
        let end = self.tail().plus(more).0.next_multiple_of(self.unit);
        let kept = Lsn(end).since(self.kept_from);
        if kept <= self.ring.capacity {
            return Ok(());
        }
        let kept = self.tail().since(self.kept_from);
        Err(LogError::Full { kept, capacity: self.ring.capacity })
    }

    fn add(
        &mut self,
        len: usize,
        stored: usize,
        durable: Lsn,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Lsn, LogError> {
        let lsn = self.tail();
        let kind = if self.seal.is_some() { Kind::Sealed } else { Kind::Data };
        let length = u32::try_from(stored).expect("at most RECORD_MAX");
        let header = Header { kind, length, lsn, durable, generation: self.generation };
        let extent = usize::try_from(header.extent()).expect("at most RECORD_MAX");
        let mut record = Unfinished::at_the_end_of(&mut self.bytes, extent);
        let payload = &mut record.bytes()[HEADER_LEN..HEADER_LEN + stored];
        let text = if self.seal.is_some() { SALT_LEN } else { 0 };
        fill(&mut payload[text..text + len]);
        if let Some(seal) = &self.seal {
            seal.seal(&header, payload)?;
        }
        let bytes = header.emit(&self.id, payload);
        record.bytes()[..HEADER_LEN].copy_from_slice(&bytes);
        record.is_whole = true;
        Ok(lsn)
    }

    /// A filler of `extent` bytes.
    fn fill_up(&mut self, extent: u64, durable: Lsn) {
        let length = u32::try_from(extent - to_u64(HEADER_LEN)).expect("shorter than a record");
        let lsn = self.tail();
        let header =
            Header { kind: Kind::Filler, length, lsn, durable, generation: self.generation };
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&header.emit(&self.id, &[]));
        self.bytes.resize(begin + usize::try_from(extent).expect("shorter than a record"), 0);
    }

    /// Hands out what is staged, in exchange for an empty buffer. Afterwards records begin in a new unit.
    pub(crate) fn take(&mut self, durable: Lsn, empty: Vec<u8>) -> Batch {
        let beyond = self.tail().0 % self.unit;
        // Records that were staged before the unit grew may have left no room for it.
        let has_room = self.check_room(0).is_ok();
        if !self.bytes.is_empty() && beyond > 0 && has_room {
            self.fill_up(self.unit - beyond, durable);
        }
        let start = self.start;
        self.start = self.tail();
        let bytes = std::mem::replace(&mut self.bytes, empty);
        self.bytes.clear();
        Batch { start, bytes }
    }
}

/// A record that is being built. Unless it became whole it is taken back, also where the caller's function panics: zeros
/// between records would be the end of the log to every later opening.
struct Unfinished<'b> {
    staged: &'b mut Vec<u8>,
    begin: usize,
    is_whole: bool,
}

impl<'b> Unfinished<'b> {
    fn at_the_end_of(staged: &'b mut Vec<u8>, extent: usize) -> Self {
        let begin = staged.len();
        staged.resize(begin + extent, 0);
        Self { staged, begin, is_whole: false }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.staged[self.begin..]
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            self.staged.truncate(self.begin);
        }
    }
}

/// Most bytes staged: a writer that has more waits for a commit.
pub(crate) const STAGED_MAX: usize = 4 << 20;
/// Longest record, with its header and seal.
const RECORD_MAX: usize = 1 << 20;
