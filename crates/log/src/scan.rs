//! Finds the records of a member: from the start to the first place where no record is.
//!
//! ```text
//!   start                      tail
//!     | record | record | record | torn | record of the same batch | records of older laps ...
//! ```
//! A record is the next one if its header names this address, its checksum is right, and its generation is that of the
//! label or, before the place where that generation began, an older one. What lies behind the tail was never
//! acknowledged, unless the label or a later record says that the log was durable beyond the tail: then a durable
//! record is damaged.

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
}

/// Finds the tail of a member, and looks behind it for what must have been there.
pub(crate) fn scan(store: &mut dyn Store, label: &Label) -> Result<Found, StoreError> {
    let mut reader = Reader::new(label, label.start);
    let mut found = Found { tail: label.start, durable: label.start.max(label.opened) };
    while let Some(header) = reader.next(store)? {
        found.durable = found.durable.max(header.durable);
    }
    found.tail = reader.at();
    found.durable = found.durable.max(durable_behind(store, label, found.tail)?);
    Ok(found)
}

/// The greatest `durable` of a record between the tail and the end of the lap that began at the start.
fn durable_behind(store: &mut dyn Store, label: &Label, tail: Lsn) -> Result<Lsn, StoreError> {
    let end = label.start.plus(label.capacity);
    let mut at = tail;
    let mut durable = label.start;
    while at < end {
        let mut reader = Reader::new(label, at);
        while let Some(header) = reader.next(store)? {
            durable = durable.max(header.durable);
        }
        at = reader.at().max(at.plus(ALIGNMENT));
        at = reader.skip_what_is_no_header(store, at, end)?;
    }
    Ok(durable)
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
        let bytes = self.window.get(store, self.ring, at, HEADER_LEN)?;
        let bytes = bytes.first_chunk().expect("as many as were asked for");
        Ok(Header::parse(bytes).filter(|(header, _)| header.lsn == at))
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
            let at = header.lsn.plus(to_u64(HEADER_LEN + done));
            let bytes = self.window.get(store, self.ring, at, len)?;
            self.payload[done..done + len].copy_from_slice(bytes);
            done += len;
        }
        Ok(header.checksum(&self.label.id, &self.payload) == crc)
    }

    /// The first address from `at` on with a header that names the address, or `end`.
    fn skip_what_is_no_header(
        &mut self,
        store: &mut dyn Store,
        at: Lsn,
        end: Lsn,
    ) -> Result<Lsn, StoreError> {
        let mut at = at;
        while at < end && self.header(store, at)?.is_none() {
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
            store.read(offset, &mut self.bytes)?;
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
