//! The header of a record.
//!
//! ```text
//!   0 crc 4 | length 4 | lsn 8 | durable 8 | generation 4 | kind 1 | reserved 3 | payload ... | zeros to a multiple of 64
//! ```
//! Little-endian. The checksum is CRC-32C over the log's id, the header from `length` on, and the payload. `durable`
//! is the LSN below which everything was durable when the record was made: a record that is missing below the
//! `durable` of a later one is damage, not the end of the log.
//!
//! Spec: ours, docs/tail-log.md.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{LogId, crc32c};
use crate::lsn::{Generation, Lsn};

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    crc: U32,
    length: U32,
    lsn: U64,
    durable: U64,
    generation: U32,
    kind: u8,
    reserved: [u8; 3],
}

const _: () = assert!(size_of::<Wire>() == HEADER_LEN);

/// Bytes of a header.
pub(crate) const HEADER_LEN: usize = 32;
/// Records begin at multiples of this, so that no two share a cache line.
pub(crate) const ALIGNMENT: u64 = 64;
/// Where the bytes begin that the checksum covers.
const COVERED: usize = 4;

/// What a record is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Bytes of the log's user.
    Data,
    /// Bytes of the log's user, sealed by AES-256-GCM.
    Sealed,
    /// Nothing: fills the ring to its end, or the unit of a commit. Its payload is not stored.
    Filler,
}

impl Kind {
    fn parse(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Data),
            2 => Some(Self::Sealed),
            3 => Some(Self::Filler),
            _ => None,
        }
    }

    fn emit(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Sealed => 2,
            Self::Filler => 3,
        }
    }
}

/// A header without its checksum.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Header {
    /// What the record is for.
    pub(crate) kind: Kind,
    /// Bytes behind the header, without the zeros that follow.
    pub(crate) length: u32,
    /// The record's own address.
    pub(crate) lsn: Lsn,
    /// Everything below was durable when the record was made.
    pub(crate) durable: Lsn,
    /// The ownership under which the record was made.
    pub(crate) generation: Generation,
}

impl Header {
    /// The header in `bytes`, and its checksum; `None` if the bytes are no header.
    pub(crate) fn parse(bytes: &[u8; HEADER_LEN]) -> Option<(Self, u32)> {
        let wire = Wire::read_from_bytes(bytes).ok()?;
        let header = Self {
            kind: Kind::parse(wire.kind)?,
            length: wire.length.get(),
            lsn: Lsn(wire.lsn.get()),
            durable: Lsn(wire.durable.get()),
            generation: Generation(wire.generation.get()),
        };
        let is_sound = wire.reserved == [0; 3]
            && header.lsn.0.is_multiple_of(ALIGNMENT)
            && header.durable <= header.lsn;
        is_sound.then_some((header, wire.crc.get()))
    }

    /// The header's bytes without a checksum, and those that a seal covers.
    fn wire(&self) -> Wire {
        Wire {
            crc: U32::ZERO,
            length: self.length.into(),
            lsn: self.lsn.0.into(),
            durable: self.durable.0.into(),
            generation: self.generation.0.into(),
            kind: self.kind.emit(),
            reserved: [0; 3],
        }
    }

    /// What a seal authenticates beside the payload.
    pub(crate) fn associated(&self) -> [u8; HEADER_LEN - COVERED] {
        let mut covered = [0; HEADER_LEN - COVERED];
        covered.copy_from_slice(&self.wire().as_bytes()[COVERED..]);
        covered
    }

    /// The checksum of a record with this header. A filler has no payload.
    pub(crate) fn checksum(&self, id: &LogId, payload: &[u8]) -> u32 {
        crc32c(&[id, &self.associated(), payload])
    }

    /// The header's bytes with the checksum of `payload`.
    pub(crate) fn emit(&self, id: &LogId, payload: &[u8]) -> [u8; HEADER_LEN] {
        let wire = Wire { crc: self.checksum(id, payload).into(), ..self.wire() };
        zerocopy::transmute!(wire)
    }

    /// Bytes of the record in the ring, with the zeros that follow.
    pub(crate) fn extent(&self) -> u64 {
        extent_of(u64::from(self.length))
    }

    /// Bytes behind the header that are stored and checked.
    pub(crate) fn stored(&self) -> usize {
        match self.kind {
            Kind::Data | Kind::Sealed => usize::try_from(self.length).expect("32 bits fit"),
            Kind::Filler => 0,
        }
    }
}

/// Bytes in the ring of a record of `length` bytes.
pub(crate) fn extent_of(length: u64) -> u64 {
    (length + HEADER_LEN as u64).next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: LogId = *b"sixteen bytes id";

    fn header() -> Header {
        Header {
            kind: Kind::Data,
            length: 5,
            lsn: Lsn(0x1040),
            durable: Lsn(0x1000),
            generation: Generation(7),
        }
    }

    #[test]
    fn a_record_has_the_bytes_of_the_document() {
        let bytes = header().emit(&ID, b"hello");
        // The checksum was computed bit by bit, by a program of its own, over the id, the 28 bytes below, and `hello`.
        let golden = [
            0x05, 0, 0, 0, 0x40, 0x10, 0, 0, 0, 0, 0, 0, 0x00, 0x10, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0,
            1, 0, 0, 0,
        ];
        assert_eq!(bytes[4..], golden);
        assert_eq!(bytes[..4], GOLDEN_CRC);
    }

    const GOLDEN_CRC: [u8; 4] = [0xd2, 0xcb, 0xce, 0x7d];

    #[test]
    fn what_was_emitted_parses_to_the_same_header() {
        let bytes = header().emit(&ID, b"hello");
        let (parsed, crc) = Header::parse(&bytes).unwrap();
        assert_eq!(parsed, header());
        assert_eq!(crc, parsed.checksum(&ID, b"hello"));
        assert_ne!(crc, parsed.checksum(&ID, b"hellp"));
        assert_ne!(crc, parsed.checksum(b"another log's id", b"hello"));
    }

    #[test]
    fn zeros_and_unknown_kinds_are_no_header() {
        assert_eq!(Header::parse(&[0; HEADER_LEN]), None);
        let mut bytes = header().emit(&ID, b"hello");
        bytes[28] = 9;
        assert_eq!(Header::parse(&bytes), None);
    }

    #[test]
    fn an_extent_is_a_multiple_of_a_cache_line() {
        assert_eq!([0, 32, 33, 96, 97].map(extent_of), [64, 64, 128, 128, 192]);
    }
}
