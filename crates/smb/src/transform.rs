//! The transform header in front of an encrypted frame.
//!
//! ```text
//!  0          4             20           36         40    42      44           52
//!  +----------+-------------+------------+----------+-----+-------+------------+------------
//!  | FD 'SMB' | signature   | nonce (16) | original | 0   | flags | session id | ciphertext
//!  |          | (AEAD tag)  |            | size     |     | = 1   |            |
//!  +----------+-------------+------------+----------+-----+-------+------------+------------
//! ```
//!
//! Bytes 20 to 52 are the additional authenticated data.
//!
//! Spec: MS-SMB2 §2.2.41.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::header::SessionId;
use crate::parse_error::{Field, ParseError};
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    protocol_id: [u8; 4],
    signature: [u8; 16],
    nonce: [u8; 16],
    original_size: U32,
    reserved: U16,
    flags: U16,
    session_id: U64,
}

const _: () = assert!(size_of::<Wire>() == TransformHeader::LEN);

/// What stands in front of an encrypted frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TransformHeader {
    /// Authentication tag of the AEAD.
    pub signature: [u8; 16],
    /// Nonce: the first 11 bytes for CCM, the first 12 for GCM.
    pub nonce: [u8; 16],
    /// Bytes of the frame before it was encrypted.
    pub original_size: u32,
    /// The session whose keys seal the frame.
    pub session_id: SessionId,
}

impl TransformHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 52;
    /// The first four bytes.
    pub const PROTOCOL_ID: [u8; 4] = *b"\xfdSMB";
    /// Where the tag lies.
    pub const SIGNATURE: std::ops::Range<usize> = 4..20;
    /// What the AEAD authenticates beside the ciphertext.
    pub const ASSOCIATED: std::ops::Range<usize> = 20..52;

    /// Splits an encrypted frame into header and ciphertext.
    ///
    /// # Errors
    /// Too short, another protocol id, flags that do not say "encrypted" (in 3.0 the same field
    /// was the algorithm, 1 = AES-128-CCM), or a size that is not the ciphertext's.
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (wire, ciphertext) = wire::view::<Wire>(frame)?;
        if wire.protocol_id != Self::PROTOCOL_ID {
            return Err(ParseError::PeerProtocolId(u32::from_be_bytes(wire.protocol_id)));
        }
        if wire.flags.get() != ENCRYPTED {
            let value = u64::from(wire.flags.get());
            return Err(ParseError::PeerValue { field: Field::Flags, value });
        }
        let original_size = wire.original_size.get();
        // MS-SMB2 §3.3.5.2.1.1: the cipher is a stream, both lengths are the same.
        if usize::try_from(original_size) != Ok(ciphertext.len()) {
            let value = u64::from(original_size);
            return Err(ParseError::PeerValue { field: Field::Size, value });
        }
        let repr = Self {
            signature: wire.signature,
            nonce: wire.nonce,
            original_size,
            session_id: SessionId(wire.session_id.get()),
        };
        Ok((repr, ciphertext))
    }

    /// Appends the header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(
            out,
            &Wire {
                protocol_id: Self::PROTOCOL_ID,
                signature: self.signature,
                nonce: self.nonce,
                original_size: U32::new(self.original_size),
                reserved: U16::new(0),
                flags: U16::new(ENCRYPTED),
                session_id: U64::new(self.session_id.0),
            },
        );
    }
}

const ENCRYPTED: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    // Hand-assembled from the figure of MS-SMB2 §2.2.41.
    fn golden() -> Vec<u8> {
        let mut bytes = b"\xfdSMB".to_vec();
        bytes.extend([0x39; 16]);
        bytes.extend(*b"fL+I8/}Y\xa0n\xac\x11\0\0\0\0");
        bytes.extend([4, 0, 0, 0, 0, 0, 1, 0]);
        bytes.extend([0x11, 0, 0, 0x14, 0, 0x58, 0, 0]);
        bytes.extend([9; 4]);
        bytes
    }

    #[test]
    fn the_header_splits_from_its_ciphertext_and_comes_back() {
        let bytes = golden();
        let (header, ciphertext) = TransformHeader::parse(&bytes).unwrap();
        assert_eq!(ciphertext, [9; 4]);
        assert_eq!(header.session_id, SessionId(0x0000_5800_1400_0011));
        let mut out = Vec::new();
        header.emit(&mut out);
        assert_eq!(out, bytes[..52]);
    }

    #[test]
    fn wrong_sizes_flags_and_truncations_are_refused() {
        let bytes = golden();
        for len in 0..bytes.len() {
            assert!(TransformHeader::parse(&bytes[..len]).is_err(), "{len}");
        }
        for (at, value) in [(0, 0xfe), (36, 5), (42, 0)] {
            let mut bytes = golden();
            bytes[at] = value;
            assert!(TransformHeader::parse(&bytes).is_err(), "{at}");
        }
    }
}
