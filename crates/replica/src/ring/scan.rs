//! Finds the records of a member: from the label's start to the first place where no record of the order is.
//!
//! ```text
//!   start                        end
//!     | record | record | record  | torn | records of the same flush | records of older laps, of sources that lost ...
//! ```
//! A record is the next one if its header names this address and the header before it, both checksums are right, and
//! its epoch is the one that the label's history has at this address.
//!
//! What lies behind the end was never acknowledged, unless the label, or a record behind the end, says that more was
//! committed: then what was there is damaged, and only another member has it.

use log::Lsn;

use super::{Ring, RingError};
use crate::format::{
    Indexed, Label, PAYLOAD_MAX, RECORD_ALIGN, RECORD_HEADER_LEN, Record, header_sum,
    is_of_its_epoch, open_payload, payload_sum,
};
#[cfg(test)]
use crate::planted::Planted;
use crate::wire::expands;

/// What a ring holds; all of it is durable.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Scanned {
    /// The records from the label's start on, in order.
    pub records: Vec<Indexed>,
    /// Behind the last record.
    pub end: Lsn,
    /// What the record at `end` will name as the checksum before it.
    pub end_chain: u32,
    /// What the label, or a record behind the end, says was committed. Where it is more than `end`, what the ring had there is
    /// damaged.
    pub claimed: Lsn,
}

impl Ring {
    /// Finds the records that the ring has by a label.
    ///
    /// # Durability
    ///
    /// On `Ok` all records that were found are durable, whoever placed them.
    ///
    /// # Errors
    ///
    /// What the medium says.
    pub fn scan(&self, label: &Label) -> Result<Scanned, RingError> {
        let mut records = Vec::new();
        let scanned = self.scan_each(label, |found| records.push(found))?;
        Ok(Scanned { records, ..scanned })
    }

    /// [`Ring::scan`] that gives each record to `found` instead of keeping it: a ring of many GiB has millions. What
    /// `found` got may be used once this returns `Ok`.
    ///
    /// # Durability
    ///
    /// As [`Ring::scan`].
    ///
    /// # Errors
    ///
    /// As [`Ring::scan`].
    pub fn scan_each(
        &self,
        label: &Label,
        mut found: impl FnMut(Indexed),
    ) -> Result<Scanned, RingError> {
        let mut reader = Reader::new(self, label);
        while let Some(next) = reader.next()? {
            found(next);
        }
        let (end, end_chain) = (reader.at, reader.chain);
        self.settle(label.start, end)?;
        let claimed = label.committed.max(reader.claimed_behind(end)?);
        Ok(Scanned { records: Vec::new(), end, end_chain, claimed })
    }

    /// Finds the records from `from` on, where the header before has the checksum `chain`: what one-sided operations have put
    /// behind the end that is known, in the order of the label's history. `start` is where the oldest record lies.
    ///
    /// # Durability
    ///
    /// As [`Ring::scan`].
    ///
    /// # Errors
    ///
    /// As [`Ring::scan`].
    pub fn find_behind(
        &self,
        label: &Label,
        start: Lsn,
        (from, chain): (Lsn, u32),
    ) -> Result<Vec<Indexed>, RingError> {
        let label = Label { start, ..label.clone() };
        let mut reader = Reader { at: from, chain, ..Reader::new(self, &label) };
        let mut found = Vec::new();
        while let Some(next) = reader.next()? {
            found.push(next);
        }
        let end = reader.at;
        self.settle(from, end)?;
        Ok(found)
    }

    /// Makes durable what was found.
    fn settle(&self, start: Lsn, end: Lsn) -> Result<(), RingError> {
        #[cfg(test)]
        if Planted::SkipsPersistOfFound.is_here() {
            return Ok(());
        }
        self.persist_foreign(start, end)
    }
}

/// Walks records from the label's start on, as long as each follows the one before.
struct Reader<'a> {
    ring: &'a Ring,
    label: &'a Label,
    window: Window,
    /// Where the next record begins, and what it names as the checksum before it.
    at: Lsn,
    chain: u32,
}

impl<'a> Reader<'a> {
    fn new(ring: &'a Ring, label: &'a Label) -> Self {
        let (at, chain) = (label.start, label.start_chain);
        Self { ring, label, window: Window::default(), at, chain }
    }

    /// Behind the last byte that the ring can hold.
    fn limit(&self) -> Lsn {
        self.label.start.plus(self.ring.capacity())
    }

    /// The next record, if there is one.
    fn next(&mut self) -> Result<Option<Indexed>, RingError> {
        let Some((record, payload_crc, sum)) = self.header(self.at)? else { return Ok(None) };
        let is_next = self.fits(&record)
            && self.is_of_its_epoch(&record)
            && self.is_chained(&record)
            && self.holds(&record, payload_crc)?;
        if !is_next {
            return Ok(None);
        }
        self.at = record.end();
        self.chain = sum;
        Ok(Some(Indexed { record, sum }))
    }

