//! Finds the records of a member: from the start to the first place where no record is.
//!
//! ```text
//!   start                      tail
//!     | record | record | record | torn | record of the same batch | records of older laps ...
//! ```
//! A record is the next one if its header names this address, its checksum is right, and its generation is that of the
//! label or, before the place where that generation began, an older one. What lies behind the tail was never
//! acknowledged, unless the label or a later record says that the log was durable beyond the tail: then a durable
//! record is damaged. A record that only a later label allows, anywhere in the ring, tells that the label is not the
//! newest that the log had.

use crate::format::{ALIGNMENT, HEADER_LEN, Header, Kind, Label};
use crate::lsn::{Generation, Lsn};
use crate::ring::Ring;
use crate::store::{Store, StoreError};

/// What a scan found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Found {
    /// Behind the last record.
    pub(crate) tail: Lsn,
    /// What a record says was durable: at most the tail, unless a record is damaged.
    pub(crate) durable: Lsn,
    /// A record that was made under a later label than the one the scan was given.
    pub(crate) later: Option<Lsn>,
}

/// Finds the tail of a member, and looks behind it for what must have been there.
pub(crate) fn scan(store: &mut dyn Store, label: &Label) -> Result<Found, StoreError> {
    let mut reader = Reader::new(label, label.start);
    let durable = label.start.max(label.opened);
    let mut found = Found { tail: label.start, durable, later: None };
    while let Some(header) = reader.next(store)? {
        found.durable = found.durable.max(header.durable);
    }
    found.tail = reader.at();
    look_behind(store, label, &mut found)?;
    Ok(found)
}

/// The greatest `durable` of a record between the tail and the end of the lap that began at the start, and the first
/// record there that is of a later label.
fn look_behind(store: &mut dyn Store, label: &Label, found: &mut Found) -> Result<(), StoreError> {
    let end = label.start.plus(label.capacity);
    let mut at = found.tail;
    while at < end {
        let mut reader = Reader::new(label, at);
        while let Some(header) = reader.next(store)? {
            found.durable = found.durable.max(header.durable);
        }
        if found.later.is_none() {
            found.later = reader.later(store)?;
        }
        at = reader.at().max(at.plus(ALIGNMENT));
        at = reader.skip_what_is_no_header(store, at, end)?;
    }
    Ok(())
}

/// Walks records from an address on, as long as each follows the one before.
#[derive(Debug)]
pub(crate) struct Reader {
    label: Label,
    ring: Ring,
    at: Lsn,
    window: Window,
    /// The payload of the last record that did not fit the window.
    payload: Vec<u8>,
}

impl Reader {
    /// From a record, or from where one would be.
    pub(crate) fn new(label: &Label, from: Lsn) -> Self {
        let ring = Ring { capacity: label.capacity };
        let window = Window::default();
        Self { label: label.clone(), ring, at: from, window, payload: Vec::new() }
    }

    /// Behind the last record.
    pub(crate) fn at(&self) -> Lsn {
        self.at
    }

    /// The next record's header; `None` at the end. [`Reader::payload`] has its bytes.
    pub(crate) fn next(&mut self, store: &mut dyn Store) -> Result<Option<Header>, StoreError> {
        let Some((header, crc)) = self.header(store, self.at)? else { return Ok(None) };
        let room = self.ring.until_end(self.at);
        let left = self.label.start.plus(self.label.capacity).since(self.at);
        let follows = self.may_be_here(header.generation) && header.extent() <= room.min(left);
        if !follows || !self.holds(store, &header, crc)? {
            return Ok(None);
        }
        self.at = self.at.plus(header.extent());
        Ok(Some(header))
    }

    /// Whether a record of this generation can be the next one.
    fn may_be_here(&self, generation: Generation) -> bool {
        #[cfg(test)]
        if crate::planted::Planted::AcceptsOldGeneration.is_here() {
            return true;
        }
        let newest = self.label.generation;
        generation == newest || self.at < self.label.opened && generation < newest
    }

