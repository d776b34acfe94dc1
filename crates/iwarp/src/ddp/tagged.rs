//! The DDP tagged segment header: where a peer's bytes land in *our* memory.
//!
//! ```text
//!  0      1      2             6                           14
//!  +------+------+-------------+----------------------------+---------
//!  | ctrl | rsvd | STag        | TO (tagged offset)         | payload
//!  +------+------+-------------+----------------------------+---------
//! ```
//!
//! Spec: RFC 5041 §4.2. Big-endian. The MPA length prefix is not part of it.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{DdpError, LAST, Stag, TAGGED, VERSION, VERSION_MASK};

/// The header exactly as it lies on the wire; any 14 bytes are a valid value of it.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    control: u8,
    ulp_control: u8,
    stag: U32,
    tagged_offset: U64,
}

const _: () = assert!(size_of::<Header>() == TaggedRepr::LEN);

/// A tagged header that passed every check DDP itself can make.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TaggedRepr {
    /// Steering tag of the region the sender wants to reach. Not yet authorised.
    pub stag: Stag,
    /// Offset inside that region, in bytes, from an origin that the owner of the region chooses.
    pub tagged_offset: u64,
    /// Last segment of its message.
    pub last: bool,
    /// Opaque to DDP; RDMAP keeps its version and opcode here.
    pub ulp_control: u8,
}

impl TaggedRepr {
    /// Bytes the header takes on the wire.
    pub const LEN: usize = 14;

    /// Splits `segment` into header and payload, trusting nothing in it.
    ///
    /// # Errors
    ///
    /// [`DdpError`] names the first rule the bytes break.
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<(Self, &[u8]), DdpError> {
        let (header, payload) = Header::ref_from_prefix(segment)
            .map_err(|_| DdpError::PeerTruncated { need: Self::LEN, got: segment.len() })?;
        if header.control & TAGGED == 0 {
            return Err(DdpError::PeerModel);
        }
        // RFC 5041 §4.1: a receiver must refuse any version but its own. The four reserved bits
        // are ignored.
        if header.control & VERSION_MASK != VERSION {
            return Err(DdpError::PeerVersion(header.control & VERSION_MASK));
        }
        let repr = Self {
            stag: Stag(header.stag.get()),
            tagged_offset: header.tagged_offset.get(),
            last: header.control & LAST != 0,
            ulp_control: header.ulp_control,
        };
        Ok((repr, payload))
    }

    /// The inverse of [`TaggedRepr::parse`]. Cannot fail.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let header = Header {
            control: TAGGED | VERSION | if self.last { LAST } else { 0 },
            ulp_control: self.ulp_control,
            stag: U32::new(self.stag.0),
            tagged_offset: U64::new(self.tagged_offset),
        };
        out.copy_from_slice(header.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The zero-length Write that hardware sends as ready-to-receive (RFC 6581 §9.2), laid out
    // by hand from RFC 5041 figure 4.
    const GOLDEN: [u8; TaggedRepr::LEN] = [0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    const REPR: TaggedRepr =
        TaggedRepr { stag: Stag(1), tagged_offset: 0, last: true, ulp_control: 0x40 };

    #[test]
    fn golden_bytes_parse_and_emit() {
        assert_eq!(TaggedRepr::parse(&GOLDEN), Ok((REPR, &[][..])));
        let mut out = [0; TaggedRepr::LEN];
        REPR.emit(&mut out);
        assert_eq!(out, GOLDEN);
    }

    #[test]
    fn every_truncation_is_refused() {
        for got in 0..TaggedRepr::LEN {
            let refused = DdpError::PeerTruncated { need: 14, got };
            assert_eq!(TaggedRepr::parse(&GOLDEN[..got]), Err(refused));
        }
    }

    #[test]
    fn a_foreign_version_or_model_is_refused_and_reserved_bits_are_ignored() {
        let with_control = |control| {
            let mut bytes = GOLDEN;
            bytes[0] = control;
            TaggedRepr::parse(&bytes).map(|(repr, _)| repr)
        };
        assert_eq!(with_control(0x82), Err(DdpError::PeerVersion(2)));
        assert_eq!(with_control(0x41), Err(DdpError::PeerModel));
        assert_eq!(with_control(0xfd), Ok(REPR));
    }
}
