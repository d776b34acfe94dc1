//! The SMB1 NEGOTIATE that a multi-protocol client sends first: just its dialect strings.
//!
//! ```text
//!  0          4         5                 32        33         35
//!  +----------+---------+-----------------+---------+----------+----------------------------
//!  | FF 'SMB' | 72      | ...             | words=0 | bytes    | 02 "NT LM 0.12\0" 02 "SM..
//!  +----------+---------+-----------------+---------+----------+----------------------------
//! ```
//!
//! Spec: MS-CIFS §2.2.4.52.1, MS-SMB2 §3.3.5.3.1.

use crate::parse_error::{Field, ParseError};
use crate::protocol::SMB1;
use crate::wire::{self, Reader};

/// What an SMB1 client says about SMB2.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Smb1Negotiate {
    /// It offers "SMB 2.002".
    pub offers_2_002: bool,
    /// It offers "SMB 2.???": 2.1 and later, to be chosen in a second NEGOTIATE.
    pub offers_2_wildcard: bool,
}

impl Smb1Negotiate {
    /// Reads an SMB1 frame.
    ///
    /// # Errors
    /// Not SMB1, not a NEGOTIATE, or a dialect list that is malformed or too long.
    pub fn parse(frame: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(frame);
        let id: [u8; 4] = reader.array()?;
        if id != SMB1 {
            return Err(ParseError::PeerProtocolId(u32::from_be_bytes(id)));
        }
        let command = reader.u8()?;
        if command != NEGOTIATE {
            let value = u64::from(command);
            return Err(ParseError::PeerValue { field: Field::Dialects, value });
        }
        reader.bytes(SMB1_HEADER_LEN - 5)?;
        let words = reader.u8()?;
        reader.bytes(2 * usize::from(words))?;
        let len = usize::from(reader.u16()?);
        let mut rest = reader.bytes(len)?;
        let mut found = Self::default();
        let mut count = 0;
        while !rest.is_empty() {
            count += 1;
            wire::limit(Field::Dialects, count, SMB1_DIALECTS_MAX)?;
            let dialect;
            (dialect, rest) = split_dialect(rest)?;
            found.offers_2_002 |= dialect == b"SMB 2.002";
            found.offers_2_wildcard |= dialect == b"SMB 2.???";
        }
        Ok(found)
    }
}

fn split_dialect(bytes: &[u8]) -> Result<(&[u8], &[u8]), ParseError> {
    let malformed = ParseError::PeerTruncated { need: bytes.len() + 1, got: bytes.len() };
    let (&format, text) = bytes.split_first().ok_or(malformed)?;
    if format != DIALECT_FORMAT {
        let value = u64::from(format);
        return Err(ParseError::PeerValue { field: Field::Dialects, value });
    }
    let end = text.iter().position(|&byte| byte == 0).ok_or(malformed)?;
    Ok((&text[..end], &text[end + 1..]))
}

/// Dialect strings read from one SMB1 NEGOTIATE; old Windows sends six, Samba a dozen.
pub const SMB1_DIALECTS_MAX: usize = 64;

const NEGOTIATE: u8 = 0x72;
const SMB1_HEADER_LEN: usize = 32;
const DIALECT_FORMAT: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(dialects: &[u8]) -> Vec<u8> {
        let mut bytes = b"\xffSMB\x72".to_vec();
        bytes.resize(33, 0);
        bytes.extend(u16::try_from(dialects.len()).unwrap().to_le_bytes());
        bytes.extend(dialects);
        bytes
    }

    #[test]
    fn the_two_smb2_strings_are_found_among_the_old_ones() {
        let bytes = frame(b"\x02NT LM 0.12\0\x02SMB 2.002\0\x02SMB 2.???\0");
        let both = Smb1Negotiate { offers_2_002: true, offers_2_wildcard: true };
        assert_eq!(Smb1Negotiate::parse(&bytes), Ok(both));
        let old = frame(b"\x02NT LM 0.12\0");
        assert_eq!(Smb1Negotiate::parse(&old), Ok(Smb1Negotiate::default()));
    }

    #[test]
    fn truncated_and_overlong_lists_are_refused() {
        let bytes = frame(b"\x02SMB 2.002\0");
        for len in 0..bytes.len() {
            assert!(Smb1Negotiate::parse(&bytes[..len]).is_err(), "{len}");
        }
        assert!(Smb1Negotiate::parse(&frame(b"\x02SMB 2.002")).is_err(), "no terminator");
        assert!(Smb1Negotiate::parse(&frame(&b"\x02A\0".repeat(65))).is_err(), "too many");
    }
}
