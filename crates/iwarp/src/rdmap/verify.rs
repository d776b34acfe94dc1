//! The Verify Request: asks for the hash of the stored range, compared with an expected hash if given.
//!
//! ```text
//!  0        4           8                 16
//!  +--------+-----------+-----------------+--------------------------
//!  | STag   | length    | TO              | expected hash, or nothing
//!  +--------+-----------+-----------------+--------------------------
//! ```
//!
//! The response is the computed hash and nothing else. The algorithm is a property of the region,
//! on which the ULPs of both ends agree.
//!
//! Spec: draft-talpey-rdma-commit-01 §3. Big-endian. The draft mentions a "compare flag" but defines
//! none: a request that carries a hash asks for the comparison.

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
}

const _: () = assert!(size_of::<Header>() == VERIFY_HEADER_LEN);

/// Longest hash taken or sent, in bytes: 512 bits, and a Verify Request always fits the smallest
/// MULPDU.
pub const VERIFY_HASH_SIZE_MAX: usize = 64;

/// A Verify Request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VerifyRequestRepr<'h> {
    /// Region to hash. Not yet authorised.
    pub stag: Stag,
    /// Bytes to hash.
    pub length: u32,
    /// Offset of the first byte to hash.
    pub tagged_offset: u64,
    /// The expected hash; empty if the requester only asks for the hash.
    pub expected: &'h [u8],
}

impl<'h> VerifyRequestRepr<'h> {
    /// Bytes before the hash.
    pub const HEADER_LEN: usize = VERIFY_HEADER_LEN;

    /// Reads a whole message.
    ///
    /// # Errors
    ///
    /// Too few bytes for the header and too many for a hash are refused.
    pub fn parse(message: &'h [u8]) -> Result<Self, RdmapError> {
        let (header, expected) = Header::ref_from_prefix(message)
            .map_err(|_| RdmapError::PeerLength { need: Self::HEADER_LEN, got: message.len() })?;
        check_hash(expected)?;
        Ok(Self {
            stag: Stag(header.stag.get()),
            length: header.length.get(),
            tagged_offset: header.tagged_offset.get(),
            expected,
        })
    }

    /// Writes the part before the hash; [`VerifyRequestRepr::expected`] follows it. Cannot fail.
    pub fn emit(&self, out: &mut [u8; VERIFY_HEADER_LEN]) {
        let header = Header {
            stag: U32::new(self.stag.0),
            length: U32::new(self.length),
            tagged_offset: U64::new(self.tagged_offset),
        };
        out.copy_from_slice(header.as_bytes());
    }
}

const VERIFY_HEADER_LEN: usize = 16;

/// Refuses what is too long to be a hash.
pub(crate) fn check_hash(hash: &[u8]) -> Result<(), RdmapError> {
    if hash.len() > VERIFY_HASH_SIZE_MAX {
        return Err(RdmapError::PeerHashLength { limit: VERIFY_HASH_SIZE_MAX, got: hash.len() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Laid out by hand from the draft's layout, with a four-byte hash.
    const GOLDEN: [u8; 20] =
        [0, 0xab, 0xcd, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0xe3, 0x06, 0x92, 0x83];

    #[test]
    fn golden_bytes_parse_and_emit_with_a_hash_and_without() {
        let repr = VerifyRequestRepr {
            stag: Stag(0x00ab_cd00),
            length: 0x2000,
            tagged_offset: 0x1000,
            expected: &[0xe3, 0x06, 0x92, 0x83],
        };
        assert_eq!(VerifyRequestRepr::parse(&GOLDEN), Ok(repr));
        let scrub = VerifyRequestRepr { expected: &[], ..repr };
        assert_eq!(VerifyRequestRepr::parse(&GOLDEN[..16]), Ok(scrub));
        let mut out = [0; VerifyRequestRepr::HEADER_LEN];
        repr.emit(&mut out);
        assert_eq!(out, GOLDEN[..16]);
    }

    #[test]
    fn a_verify_that_is_too_short_or_too_long_is_refused() {
        let refused = RdmapError::PeerLength { need: 16, got: 15 };
        assert_eq!(VerifyRequestRepr::parse(&GOLDEN[..15]), Err(refused));
        let refused = RdmapError::PeerHashLength { limit: 64, got: 65 };
        assert_eq!(VerifyRequestRepr::parse(&[0; 81]), Err(refused));
    }
}
