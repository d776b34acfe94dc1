//! Reads the records of an open log, oldest first.

use std::ops::Range;

use crate::error::LogError;
use crate::format::{Header, Kind, Label};
use crate::lsn::Lsn;
use crate::scan::{Reader, is_users};
use crate::tail_log::TailLog;

/// The records of a range of a log. A member whose copy is damaged is passed over for the next one.
#[derive(Debug)]
pub struct Replay<'l> {
    log: &'l TailLog,
    reader: Reader,
    end: Lsn,
    has_failed: bool,
}

impl<'l> Replay<'l> {
    pub(crate) fn new(log: &'l TailLog, label: &Label, range: Range<Lsn>) -> Self {
        let reader = Reader::new(label, range.start);
        Self { log, reader, end: range.end, has_failed: false }
    }

    fn step(&mut self) -> Result<(Header, Vec<u8>), LogError> {
        let (header, mut payload) = self.raw_step()?;
        match (header.kind, &self.log.unseal) {
            (Kind::Sealed, Some(seal)) => seal.open(&header, &mut payload)?,
            (Kind::Sealed, None) => return Err(LogError::ConfigKey),
            // Whoever can write to a member can make such a record without the key.
            (Kind::Data, Some(_)) => return Err(LogError::SealBroken { lsn: header.lsn }),
            (Kind::Data | Kind::Filler, _) => {}
        }
        Ok((header, payload))
    }

    /// The next record as it lies in the ring, fillers too; `None` at the end.
    pub(crate) fn next_raw(&mut self) -> Option<Result<(Header, Vec<u8>), LogError>> {
        (self.reader.at() < self.end).then(|| self.raw_step())
    }

    fn raw_step(&mut self) -> Result<(Header, Vec<u8>), LogError> {
        let lsn = self.reader.at();
        let mut members = self.log.members();
        if lsn < members.label().start {
            return Err(LogError::NoRecord { lsn });
        }
        let reader = &mut self.reader;
        let mut is_first = true;
        let found = members.read_somewhere(|store| {
            if !std::mem::take(&mut is_first) {
                reader.forget();
            }
            reader.next(store)
        })?;
        drop(members);
        let header = found.ok_or(LogError::Damaged { lsn, durable: self.end })?;
        Ok((header, std::mem::take(self.reader.payload())))
    }
}

/// Each record with its LSN. After an error the iterator ends.
impl Iterator for Replay<'_> {
    type Item = Result<(Lsn, Vec<u8>), LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.reader.at() < self.end && !self.has_failed {
            match self.step() {
                Ok((header, payload)) if is_users(&header) => {
                    return Some(Ok((header.lsn, payload)));
                }
                Ok(_) => {}
                Err(error) => {
                    self.has_failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
