//! The archive of a log: a file or device that takes the records of the tail, in order, before the tail forgets them.
//!
//! ```text
//!      archive: start ........ settled ........ its end
//!          tail:                     start ............ durable .... staged
//!                                    (destaged)
//! ```
//! An archive has the layout of a member, with a longer ring (a multiple of the log's, so that no record crosses its end)
//! and a flag on its labels. A record lies in it as it lay in the tail, with its own address, generation and checksum: a
//! scan finds the end, and no pointer is written behind the records. Each label notes what was settled before it, so that
//! a scan has a place to begin.
//!
//! Spec: ours, docs/tail-log.md.

use crate::create::{check_empty, newest_archive, write};
use crate::error::LogError;
use crate::format::label::{CAPACITY_MIN, LABEL_LEN};
use crate::format::{HEADER_LEN, Header, Kind, Label, LabelError, RING_START, SLOT_LEN};
use crate::lsn::Lsn;
use crate::members::MemberSet;
use crate::options::MasterKey;
use crate::ring::Ring;
use crate::scan::{Reader, is_users, to_u64};
use crate::seal::Seal;
use crate::store::{Store, StoreError};

/// An archive that is open. A [`crate::Destager`] writes to it, and whoever recovers reads it.
#[derive(Debug)]
pub struct Archive {
    store: Box<dyn Store>,
    label: Label,
    /// Behind the last record that is durable here.
    end: Lsn,
    /// The last record that opening found.
    last: Option<Header>,
    unseal: Option<Seal>,
}

impl Archive {
    /// Makes an archive for the log with this label in memory that holds none.
    pub(crate) fn create(mut store: Box<dyn Store>, of: &Label) -> Result<Self, LogError> {
        let max = store.len().saturating_sub(RING_START) / of.capacity * of.capacity;
        if max == 0 {
            return Err(LogError::ConfigCapacity { asked: of.capacity, max });
        }
        let label = Label {
            sequence: 0,
            capacity: max,
            unit: u32::try_from(CAPACITY_MIN).expect("4096"),
            set_epoch: 0,
            in_sync: MemberSet::of(&[0]),
            members: 1,
            member: 0,
            least_in_sync: 1,
            settled: Some(of.start),
            ..of.clone()
        };
        for slot in [0, SLOT_LEN] {
            write(&mut *store, slot, &[0; LABEL_LEN]).map_err(failed)?;
        }
        let mut archive = Self { store, end: label.start, last: None, label, unseal: None };
        archive.put_label()?;
        Ok(archive)
    }

    /// Opens the archive of a log, which may be gone.
    ///
    /// # Errors
    ///
    /// [`LogError::NoLog`] if the memory holds no archive; [`LogError::ConfigKey`]; [`LogError::Destaging`] if it cannot
    /// be read.
    pub fn open(mut store: Box<dyn Store>, key: Option<&MasterKey>) -> Result<Self, LogError> {
        let label = newest_archive(&mut *store).map_err(failed)?;
        let label = label.map_err(|cause| LogError::NoLog { cause })?;
        let unseal = key.map(|key| Seal::derive(key, &label.id)).transpose()?;
        if unseal.as_ref().map(Seal::check) != label.key_check {
            return Err(LogError::ConfigKey);
        }
        let mut archive = Self { store, end: label.start, last: None, label, unseal };
        archive.end = archive.scanned_end()?;
        Ok(archive)
    }

    /// Opens the archive of the log with this label, or makes it where there is none.
    pub(crate) fn of(mut store: Box<dyn Store>, log: &Label) -> Result<Self, LogError> {
        match newest_archive(&mut *store).map_err(failed)? {
            Ok(label) if label.id != log.id => Err(LogError::Foreign { member: 0 }),
            Ok(label) => {
                let mut archive = Self { store, end: label.start, last: None, label, unseal: None };
                archive.end = archive.scanned_end()?;
                Ok(archive)
            }
            Err(LabelError::NoLabel) => {
                check_empty(0, &mut *store)?;
                Self::create(store, log)
            }
            Err(cause) => Err(LogError::NoLog { cause }),
        }
    }

    fn scanned_end(&mut self) -> Result<Lsn, LogError> {
        let from = self.label.settled.unwrap_or(self.label.start).max(self.label.start);
        let mut reader = Reader::new(&self.label, from);
        while let Some(header) = reader.next(&mut *self.store).map_err(failed)? {
            self.last = Some(header);
        }
        Ok(reader.at())
    }

    /// The last record that opening found.
    pub(crate) fn last(&self) -> Option<Header> {
        self.last
    }

    /// The oldest record that is kept.
    pub fn start(&self) -> Lsn {
        self.label.start
    }

