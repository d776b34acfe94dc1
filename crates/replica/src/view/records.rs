//! What a view needs of the ring: records, in order.

use std::fmt;
use std::ops::Range;

use log::Lsn;
use pmem::MediumError;

use crate::format::{PAYLOAD_MAX, Record};

/// The records of a group's order that a member has.
pub trait Records: Send + Sync + fmt::Debug {
    /// From the oldest record to the end of what a view may show. Both are where a record begins, or would.
    ///
    /// The end of a destination is what it knows to be committed: what lies behind can still be cut.
    fn kept(&self) -> Range<Lsn>;

    /// The record that begins at `at`; with `payload`, its bytes take the place of what the vector held, decoded.
    ///
    /// # Errors
    ///
    /// See [`RecordsError`].
    fn record(&self, at: Lsn, payload: Option<&mut Vec<u8>>) -> Result<Record, RecordsError>;
}

/// Why a record cannot be had.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecordsError {
    /// Its place in the ring has been used again.
    #[error("the record at {at} is gone; the oldest one is at {oldest}")]
    Gone {
        /// The record.
        at: Lsn,
        /// The oldest record that is kept.
        oldest: Lsn,
    },
    /// What lies there is no record of this order, or not one as it should be.
    #[error("the record at {at} is damaged")]
    MediaDamaged {
        /// The record.
        at: Lsn,
    },
    /// The ring cannot be read.
    #[error("the ring failed: {0}")]
    Media(MediumError),
}

/// Each record of a range, in order, with its payload where the caller wants it.
pub(super) fn each<E: From<RecordsError>>(
    records: &dyn Records,
    range: Range<Lsn>,
    with_payload: impl Fn(&Record) -> bool,
    mut take: impl FnMut(&Record, &[u8]) -> Result<Go, E>,
) -> Result<(), E> {
    let (mut at, mut payload) = (range.start, Vec::new());
    while at < range.end {
        let record = records.record(at, None)?;
        let damaged = RecordsError::MediaDamaged { at };
        // No ring is believed to a loop without end, or to bytes without bound.
        let is_fit =
            record.lsn == at && record.end() <= range.end && record.data_len() <= PAYLOAD_MAX;
        if !is_fit {
            return Err(damaged.into());
        }
        payload.clear();
        if with_payload(&record) && records.record(at, Some(&mut payload))? != record {
            return Err(damaged.into());
        }
        match take(&record, &payload)? {
            Go::On => at = record.end(),
            Go::NoFurther => return Ok(()),
        }
    }
    Ok(())
}

/// Whether more records are wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Go {
    On,
    NoFurther,
}
