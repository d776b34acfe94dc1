//! The one module that turns offsets and lengths a peer wrote into slices.
//!
//! ```text
//!  0                64                 64 + fixed          offset      offset + length
//!  +----------------+------------------+------ ... --------+-----------+
//!  | SMB2 header    | fixed structure  |                   | buffer    |
//!  +----------------+------------------+------ ... --------+-----------+
//! ```
//!
//! Parsers get the whole PDU because every offset in it counts from the first byte of the SMB2
//! header. Emitters append a body to a `Vec` whose last 64 bytes are that header.
//!
//! Spec: MS-SMB2 §2.2 (offsets "from the beginning of the SMB2 header"). Little-endian.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::header::Header;
use crate::parse_error::{Field, ParseError};

/// The fixed part of a body, checked against the StructureSize its first two bytes claim.
pub(crate) fn body<T>(pdu: &[u8], structure_size: u16) -> Result<&T, ParseError>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    let body = pdu.get(Header::LEN..).unwrap_or_default();
    let truncated =
        || ParseError::PeerTruncated { need: Header::LEN + size_of::<T>(), got: pdu.len() };
    let (view, _) = T::ref_from_prefix(body).map_err(|_| truncated())?;
    let (got, _) = zerocopy::little_endian::U16::ref_from_prefix(body).map_err(|_| truncated())?;
    if got.get() != structure_size {
        return Err(ParseError::PeerStructureSize { expected: structure_size, got: got.get() });
    }
    Ok(view)
}

/// The fixed part of a layout that carries no StructureSize.
pub(crate) fn view<T>(bytes: &[u8]) -> Result<(&T, &[u8]), ParseError>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    T::ref_from_prefix(bytes)
        .map_err(|_| ParseError::PeerTruncated { need: size_of::<T>(), got: bytes.len() })
}

/// The buffer at `offset` of `bytes`, which must not reach into the first `fixed` bytes.
///
/// An empty buffer may name any offset: peers leave it zero or point behind the message.
pub(crate) fn buffer(
    bytes: &[u8],
    fixed: usize,
    offset: u32,
    length: u32,
    field: Field,
) -> Result<&[u8], ParseError> {
    if length == 0 {
        return Ok(&[]);
    }
    let outside = ParseError::PeerOffset { field, offset, length, got: bytes.len() };
    let (Ok(start), Ok(len)) = (usize::try_from(offset), usize::try_from(length)) else {
        return Err(outside);
    };
    if start < fixed {
        return Err(outside);
    }
    start.checked_add(len).and_then(|end| bytes.get(start..end)).ok_or(outside)
}

/// [`buffer`] of a PDU whose body has a fixed part of `T`.
pub(crate) fn pdu_buffer<T>(
    pdu: &[u8],
    offset: impl Into<u32>,
    length: impl Into<u32>,
    field: Field,
) -> Result<&[u8], ParseError> {
    buffer(pdu, Header::LEN + size_of::<T>(), offset.into(), length.into(), field)
}

/// Splits the first record off a chain in which each begins with the offset of the next, 0 in
/// the last. A record ends where the next begins, so that no byte belongs to two of them.
pub(crate) fn split_record(chain: &[u8], len_min: usize) -> Result<(&[u8], &[u8]), ParseError> {
    let offset = Reader::new(chain).u32()?;
    if offset == 0 {
        return Ok((chain, &[]));
    }
    let outside =
        ParseError::PeerOffset { field: Field::Next, offset, length: 0, got: chain.len() };
    let next = usize::try_from(offset).map_err(|_| outside)?;
    if next < len_min || next >= chain.len() {
        return Err(outside);
    }
    Ok(chain.split_at(next))
}

/// Refuses a count or length above a named limit.
pub(crate) fn limit(field: Field, got: usize, max: usize) -> Result<(), ParseError> {
    if got > max {
        return Err(ParseError::PeerTooMany { field, got, max });
    }
    Ok(())
}

/// Appends a wire structure.
pub(crate) fn put<T: IntoBytes + Immutable>(out: &mut Vec<u8>, value: &T) {
    out.extend_from_slice(value.as_bytes());
}

/// Appends the variable part of a body whose StructureSize is odd: at least one byte, because
/// Samba and Windows refuse some requests that end with the fixed part.
pub(crate) fn put_variable(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        out.push(0);
    }
    out.extend_from_slice(bytes);
}

/// Appends zeros until the bytes since `start` are a multiple of `align`.
pub(crate) fn pad(out: &mut Vec<u8>, start: usize, align: usize) {
    let padded = (out.len() - start).next_multiple_of(align);
    out.resize(start + padded, 0);
}

/// Overwrites two bytes already emitted.
pub(crate) fn patch_u16(out: &mut [u8], at: usize, value: u16) {
    out[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// Overwrites four bytes already emitted.
pub(crate) fn patch_u32(out: &mut [u8], at: usize, value: u32) {
    out[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// A length this side chose, as the `u16` the wire has for it.
///
/// # Panics
/// When the caller built a buffer over 64 KiB for a field that cannot say so. What a peer sends
/// is never re-emitted through here without having been measured by the same 16 bits.
pub(crate) fn length16(len: usize) -> u16 {
    u16::try_from(len).expect("a buffer behind a 16-bit length stays under 64 KiB")
}

/// A length this side chose, as the `u32` the wire has for it.
///
/// # Panics
/// When the caller built a buffer over 4 GiB; a frame ends at 16 MiB.
pub(crate) fn length32(len: usize) -> u32 {
    u32::try_from(len).expect("a buffer in a frame of at most 16 MiB")
}

/// Walks a short untrusted buffer from its front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    taken: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, taken: 0 }
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], ParseError> {
        let Some((head, tail)) = self.rest.split_at_checked(len) else {
            let need = self.taken.saturating_add(len);
            return Err(ParseError::PeerTruncated { need, got: self.taken + self.rest.len() });
        };
        self.rest = tail;
        self.taken += len;
        Ok(head)
    }

    /// The next `N` bytes by value.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, ParseError> {
        self.array::<1>().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, ParseError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, ParseError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_must_lie_behind_the_fixed_part_and_inside_the_message() {
        let bytes = [7u8; 20];
        let at = |offset, length| buffer(&bytes, 8, offset, length, Field::Data);
        assert_eq!(at(8, 12).unwrap(), &bytes[8..]);
        assert_eq!(at(19, 1).unwrap(), &bytes[19..]);
        assert!(at(7, 1).is_err(), "overlaps the fixed part");
        assert!(at(8, 13).is_err(), "one past the end");
        assert!(at(u32::MAX, u32::MAX).is_err(), "sum overflows 32 bits");
        assert_eq!(at(9999, 0).unwrap(), &[] as &[u8], "nothing is nowhere");
    }

    #[test]
    fn a_reader_never_reads_past_its_end() {
        let mut reader = Reader::new(&[1, 0, 2]);
        assert_eq!(reader.u16().unwrap(), 1);
        assert_eq!(reader.u16(), Err(ParseError::PeerTruncated { need: 4, got: 3 }));
        assert_eq!(reader.u8().unwrap(), 2);
        assert_eq!(reader.rest(), &[] as &[u8]);
    }

    #[test]
    fn padding_counts_from_the_start_of_the_pdu() {
        let mut out = vec![1; 3];
        pad(&mut out, 3, 8);
        assert_eq!(out.len(), 3);
        out.push(1);
        pad(&mut out, 3, 8);
        assert_eq!(out.len(), 11);
    }
}