    /// Behind the last record that is here.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// Reads the records from `from` on, which is [`Archive::start`] or the LSN of a record that is here. A log that is
    /// there too begins before the end: read from there on what it has.
    pub fn replay(&mut self, from: Lsn) -> ArchiveReplay<'_> {
        let reader = Reader::new(&self.label, from.max(self.label.start));
        ArchiveReplay { archive: self, reader, has_failed: false }
    }

    /// Forgets the records before `upto`, which is the LSN of a record.
    ///
    /// # Durability
    ///
    /// On `Ok` the records are gone for good; a crash before leaves all of them.
    pub(crate) fn forget(&mut self, upto: Lsn) -> Result<(), LogError> {
        if upto <= self.label.start {
            return Ok(());
        }
        let mut bytes = [0; HEADER_LEN];
        self.store.read(self.ring().offset(upto), &mut bytes).map_err(failed)?;
        let is_there = Header::parse(&bytes).is_some_and(|(header, _)| header.lsn == upto);
        if upto > self.end || upto < self.end && !is_there {
            return Err(LogError::NoRecord { lsn: upto });
        }
        self.label.start = upto;
        self.label.settled = self.label.settled.max(Some(upto));
        self.put_label()
    }

    /// Continues for a new ownership of the log.
    ///
    /// # Errors
    ///
    /// [`LogError::ArchiveGap`], [`LogError::ArchiveAhead`].
    pub(crate) fn attach(&mut self, log: &Label, durable: Lsn) -> Result<(), LogError> {
        let (archive, start) = (self.end, log.start);
        if archive < start {
            return Err(LogError::ArchiveGap { archive, log: start });
        }
        if archive > durable {
            return Err(LogError::ArchiveAhead { archive, log: durable });
        }
        // From here on records of this ownership count.
        self.label.generation = log.generation;
        self.label.opened = log.opened;
        self.put_label()
    }

    /// The end becomes what is known to be durable here, or where the log begins; what lies behind is to be written again.
    pub(crate) fn begin_again(&mut self, log_start: Lsn) -> Lsn {
        self.end = self.end.min(self.label.settled.unwrap_or(self.end).max(log_start));
        self.end
    }

    /// How many bytes fit behind `written`.
    pub(crate) fn room(&self, written: Lsn) -> u64 {
        self.label.capacity - written.since(self.label.start)
    }

    /// Writes bytes of records and makes them durable; `end` is then behind the last record that is whole.
    ///
    /// # Durability
    ///
    /// On `Ok` every record below `end` is durable here. A crash before leaves some of the new bytes; a scan ends at the
    /// first record that is not whole.
    pub(crate) fn settle(&mut self, at: Lsn, bytes: &[u8], end: Lsn) -> Result<(), LogError> {
        #[cfg(test)]
        if crate::planted::Planted::NotesBeforeSettled.is_here() {
            self.label.settled = Some(end);
            self.place_label()?;
        }
        for (from, offset, len) in self.ring().pieces(at..at.plus(to_u64(bytes.len()))) {
            let first = usize::try_from(from.since(at)).expect("within the bytes");
            let len = usize::try_from(len).expect("within the bytes");
            self.store.place(offset, &bytes[first..first + len]).map_err(failed)?;
            self.store.begin_commit(offset, to_u64(len)).map_err(failed)?;
        }
        // What an earlier round settled is known; the label shares this round's flush.
        self.label.settled = Some(self.end);
        self.place_label()?;
        self.store.end_commit().map_err(failed)?;
        self.end = end;
        Ok(())
    }

    fn ring(&self) -> Ring {
        Ring { capacity: self.label.capacity }
    }

    fn place_label(&mut self) -> Result<(), LogError> {
        self.label.sequence += 1;
        let bytes = self.label.emit();
        self.store.place(self.label.slot(), &bytes).map_err(failed)?;
        self.store.begin_commit(self.label.slot(), to_u64(bytes.len())).map_err(failed)
    }

    /// Writes the label to one slot and then to the other: a copy that is damaged later leaves one that says the same.
    fn put_label(&mut self) -> Result<(), LogError> {
        for _copy in [0, 1] {
            self.place_label()?;
            self.store.end_commit().map_err(failed)?;
        }
        Ok(())
    }
}

/// The records of an archive, oldest first. After an error the iterator ends.
#[derive(Debug)]
pub struct ArchiveReplay<'a> {
    archive: &'a mut Archive,
    reader: Reader,
    has_failed: bool,
}

impl ArchiveReplay<'_> {
    fn step(&mut self) -> Result<Option<(Header, Vec<u8>)>, LogError> {
        let lsn = self.reader.at();
        let Some(header) = self.reader.next(&mut *self.archive.store).map_err(failed)? else {
            let durable = self.archive.end;
            return if lsn < durable { Err(LogError::Damaged { lsn, durable }) } else { Ok(None) };
        };
        let mut payload = std::mem::take(self.reader.payload());
        match (header.kind, &self.archive.unseal) {
            (Kind::Sealed, Some(seal)) => seal.open(&header, &mut payload)?,
            (Kind::Sealed, None) => return Err(LogError::ConfigKey),
            // Whoever can write to a member can make such a record without the key.
            (Kind::Data, Some(_)) => return Err(LogError::SealBroken { lsn: header.lsn }),
            (Kind::Data | Kind::Filler, _) => {}
        }
        Ok(Some((header, payload)))
    }
}

impl Iterator for ArchiveReplay<'_> {
    type Item = Result<(Lsn, Vec<u8>), LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.has_failed && self.reader.at() < self.archive.end {
            match self.step() {
                Ok(Some((header, payload))) if is_users(&header) => {
                    return Some(Ok((header.lsn, payload)));
                }
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => {
                    self.has_failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

fn failed(cause: StoreError) -> LogError {
    LogError::Destaging { cause }
}