    /// Whether a record crosses neither the end of the ring nor the end of what it keeps.
    fn fits(&self, record: &Record) -> bool {
        record.span() <= self.ring.until_end(record.lsn) && record.end() <= self.limit()
    }

    /// Whether the history has the record's epoch from its first to its last byte.
    fn is_of_its_epoch(&self, record: &Record) -> bool {
        #[cfg(test)]
        if Planted::TakesOldEpochs.is_here() {
            return true;
        }
        is_of_its_epoch(record, &self.label.history)
    }

    fn is_chained(&self, record: &Record) -> bool {
        #[cfg(test)]
        if Planted::SkipsChain.is_here() {
            return true;
        }
        record.chain == self.chain
    }

    /// The header at an address, if there is one that names the address: the record, the checksum of its payload, and
    /// its own.
    fn header(&mut self, at: Lsn) -> Result<Option<(Record, u32, u32)>, RingError> {
        if at.plus(RECORD_HEADER_LEN) > self.limit() {
            return Ok(None);
        }
        let bytes = self.window.bytes(self.ring, at, RECORD_HEADER_LEN)?;
        let Some(bytes) = bytes.first_chunk() else { return Ok(None) };
        // Most of what is no header is told at once.
        if bytes[8..16] != at.0.to_le_bytes() {
            return Ok(None);
        }
        let record = Record::decode(&self.ring.group, bytes).ok();
        Ok(record.map(|(record, payload_crc)| (record, payload_crc, header_sum(bytes))))
    }

    fn payload(&mut self, record: &Record) -> Result<&[u8], RingError> {
        let at = record.lsn.plus(RECORD_HEADER_LEN);
        self.window.bytes(self.ring, at, u64::from(record.payload_len()))
    }

    /// Whether the payload has its checksum.
    fn holds(&mut self, record: &Record, payload_crc: u32) -> Result<bool, RingError> {
        #[cfg(test)]
        if Planted::SkipsPayloadSum.is_here() {
            return Ok(true);
        }
        let group = self.ring.group;
        if record.encoding.is_sealed() {
            let header = self.window.bytes(self.ring, record.lsn, RECORD_HEADER_LEN)?;
            let Some(header) = header.first_chunk().copied() else { return Ok(false) };
            let (keys, epoch) = (self.ring.keys(), self.label.history.epoch_at(record.lsn));
            let sealed = self.payload(record)?;
            let opened = open_payload(keys, epoch, (record, payload_crc), &header, sealed);
            return Ok(opened.is_some_and(|payload| expands(record, &payload)));
        }
        if record.payload_len() == 0 {
            return Ok(true);
        }
        let payload = self.payload(record)?;
        let is_whole = payload_sum(&group, record.lsn, payload) == payload_crc;
        Ok(is_whole && expands(record, payload))
    }

    /// What headers behind the end say was committed. A gap of more than [`GAP_MAX`] ends the search, unless the label
    /// may be an old one, whose first records have been overwritten.
    fn claimed_behind(&mut self, end: Lsn) -> Result<Lsn, RingError> {
        let mut claimed = Lsn(0);
        let (mut at, mut gap_begins) = (end, end);
        let gap_max = if self.ring.looks_far { u64::MAX } else { GAP_MAX };
        while at < self.limit() && at.since(gap_begins) <= gap_max {
            at = match self.header(at)? {
                Some((record, ..)) if self.fits(&record) && self.is_of_its_epoch(&record) => {
                    claimed = claimed.max(record.committed);
                    gap_begins = record.end();
                    record.end()
                }
                _ => at.plus(RECORD_ALIGN),
            };
        }
        Ok(claimed)
    }
}

/// Bytes of a ring that were read together.
#[derive(Debug, Default)]
struct Window {
    start: Lsn,
    bytes: Vec<u8>,
}

impl Window {
    /// `len` bytes at `at`, which do not cross the end of the ring, and are at most [`WINDOW_LEN`].
    fn bytes(&mut self, ring: &Ring, at: Lsn, len: u64) -> Result<&[u8], RingError> {
        let window_end = self.start.plus(super::length_of(&self.bytes));
        if at < self.start || at.plus(len) > window_end {
            let len = WINDOW_LEN.min(ring.until_end(at));
            self.bytes.resize(usize::try_from(len).expect("at most WINDOW_LEN"), 0);
            self.start = at;
            ring.read(at, &mut self.bytes)?;
        }
        let from = usize::try_from(at.since(self.start)).expect("within the window");
        Ok(&self.bytes[from..][..usize::try_from(len).expect("within the window")])
    }
}

/// Bytes read together: any record fits.
const WINDOW_LEN: u64 = 2 << 20;
/// How far behind a record, or the end, the next header is looked for: more than the longest record.
const GAP_MAX: u64 = 4 << 20;

const _: () = assert!(RECORD_HEADER_LEN + PAYLOAD_MAX as u64 <= WINDOW_LEN);
