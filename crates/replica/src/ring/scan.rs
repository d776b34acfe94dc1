//! Finds the records of a member: from the label's start to the first place where no record of the order is.
//!
//! ```text
//!   start                        end
//!     | record | record | record  | torn | records of the same flush | records of older laps, of sources that lost ...
//! ```
//! A record is the next one if its header names this address and the header before it, both checksums are right, and
//! its epoch is the one that the label's history has at this address. An epoch begins with a record of
//! [`Kind::Epoch`] that holds its nonce, perhaps behind [`Kind::Pad`]s: two sources that took the same number without
//! knowing of each other differ there, and the chain carries the difference on.
//!
//! What lies behind the end was never acknowledged, unless the label, or a record behind the end, says that more was
//! committed: then what was there is damaged, and only another member has it.

use log::Lsn;

use super::{Ring, RingError};
use crate::format::{
    Kind, Label, PAYLOAD_MAX, RECORD_ALIGN, RECORD_HEADER_LEN, Record, header_sum, payload_sum,
};
#[cfg(test)]
use crate::planted::Planted;

/// A record that the ring has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Indexed {
    /// The record.
    pub record: Record,
    /// Checksum of its header, which the next one names.
    pub sum: u32,
}

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
            match reader.awaits_nonce() {
                // They count if the epoch does.
                true => reader.held.push(next),
                false => {
                    reader.held.drain(..).for_each(&mut found);
                    found(next);
                    reader.counts();
                }
            }
        }
        let (end, end_chain) = reader.counted;
        #[cfg(test)]
        let skips = Planted::SkipsPersistOfFound.is_here();
        #[cfg(not(test))]
        let skips = false;
        if !skips {
            self.persist_foreign(label.start, end)?;
        }
        let claimed = label.committed.max(reader.claimed_behind(end)?);
        Ok(Scanned { records: Vec::new(), end, end_chain, claimed })
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
    /// The end of what counts.
    counted: (Lsn, u32),
    /// The nonce that the next record but pads must hold.
    nonce: Option<u64>,
    /// Pads before it.
    held: Vec<Indexed>,
}

impl<'a> Reader<'a> {
    fn new(ring: &'a Ring, label: &'a Label) -> Self {
        let (at, chain) = (label.start, label.start_chain);
        let window = Window::default();
        let counted = (at, chain);
        Self { ring, label, window, at, chain, counted, nonce: None, held: Vec::new() }
    }

    /// Behind the last byte that the ring can hold.
    fn limit(&self) -> Lsn {
        self.label.start.plus(self.ring.capacity())
    }

    fn awaits_nonce(&self) -> bool {
        self.nonce.is_some()
    }

    /// Everything so far counts.
    fn counts(&mut self) {
        self.counted = (self.at, self.chain);
    }

    /// The next record, if there is one.
    fn next(&mut self) -> Result<Option<Indexed>, RingError> {
        let epochs = self.label.history.epochs();
        let Some(mine) = epochs.iter().rposition(|epoch| epoch.start <= self.at) else {
            return Ok(None);
        };
        if epochs[mine].start == self.at {
            self.nonce = Some(epochs[mine].epoch.nonce);
        }
        let Some((record, payload_crc, sum)) = self.header(self.at)? else { return Ok(None) };
        let next_epoch = epochs.get(mine + 1).map_or(Lsn(u64::MAX), |next| next.start);
        let fits = record.span() <= self.ring.until_end(self.at)
            && record.end() <= self.limit().min(next_epoch);
        let is_next = fits
            && self.is_of_epoch(&record, epochs[mine].epoch.number)
            && self.is_chained(&record)
            && self.holds(&record, payload_crc)?
            && self.has_nonce(&record)?;
        if !is_next {
            return Ok(None);
        }
        self.at = record.end();
        self.chain = sum;
        Ok(Some(Indexed { record, sum }))
    }

    fn is_of_epoch(&self, record: &Record, number: u32) -> bool {
        #[cfg(test)]
        if Planted::TakesOldEpochs.is_here() {
            return true;
        }
        record.epoch == number
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
        let record = Record::decode(&self.ring.group, bytes).ok();
        let record = record.filter(|(record, _)| record.lsn == at);
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
        if record.payload_len() == 0 {
            return Ok(true);
        }
        let group = self.ring.group;
        let payload = self.payload(record)?;
        Ok(payload_sum(&group, record.lsn, payload) == payload_crc)
    }

    /// Whether a record at the beginning of an epoch may be there.
    fn has_nonce(&mut self, record: &Record) -> Result<bool, RingError> {
        let Some(nonce) = self.nonce else { return Ok(true) };
        match record.kind {
            Kind::Pad => Ok(true),
            Kind::Epoch => {
                let holds = self.payload(record)? == nonce.to_le_bytes();
                #[cfg(test)]
                let holds = holds || Planted::SkipsNonce.is_here();
                if holds {
                    self.nonce = None;
                }
                Ok(holds)
            }
            _ => Ok(false),
        }
    }

    /// What headers behind the end say was committed. A gap of more than [`GAP_MAX`] ends the search.
    fn claimed_behind(&mut self, end: Lsn) -> Result<Lsn, RingError> {
        let mut claimed = Lsn(0);
        let (mut at, mut gap_begins) = (end, end);
        while at < self.limit() && at.since(gap_begins) <= GAP_MAX {
            at = match self.header(at)? {
                Some((record, ..)) if self.may_claim(&record) => {
                    claimed = claimed.max(record.committed);
                    gap_begins = record.end();
                    record.end()
                }
                _ => at.plus(RECORD_ALIGN),
            };
        }
        Ok(claimed)
    }

    /// Whether a record behind the end is of the order, as far as its header tells.
    fn may_claim(&self, record: &Record) -> bool {
        let epoch = self.label.history.epoch_at(record.lsn);
        epoch.is_some_and(|epoch| epoch.number == record.epoch)
            && record.span() <= self.ring.until_end(record.lsn)
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
