//! The RDMA Read Request header: copy from the responder's memory into the requester's.
//!
//! ```text
//!  0           4                  12         16           20                 28
//!  +-----------+------------------+----------+------------+------------------+
//!  | sink STag | sink TO          | size     | src STag   | source TO        |
//!  +-----------+------------------+----------+------------+------------------+
//! ```
//!
//! Spec: RFC 5040 §4.4. Big-endian.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::RdmapError;
use crate::ddp::Stag;

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    sink_stag: U32,
    sink_offset: U64,
    size: U32,
    source_stag: U32,
    source_offset: U64,
}

const _: () = assert!(size_of::<Header>() == ReadRequestRepr::LEN);

/// A Read Request. Size 0 asks for an empty answer and names no memory at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadRequestRepr {
    /// Region of the requester that receives the answer.
    pub sink_stag: Stag,
    /// Offset in that region.
    pub sink_offset: u64,
    /// Bytes to read.
    pub size: u32,
    /// Region of the responder that is read. Not yet authorised.
    pub source_stag: Stag,
    /// Offset in that region.
    pub source_offset: u64,
}

impl ReadRequestRepr {
    /// Bytes the header takes on the wire.
    pub const LEN: usize = 28;

    /// Reads a whole message; a Read Request carries nothing else.
    ///
    /// # Errors
    ///
    /// Any length but [`ReadRequestRepr::LEN`] is refused.
    pub fn parse(message: &[u8]) -> Result<Self, RdmapError> {
        let header = Header::ref_from_bytes(message)
            .map_err(|_| RdmapError::PeerLength { need: Self::LEN, got: message.len() })?;
        Ok(Self {
            sink_stag: Stag(header.sink_stag.get()),
            sink_offset: header.sink_offset.get(),
            size: header.size.get(),
            source_stag: Stag(header.source_stag.get()),
            source_offset: header.source_offset.get(),
        })
    }

    /// The inverse of [`ReadRequestRepr::parse`]. Cannot fail.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let header = Header {
            sink_stag: U32::new(self.sink_stag.0),
            sink_offset: U64::new(self.sink_offset),
            size: U32::new(self.size),
            source_stag: U32::new(self.source_stag.0),
            source_offset: U64::new(self.source_offset),
        };
        out.copy_from_slice(header.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Laid out by hand from RFC 5040 figure 6.
    const GOLDEN: [u8; ReadRequestRepr::LEN] = [
        0, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0x0f, 0xff, 0xde, 0xad, 0xbe, 0xef, 0,
        0, 0x7f, 0, 0, 0, 0, 8,
    ];
    const REPR: ReadRequestRepr = ReadRequestRepr {
        sink_stag: Stag(0x1234),
        sink_offset: 0x1000,
        size: 4095,
        source_stag: Stag(0xdead_beef),
        source_offset: 0x7f00_0000_0008,
    };

    #[test]
    fn golden_bytes_parse_and_emit() {
        assert_eq!(ReadRequestRepr::parse(&GOLDEN), Ok(REPR));
        let mut out = [0; ReadRequestRepr::LEN];
        REPR.emit(&mut out);
        assert_eq!(out, GOLDEN);
    }

    #[test]
    fn any_other_length_is_refused() {
        let longer = [0; 40];
        for got in (0..40).filter(|got| *got != ReadRequestRepr::LEN) {
            let refused = RdmapError::PeerLength { need: 28, got };
            assert_eq!(ReadRequestRepr::parse(&longer[..got]), Err(refused));
        }
    }
}
