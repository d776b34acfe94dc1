//! The Flush Request: asks for an answer once the range is in the requested state.
//!
//! ```text
//!  0        4           8                 16         20
//!  +--------+-----------+-----------------+----------+
//!  | STag   | length    | TO              | flags    |
//!  +--------+-----------+-----------------+----------+
//! ```
//!
//! Length stands before TO, unlike in a Read Request. The response has no header.
//!
//! Spec: draft-talpey-rdma-commit-01 §3. Big-endian. The draft's figures leave the DDP MO
//! word out; the message has it.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{PlacementFlags, RdmapError};
use crate::ddp::Stag;

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    stag: U32,
    length: U32,
    tagged_offset: U64,
    flags: U32,
}

const _: () = assert!(size_of::<Header>() == FlushRequestRepr::LEN);

/// A Flush Request. Length 0 covers nothing and succeeds if the STag is good.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlushRequestRepr {
    /// Region to flush. Not yet authorised.
    pub stag: Stag,
    /// Bytes to flush.
    pub length: u32,
    /// Offset of the first byte to flush.
    pub tagged_offset: u64,
    /// The state that the bytes must reach.
    pub flags: PlacementFlags,
}

impl FlushRequestRepr {
    /// Bytes the header takes on the wire.
    pub const LEN: usize = 20;

    /// Reads a whole message.
    ///
    /// # Errors
    ///
    /// Any length but [`FlushRequestRepr::LEN`] is refused.
    pub fn parse(message: &[u8]) -> Result<Self, RdmapError> {
        let header = Header::ref_from_bytes(message)
            .map_err(|_| RdmapError::PeerLength { need: Self::LEN, got: message.len() })?;
        Ok(Self {
            stag: Stag(header.stag.get()),
            length: header.length.get(),
            tagged_offset: header.tagged_offset.get(),
            flags: PlacementFlags::from_bits_retain(header.flags.get()),
        })
    }

    /// The inverse of [`FlushRequestRepr::parse`]. Cannot fail.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let header = Header {
            stag: U32::new(self.stag.0),
            length: U32::new(self.length),
            tagged_offset: U64::new(self.tagged_offset),
            flags: U32::new(self.flags.bits()),
        };
        out.copy_from_slice(header.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Laid out by hand from the draft's layout.
    const GOLDEN: [u8; FlushRequestRepr::LEN] =
        [0, 0xab, 0xcd, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 1];
    const REPR: FlushRequestRepr = FlushRequestRepr {
        stag: Stag(0x00ab_cd00),
        length: 4096,
        tagged_offset: 0x1000,
        flags: PlacementFlags::PERSISTENCE,
    };

    #[test]
    fn golden_bytes_parse_and_emit() {
        assert_eq!(FlushRequestRepr::parse(&GOLDEN), Ok(REPR));
        let mut out = [0; FlushRequestRepr::LEN];
        REPR.emit(&mut out);
        assert_eq!(out, GOLDEN);
    }

    #[test]
    fn any_other_length_is_refused_and_unknown_flags_survive() {
        let refused = RdmapError::PeerLength { need: 20, got: 19 };
        assert_eq!(FlushRequestRepr::parse(&GOLDEN[..19]), Err(refused));
        let mut bytes = GOLDEN;
        bytes[16] = 0x80;
        assert_eq!(FlushRequestRepr::parse(&bytes).unwrap().flags.bits(), 0x8000_0001);
    }
}
