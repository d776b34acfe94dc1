//! Which protocol a frame speaks: the first four bytes decide.
//!
//! ```text
//!  FE 'SMB'  SMB2 message                      -> header, compound
//!  FD 'SMB'  encrypted SMB2                    -> transform
//!  FC 'SMB'  compressed SMB2                   -> refused, we never negotiate it
//!  FF 'SMB'  SMB1; only its NEGOTIATE is read  -> smb1
//! ```
//!
//! Spec: MS-SMB2 §2.2.1, §2.2.41, §2.2.42; MS-SMB §2.2.4.5.

use crate::header::Header;
use crate::parse_error::ParseError;
use crate::transform::TransformHeader;

/// What a frame starts with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// A plain SMB2 frame.
    Smb2,
    /// An encrypted frame.
    Encrypted,
    /// A compressed frame: nothing we announce allows it.
    Compressed,
    /// SMB1: the first frame of an old client that also offers SMB2.
    Smb1,
}

impl Protocol {
    /// Looks at the first four bytes of a frame.
    ///
    /// # Errors
    /// Fewer than four bytes, or none of the four protocols.
    pub fn of(frame: &[u8]) -> Result<Self, ParseError> {
        let Some(id) = frame.first_chunk::<4>() else {
            return Err(ParseError::PeerTruncated { need: 4, got: frame.len() });
        };
        match *id {
            Header::PROTOCOL_ID => Ok(Self::Smb2),
            TransformHeader::PROTOCOL_ID => Ok(Self::Encrypted),
            COMPRESSED => Ok(Self::Compressed),
            SMB1 => Ok(Self::Smb1),
            other => Err(ParseError::PeerProtocolId(u32::from_be_bytes(other))),
        }
    }
}

pub(crate) const SMB1: [u8; 4] = *b"\xffSMB";
const COMPRESSED: [u8; 4] = *b"\xfcSMB";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_four_bytes_decide_the_protocol() {
        assert_eq!(Protocol::of(b"\xfeSMB@"), Ok(Protocol::Smb2));
        assert_eq!(Protocol::of(b"\xfdSMB"), Ok(Protocol::Encrypted));
        assert_eq!(Protocol::of(b"\xfcSMB"), Ok(Protocol::Compressed));
        assert_eq!(Protocol::of(b"\xffSMB"), Ok(Protocol::Smb1));
        assert_eq!(Protocol::of(b"GET "), Err(ParseError::PeerProtocolId(0x4745_5420)));
        Protocol::of(b"\xfeSM").unwrap_err();
    }
}
