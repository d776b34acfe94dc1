//! Buffer descriptors: the peer memory an SMB2 READ or WRITE request offers for RDMA.
//!
//! ```text
//!  0                       8           12          16
//!  +-----------------------+-----------+-----------+
//!  | offset                | token     | length    |  as often as the request says
//!  +-----------------------+-----------+-----------+
//!
//!  position    0 ........ len0 ........ len0+len1 ....     one range for the SMB2 layer
//!  descriptor  |<-- 0 -->|<---- 1 ---->|<--- 2 ...
//! ```
//!
//! Several descriptors name one range: position `p` of the file data lies in the descriptor that
//! covers `p`. Rights and bounds of the memory itself are for the peer's adapter to enforce.
//!
//! Spec: MS-SMBD §2.2.3.1. Little-endian.

use std::fmt;

use thiserror::Error;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A descriptor exactly as it lies on the wire; any 16 bytes are a valid value of it.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    offset: U64,
    token: U32,
    length: U32,
}

const _: () = assert!(size_of::<Wire>() == BufferDescriptor::LEN);

/// Names a registered region of the peer; `rkey` in verbs, `stag` in iWARP.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Token(pub u32);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// One piece of peer memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BufferDescriptor {
    /// Offset in the region in bytes, as the peer's adapter counts.
    pub offset: u64,
    /// The region.
    pub token: Token,
    /// Bytes from `offset` on.
    pub length: u32,
}

impl BufferDescriptor {
    /// Bytes a descriptor takes on the wire.
    pub const LEN: usize = 16;

    /// Writes the descriptor. The inverse of [`Descriptors::parse`] for one descriptor.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let wire = Wire {
            offset: U64::new(self.offset),
            token: U32::new(self.token.0),
            length: U32::new(self.length),
        };
        out.copy_from_slice(wire.as_bytes());
    }
}

impl From<&Wire> for BufferDescriptor {
    fn from(wire: &Wire) -> Self {
        Self {
            offset: wire.offset.get(),
            token: Token(wire.token.get()),
            length: wire.length.get(),
        }
    }
}

/// The descriptors of one request, checked, and read in the bytes of the request.
#[derive(Clone, Copy)]
pub struct Descriptors<'a> {
    wire: &'a [Wire],
    total: u64,
}

impl<'a> Descriptors<'a> {
    /// Reads the channel information of a request.
    ///
    /// # Errors
    /// Anything but one to [`DESCRIPTORS_MAX`] whole descriptors, or a descriptor whose range wraps.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DescriptorError> {
        let wire = <[Wire]>::ref_from_bytes(bytes)
            .map_err(|_| DescriptorError::PeerLength(bytes.len()))?;
        if wire.is_empty() || wire.len() > DESCRIPTORS_MAX {
            return Err(DescriptorError::PeerCount(wire.len()));
        }
        let mut total = 0;
        for descriptor in wire.iter().map(BufferDescriptor::from) {
            let BufferDescriptor { offset, length, .. } = descriptor;
            if offset.checked_add(u64::from(length)).is_none() {
                return Err(DescriptorError::PeerWraps { offset, length });
            }
            // At most DESCRIPTORS_MAX times 4 GiB: far from the end of 64 bits.
            total += u64::from(length);
        }
        Ok(Self { wire, total })
    }

    /// Number of descriptors: at least one.
    #[expect(clippy::len_without_is_empty, reason = "never empty by construction")]
    pub fn len(&self) -> usize {
        self.wire.len()
    }

    /// Bytes that all descriptors name together.
    pub fn total_length(&self) -> u64 {
        self.total
    }

    /// The token of the first descriptor, which the answer to the request invalidates
    /// (MS-SMB2 §3.3.5.12 and §3.3.5.13, `SMB2_CHANNEL_RDMA_V1_INVALIDATE`).
    pub fn first_token(&self) -> Token {
        BufferDescriptor::from(&self.wire[0]).token
    }

    /// The descriptors in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = BufferDescriptor> + 'a {
        self.wire.iter().map(BufferDescriptor::from)
    }

    /// The pieces of peer memory that hold `length` bytes from `position` on, in order.
    ///
    /// # Errors
    /// [`DescriptorError::PeerRange`] when the descriptors do not reach that far.
    pub fn pieces(&self, position: u64, length: u64) -> Result<RemotePieces<'a>, DescriptorError> {
        let range = DescriptorError::PeerRange { position, length, total: self.total };
        let end = position.checked_add(length).ok_or(range)?;
        if end > self.total {
            return Err(range);
        }
        Ok(RemotePieces { rest: self.wire.iter(), skip: position, position, left: length })
    }
}

impl fmt::Debug for Descriptors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A contiguous part of one descriptor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RemotePiece {
    /// Offset of the piece in the range that the descriptors form, in bytes.
    pub position: u64,
    /// Offset of the piece in the peer's region, in bytes.
    pub offset: u64,
    /// The region.
    pub token: Token,
    /// Length of the piece in bytes. Never zero.
    pub length: u32,
}

/// Walks several descriptors as one range; see [`Descriptors::pieces`].
#[derive(Clone, Debug)]
pub struct RemotePieces<'a> {
    rest: std::slice::Iter<'a, Wire>,
    skip: u64,
    position: u64,
    left: u64,
}

