//! The versioned head of every push payload, and lists behind the fixed part.
//!
//! ```text
//!  0         2      4                size
//!  +---------+------+----------------+---------------------------------
//!  | version | size | rest of fixed  | lists, at offsets the fixed part gives
//!  +---------+------+----------------+---------------------------------
//! ```

use super::VERSION;
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// Checks the head and returns a reader over the rest of the fixed part.
pub(super) fn open(bytes: &[u8], fixed: u16) -> Result<Reader<'_>, ParseError> {
    let mut reader = Reader::new(bytes);
    let version = reader.u16()?;
    if version != VERSION {
        return Err(ParseError::PeerPushVersion(version));
    }
    let size = reader.u16()?;
    if size < fixed {
        return Err(ParseError::PeerValue { field: Field::Size, value: u64::from(size) });
    }
    if usize::from(size) > bytes.len() {
        return Err(ParseError::PeerTruncated { need: usize::from(size), got: bytes.len() });
    }
    Ok(reader)
}

/// Appends the head of a payload.
pub(super) fn begin(out: &mut Vec<u8>, fixed: u16) {
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&fixed.to_le_bytes());
}

/// The bytes of a list of `count` entries of `entry_size` bytes at `offset`.
pub(super) fn list(
    bytes: &[u8],
    offset: u16,
    count: usize,
    entry_size: usize,
) -> Result<&[u8], ParseError> {
    let field = Field::Entries;
    if !offset.is_multiple_of(8) {
        return Err(ParseError::PeerAlignment { field, offset: u32::from(offset), align: 8 });
    }
    // The head was checked by `open`: the list must not reach back into the fixed part.
    let size = usize::from(Reader::new(bytes.get(2..).unwrap_or_default()).u16()?);
    let length = count.checked_mul(entry_size).and_then(|len| u32::try_from(len).ok());
    wire::buffer(bytes, size, u32::from(offset), length.unwrap_or(u32::MAX), field)
}

/// The entries of such a list. They may be larger than the `known` bytes, as fixed parts may.
pub(super) fn entries(
    bytes: &[u8],
    offset: u16,
    count: usize,
    entry_size: usize,
    known: usize,
) -> Result<std::slice::ChunksExact<'_, u8>, ParseError> {
    if entry_size < known {
        let value = u64::try_from(entry_size).unwrap_or(u64::MAX);
        return Err(ParseError::PeerValue { field: Field::Size, value });
    }
    Ok(list(bytes, offset, count, entry_size)?.chunks_exact(entry_size))
}

/// Refuses a count above its limit before anything is allocated for it.
pub(super) fn count(field: Field, got: u32, max: usize) -> Result<usize, ParseError> {
    let got = usize::try_from(got).unwrap_or(usize::MAX);
    wire::limit(field, got, max)?;
    Ok(got)
}

pub(super) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}
