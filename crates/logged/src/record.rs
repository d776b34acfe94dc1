//! What a record of the log says about the file.
//!
//! ```text
//!   0   8  key of the file
//!   8   4  kind: 1 write, 2 set length
//!  12   4  zero
//!  16   8  offset of the write, or the length
//!  24      the bytes of the write
//! ```
//! All numbers are little-endian. The log has checksums of its own.

use thiserror::Error;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The head of a record.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    key: U64,
    kind: U32,
    zero: U32,
    place: U64,
}

/// Bytes of the head.
pub(crate) const HEAD_LEN: usize = size_of::<Head>();
const _: () = assert!(HEAD_LEN == 24);

const KIND_WRITE: u32 = 1;
const KIND_SET_LEN: u32 = 2;

/// One change of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change<'b> {
    /// The bytes at the offset become these.
    Write {
        /// Where.
        offset: u64,
        /// What.
        bytes: &'b [u8],
    },
    /// The file gets this length; new bytes are zero.
    SetLen(u64),
}

impl<'b> Change<'b> {
    /// Reads a record: the key of its file, and the change.
    ///
    /// # Errors
    ///
    /// The record is none that [`Change::emit`] writes.
    pub fn parse(record: &'b [u8]) -> Result<(u64, Self), RecordError> {
        let (head, bytes) = Head::ref_from_prefix(record)
            .map_err(|_| RecordError::MediaTooShort { len: record.len() })?;
        let place = head.place.get();
        if head.zero.get() != 0 {
            return Err(RecordError::MediaReserved);
        }
        let change = match head.kind.get() {
            KIND_WRITE => {
                let len = crate::base::to_u64(bytes.len());
                place
                    .checked_add(len)
                    .filter(|end| *end <= FILE_LEN_MAX)
                    .ok_or(RecordError::MediaBeyondEnd { offset: place })?;
                Self::Write { offset: place, bytes }
            }
            KIND_SET_LEN if !bytes.is_empty() => return Err(RecordError::MediaReserved),
            KIND_SET_LEN if place > FILE_LEN_MAX => {
                return Err(RecordError::MediaBeyondEnd { offset: place });
            }
            KIND_SET_LEN => Self::SetLen(place),
            kind => return Err(RecordError::MediaKind { kind }),
        };
        Ok((head.key.get(), change))
    }

    /// Bytes of the record.
    pub fn record_len(&self) -> usize {
        HEAD_LEN + if let Self::Write { bytes, .. } = self { bytes.len() } else { 0 }
    }

    /// Writes the record into `out`, which has [`Change::record_len`] bytes.
    ///
    /// # Panics
    ///
    /// If `out` has another length.
    pub fn emit(&self, key: u64, out: &mut [u8]) {
        let (kind, place, bytes) = match *self {
            Self::Write { offset, bytes } => (KIND_WRITE, offset, bytes),
            Self::SetLen(len) => (KIND_SET_LEN, len, &[][..]),
        };
        let head = Head {
            key: U64::new(key),
            kind: U32::new(kind),
            zero: U32::ZERO,
            place: U64::new(place),
        };
        let (start, rest) = out.split_at_mut(HEAD_LEN);
        start.copy_from_slice(head.as_bytes());
        rest.copy_from_slice(bytes);
    }
}

/// A record is none of a logged file.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum RecordError {
    /// It has no head.
    #[error("{len} bytes are no record of a file")]
    MediaTooShort {
        /// Bytes there are.
        len: usize,
    },
    /// It is of no kind that there is.
    #[error("kind {kind} is not known")]
    MediaKind {
        /// The kind.
        kind: u32,
    },
    /// Bytes are set that have to be zero.
    #[error("reserved bytes are set")]
    MediaReserved,
    /// It reaches beyond what a file can be.
    #[error("a change at {offset} reaches beyond what a file can be")]
    MediaBeyondEnd {
        /// Where.
        offset: u64,
    },
}

/// Longest file: what an offset of the operating system can say.
pub(crate) const FILE_LEN_MAX: u64 = i64::MAX.unsigned_abs();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_has_the_bytes_that_the_format_says() {
        let golden = [
            0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 1, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x10, 0,
            0, 0, 0, 0, 0, b'h', b'i',
        ];
        let change = Change::Write { offset: 4096, bytes: b"hi" };
        assert_eq!(Change::parse(&golden).unwrap(), (0x0102_0304_0506_0708, change));
        let mut out = vec![0; change.record_len()];
        change.emit(0x0102_0304_0506_0708, &mut out);
        assert_eq!(out, golden);
    }

    #[test]
    fn records_of_others_are_refused() {
        let mut record = vec![0; HEAD_LEN];
        Change::SetLen(7).emit(1, &mut record);
        assert_eq!(Change::parse(&record).unwrap(), (1, Change::SetLen(7)));
        assert_eq!(Change::parse(&record[..20]), Err(RecordError::MediaTooShort { len: 20 }));
        let mut other = record.clone();
        other[8] = 9;
        assert_eq!(Change::parse(&other), Err(RecordError::MediaKind { kind: 9 }));
        let mut other = record.clone();
        other[13] = 1;
        assert_eq!(Change::parse(&other), Err(RecordError::MediaReserved));
        let mut far = record.clone();
        far[16..24].fill(0xff);
        assert_eq!(Change::parse(&far), Err(RecordError::MediaBeyondEnd { offset: u64::MAX }));
        record.push(0);
        assert_eq!(Change::parse(&record), Err(RecordError::MediaReserved));
    }
}