impl Iterator for RemotePieces<'_> {
    type Item = RemotePiece;

    fn next(&mut self) -> Option<RemotePiece> {
        while self.left > 0 {
            let descriptor = BufferDescriptor::from(self.rest.next()?);
            let within = u64::from(descriptor.length);
            if self.skip >= within {
                self.skip -= within;
                continue;
            }
            let length = (within - self.skip).min(self.left);
            let piece = RemotePiece {
                position: self.position,
                offset: descriptor.offset + self.skip,
                token: descriptor.token,
                length: u32::try_from(length).expect("no longer than the descriptor's u32"),
            };
            (self.skip, self.position, self.left) = (0, self.position + length, self.left - length);
            return Some(piece);
        }
        None
    }
}

/// The reason why a request's descriptors are refused. The SMB2 layer answers, and the connection continues.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum DescriptorError {
    /// Not a whole number of descriptors.
    #[error("peer sent {0} bytes of descriptors, not a multiple of 16")]
    PeerLength(usize),
    /// No descriptor, or more than [`DESCRIPTORS_MAX`].
    #[error("peer sent {0} descriptors, 1 to {DESCRIPTORS_MAX} are allowed")]
    PeerCount(usize),
    /// A descriptor reaches past the end of the address space.
    #[error("peer's descriptor wraps: offset {offset:#x}, length {length}")]
    PeerWraps {
        /// Offset of the descriptor.
        offset: u64,
        /// Length of the descriptor in bytes.
        length: u32,
    },
    /// The descriptors name less memory than the request moves.
    #[error("peer offered {total} bytes, {length} at {position} are needed")]
    PeerRange {
        /// Position of the first byte of the transfer.
        position: u64,
        /// Bytes to transfer.
        length: u64,
        /// Bytes the descriptors name together.
        total: u64,
    },
}

/// Most descriptors in one request. Captured Linux peers send one. Each costs
/// one RDMA operation, so the cap also bounds the operations that a request can queue.
pub const DESCRIPTORS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    // Typed from the layout of MS-SMBD §2.2.3.1.
    const ONE: [u8; 16] = [
        0x00, 0x10, 0, 0, 0, 0, 0, 0x80, // offset 0x8000_0000_0000_1000
        0xef, 0xbe, 0xad, 0xde, // token
        0x00, 0x00, 0x01, 0x00, // 64 KiB
    ];
    const ONE_REPR: BufferDescriptor = BufferDescriptor {
        offset: 0x8000_0000_0000_1000,
        token: Token(0xdead_beef),
        length: 0x1_0000,
    };

    fn list(descriptors: &[(u64, u32, u32)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &(offset, token, length) in descriptors {
            let mut out = [0; 16];
            BufferDescriptor { offset, token: Token(token), length }.emit(&mut out);
            bytes.extend_from_slice(&out);
        }
        bytes
    }

    #[test]
    fn golden_bytes_parse_and_emit() {
        let descriptors = Descriptors::parse(&ONE).unwrap();
        assert_eq!((descriptors.len(), descriptors.total_length()), (1, 0x1_0000));
        assert_eq!(descriptors.iter().next(), Some(ONE_REPR));
        assert_eq!(descriptors.first_token(), ONE_REPR.token);
        let mut out = [0; 16];
        ONE_REPR.emit(&mut out);
        assert_eq!(out, ONE);
    }

    #[test]
    fn partial_missing_and_too_many_descriptors_are_refused() {
        let parse = |len| Descriptors::parse(&vec![0; len]).map(|list| list.len());
        assert_eq!(parse(0), Err(DescriptorError::PeerCount(0)));
        assert_eq!(parse(17), Err(DescriptorError::PeerLength(17)));
        assert_eq!(parse(16 * 256), Ok(256));
        assert_eq!(parse(16 * 257), Err(DescriptorError::PeerCount(257)));
    }

    #[test]
    fn a_descriptor_that_wraps_is_refused_and_the_sum_does_not_wrap() {
        let bytes = list(&[(u64::MAX - 4, 1, 5)]);
        let wraps = DescriptorError::PeerWraps { offset: u64::MAX - 4, length: 5 };
        assert_eq!(Descriptors::parse(&bytes).unwrap_err(), wraps);
        let bytes = list(&[(0, 1, u32::MAX); 256]);
        let total = Descriptors::parse(&bytes).unwrap().total_length();
        assert_eq!(total, 256 * u64::from(u32::MAX));
    }

    #[test]
    fn several_descriptors_form_one_range() {
        let bytes = list(&[(1000, 1, 10), (0, 9, 0), (2000, 2, 20), (3000, 3, 30)]);
        let descriptors = Descriptors::parse(&bytes).unwrap();
        let walk = |position, length| -> Vec<_> {
            let pieces = descriptors.pieces(position, length).unwrap();
            pieces.map(|p| (p.position, p.token.0, p.offset, p.length)).collect()
        };
        assert_eq!(walk(0, 60), [(0, 1, 1000, 10), (10, 2, 2000, 20), (30, 3, 3000, 30)]);
        assert_eq!(walk(9, 2), [(9, 1, 1009, 1), (10, 2, 2000, 1)]);
        assert_eq!(walk(15, 5), [(15, 2, 2005, 5)]);
        assert_eq!(walk(30, 1), [(30, 3, 3000, 1)]);
        assert_eq!(walk(60, 0), []);
        for (position, length) in [(0, 61), (60, 1), (61, 0), (u64::MAX, 1)] {
            let range = DescriptorError::PeerRange { position, length, total: 60 };
            assert_eq!(descriptors.pieces(position, length).unwrap_err(), range);
        }
    }

    #[test]
    fn tokens_and_descriptors_are_shown_as_what_they_are() {
        assert_eq!(Token(0x12_ab34).to_string(), "0x0012ab34");
        let shown = format!("{:?}", Descriptors::parse(&ONE).unwrap());
        assert_eq!(shown, format!("[{ONE_REPR:?}]"));
    }
}