    /// The payload of the last record, as stored.
    pub(crate) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.payload
    }

    /// Forgets what was read ahead: another store follows, or the ring has changed.
    pub(crate) fn forget(&mut self) {
        self.window = Window::default();
    }

    /// The header at an address, if there is one that names the address.
    fn header(
        &mut self,
        store: &mut dyn Store,
        at: Lsn,
    ) -> Result<Option<(Header, u32)>, StoreError> {
        Ok(self.any_header(store, at)?.filter(|(header, _)| header.lsn == at))
    }

    /// The header in the place of an address, whatever address it names.
    fn any_header(
        &mut self,
        store: &mut dyn Store,
        at: Lsn,
    ) -> Result<Option<(Header, u32)>, StoreError> {
        let bytes = self.window.get(store, self.ring, at, HEADER_LEN)?;
        Ok(Header::parse(bytes.first_chunk().expect("as many as were asked for")))
    }

    /// The record here, if it was made under a later label: a later opening, or in room that a later start has freed.
    /// Each label is durable in both slots before such a record is made, so both copies were damaged or put back.
    fn later(&mut self, store: &mut dyn Store) -> Result<Option<Lsn>, StoreError> {
        let Some((header, crc)) = self.any_header(store, self.at)? else { return Ok(None) };
        let lap = self.label.start.plus(self.label.capacity);
        let is_later = header.generation > self.label.generation || header.lsn >= lap;
        let lies_here = self.ring.offset(header.lsn) == self.ring.offset(self.at)
            && header.extent() <= self.ring.until_end(self.at);
        Ok((is_later && lies_here && self.holds(store, &header, crc)?).then_some(header.lsn))
    }

    /// Reads the payload and checks the sum.
    fn holds(
        &mut self,
        store: &mut dyn Store,
        header: &Header,
        crc: u32,
    ) -> Result<bool, StoreError> {
        self.payload.clear();
        self.payload.resize(header.stored(), 0);
        let mut done = 0;
        // A record does not cross the end of the ring.
        while done < self.payload.len() {
            let len = (self.payload.len() - done).min(WINDOW_LEN);
            let at = self.at.plus(to_u64(HEADER_LEN + done));
            let bytes = self.window.get(store, self.ring, at, len)?;
            self.payload[done..done + len].copy_from_slice(bytes);
            done += len;
        }
        Ok(header.checksum(&self.label.id, &self.payload) == crc)
    }

    /// The first address from `at` on with a header that names the address or is of a later label, or `end`.
    fn skip_what_is_no_header(
        &mut self,
        store: &mut dyn Store,
        at: Lsn,
        end: Lsn,
    ) -> Result<Lsn, StoreError> {
        let mut at = at;
        let lap = self.label.start.plus(self.label.capacity);
        while at < end {
            let newest = self.label.generation;
            let header = self.any_header(store, at)?;
            if header.is_some_and(|(header, _)| {
                header.lsn == at || header.lsn >= lap || header.generation > newest
            }) {
                break;
            }
            at = at.plus(ALIGNMENT);
        }
        Ok(at)
    }
}

/// Bytes of a ring that were read together.
#[derive(Debug, Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// `len` bytes at `at`, which lie before the end of the ring, and are at most [`WINDOW_LEN`].
    fn get(
        &mut self,
        store: &mut dyn Store,
        ring: Ring,
        at: Lsn,
        len: usize,
    ) -> Result<&[u8], StoreError> {
        let offset = ring.offset(at);
        let end = self.start + to_u64(self.bytes.len());
        if offset < self.start || offset + to_u64(len) > end {
            let until_end = usize::try_from(ring.until_end(at)).unwrap_or(usize::MAX);
            self.bytes.resize(WINDOW_LEN.min(until_end), 0);
            self.start = offset;
            // What a failed read left here means nothing.
            store.read(offset, &mut self.bytes).inspect_err(|_| self.bytes.clear())?;
        }
        let from = usize::try_from(offset - self.start).expect("within the window");
        Ok(&self.bytes[from..from + len])
    }
}

/// Bytes read together: few reads of a remote ring, and little memory.
const WINDOW_LEN: usize = 256 << 10;

pub(crate) fn to_u64(len: usize) -> u64 {
    u64::try_from(len).expect("no supported machine has more than 64 address bits")
}

/// Whether a record is the user's.
pub(crate) fn is_users(header: &Header) -> bool {
    matches!(header.kind, Kind::Data | Kind::Sealed)
}
