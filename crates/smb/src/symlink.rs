//! What STOPPED_ON_SYMLINK carries: where the link in the path points to.
//!
//! ```text
//!  0        4        8         12       14       16         20       24      28
//!  +--------+--------+---------+--------+--------+----------+--------+-------+-------------
//!  | length | 'SYML' | reparse | reparse| unpars.| substit. | print  | flags | names
//!  | - 4    |        | tag     | length | length | offs, len| offs, l|       | (UTF-16LE)
//!  +--------+--------+---------+--------+--------+----------+--------+-------+-------------
//! ```
//!
//! It stands in [`crate::ErrorResponse`]: plain before 3.1.1, in a context of id 0 since.
//!
//! Spec: MS-SMB2 §2.2.2.2.1.

use crate::dtyp::Name;
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// The link and what is left of the path behind it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SymlinkError {
    /// Bytes of the path, from its end, that were not looked at.
    pub unparsed_length: u16,
    /// The target counts from the link's directory.
    pub relative: bool,
    /// The target, to be put in place of the link.
    pub substitute: Name,
    /// The target, to be shown.
    pub print: Name,
}

impl SymlinkError {
    /// Reads the error data.
    ///
    /// # Errors
    /// Malformed, or another kind of reparse point.
    pub fn parse(data: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(data);
        reader.u32()?;
        let (tag, reparse_tag) = (reader.u32()?, reader.u32()?);
        if (tag, reparse_tag) != (ERROR_TAG, REPARSE_TAG_SYMLINK) {
            let value = u64::from(reparse_tag);
            return Err(ParseError::PeerValue { field: Field::Data, value });
        }
        reader.u16()?;
        let unparsed_length = reader.u16()?;
        let substitute = (reader.u16()?, reader.u16()?);
        let print = (reader.u16()?, reader.u16()?);
        let relative = reader.u32()? & RELATIVE != 0;
        let names = reader.rest();
        let name = |(offset, length): (u16, u16)| {
            wire::buffer(names, 0, u32::from(offset), u32::from(length), Field::Name)
                .and_then(Name::parse)
        };
        Ok(Self { unparsed_length, relative, substitute: name(substitute)?, print: name(print)? })
    }

    /// Appends the error data.
    ///
    /// # Panics
    /// When both names together are over 64 KiB.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let substitute = wire::length16(self.substitute.wire_len());
        let print = wire::length16(self.print.wire_len());
        let names = usize::from(substitute) + usize::from(print);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&ERROR_TAG.to_le_bytes());
        out.extend_from_slice(&REPARSE_TAG_SYMLINK.to_le_bytes());
        out.extend_from_slice(&wire::length16(names + 12).to_le_bytes());
        for value in [self.unparsed_length, 0, substitute, substitute, print] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&(if self.relative { RELATIVE } else { 0 }).to_le_bytes());
        self.substitute.emit(out);
        self.print.emit(out);
        let length = wire::length32(out.len() - start - 4);
        wire::patch_u32(out, start, length);
    }
}

const ERROR_TAG: u32 = 0x4c4d_5953;
const REPARSE_TAG_SYMLINK: u32 = 0xa000_000c;
const RELATIVE: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    // Typed from the structure of MS-SMB2 §2.2.2.2.1.
    const GOLDEN: &[u8] = b"\x20\0\0\0SYML\x0c\0\0\xa0\x14\0\x06\0\0\0\x04\0\x04\0\x04\0\x01\0\0\0\
        d\0e\0d\0e\0";

    #[test]
    fn the_names_follow_the_flags() {
        let de = Name::new("de").unwrap();
        let error =
            SymlinkError { unparsed_length: 6, relative: true, substitute: de.clone(), print: de };
        let mut out = Vec::new();
        error.emit(&mut out);
        assert_eq!(out, GOLDEN);
        assert_eq!(SymlinkError::parse(GOLDEN), Ok(error));
        for len in 0..GOLDEN.len() {
            assert!(SymlinkError::parse(&GOLDEN[..len]).is_err(), "{len}");
        }
    }
}
