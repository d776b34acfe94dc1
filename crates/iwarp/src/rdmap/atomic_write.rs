//! The Atomic Write Request: eight bytes in one store, after every earlier request succeeded.
//!
//! ```text
//!  0        4               8                 16                24
//!  +--------+---------------+-----------------+-----------------+
//!  | STag   | length (= 8)  | TO              | data            |
//!  +--------+---------------+-----------------+-----------------+
//! ```
//!
//! The response has no header. The store is not durable by itself: a Flush must follow.
//!
//! Spec: draft-talpey-rdma-commit-01 §3. Big-endian.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::RdmapError;
use crate::ddp::Stag;

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    stag: U32,
    length: U32,
    tagged_offset: U64,
    data: U64,
}

const _: () = assert!(size_of::<Header>() == AtomicWriteRequestRepr::LEN);

/// An Atomic Write Request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AtomicWriteRequestRepr {
    /// Region to write to. Not yet authorised.
    pub stag: Stag,
    /// Offset in the region; the *address* that it names must be 8-aligned.
    pub tagged_offset: u64,
    /// The eight bytes, read as a big-endian number.
    pub data: u64,
}

impl AtomicWriteRequestRepr {
    /// Bytes the header takes on the wire.
    pub const LEN: usize = 24;

    /// Reads a whole message.
    ///
    /// # Errors
    ///
    /// A wrong length of the message, and a wrong length field, are refused.
    pub fn parse(message: &[u8]) -> Result<Self, RdmapError> {
        let header = Header::ref_from_bytes(message)
            .map_err(|_| RdmapError::PeerLength { need: Self::LEN, got: message.len() })?;
        if header.length.get() != DATA_SIZE {
            return Err(RdmapError::PeerAtomicWriteLength(header.length.get()));
        }
        Ok(Self {
            stag: Stag(header.stag.get()),
            tagged_offset: header.tagged_offset.get(),
            data: header.data.get(),
        })
    }

    /// The inverse of [`AtomicWriteRequestRepr::parse`]. Cannot fail.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let header = Header {
            stag: U32::new(self.stag.0),
            length: U32::new(DATA_SIZE),
            tagged_offset: U64::new(self.tagged_offset),
            data: U64::new(self.data),
        };
        out.copy_from_slice(header.as_bytes());
    }
}

const DATA_SIZE: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    // Laid out by hand from the draft's layout.
    const GOLDEN: [u8; AtomicWriteRequestRepr::LEN] =
        [0, 0xab, 0xcd, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0x10, 0, 1, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn golden_bytes_parse_and_emit() {
        let repr = AtomicWriteRequestRepr {
            stag: Stag(0x00ab_cd00),
            tagged_offset: 0x1000,
            data: 0x0102_0304_0506_0708,
        };
        assert_eq!(AtomicWriteRequestRepr::parse(&GOLDEN), Ok(repr));
        let mut out = [0; AtomicWriteRequestRepr::LEN];
        repr.emit(&mut out);
        assert_eq!(out, GOLDEN);
    }

    #[test]
    fn an_atomic_write_of_any_other_length_is_refused() {
        let refused = RdmapError::PeerLength { need: 24, got: 23 };
        assert_eq!(AtomicWriteRequestRepr::parse(&GOLDEN[..23]), Err(refused));
        let mut bytes = GOLDEN;
        bytes[7] = 4;
        let refused = RdmapError::PeerAtomicWriteLength(4);
        assert_eq!(AtomicWriteRequestRepr::parse(&bytes), Err(refused));
    }
}
