//! FSCTL_SET_REPARSE_POINT and FSCTL_GET_REPARSE_POINT: a symbolic link as data.
//!
//! ```text
//!  0     4        6   8               12              16      20
//!  +-----+--------+---+---------------+---------------+-------+-----------------
//!  | tag | length | 0 | substitute    | print         | flags | names
//!  |     | from 8 |   | offset, length| offset, length|       | (UTF-16LE)
//!  +-----+--------+---+---------------+---------------+-------+-----------------
//! ```
//!
//! Spec: MS-FSCC §2.1.2.4.

use crate::dtyp::Name;
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// A symbolic link as data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SymlinkReparse {
    /// The target counts from the link's directory.
    pub relative: bool,
    /// The target.
    pub substitute: Name,
    /// The target, to be shown.
    pub print: Name,
}

/// What a reparse point is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ReparsePoint {
    /// A symbolic link.
    Symlink(SymlinkReparse),
    /// Anything else, by its tag.
    Other(u32),
}

impl ReparsePoint {
    /// Reads a reparse point; bytes behind it are ignored.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        let tag = reader.u32()?;
        let length = usize::from(reader.u16()?);
        reader.u16()?;
        let mut data = Reader::new(reader.bytes(length)?);
        if tag != SYMLINK_TAG {
            return Ok(Self::Other(tag));
        }
        let substitute = (data.u16()?, data.u16()?);
        let print = (data.u16()?, data.u16()?);
        let relative = data.u32()? & RELATIVE != 0;
        let names = data.rest();
        let name = |(offset, length): (u16, u16)| {
            wire::buffer(names, 0, u32::from(offset), u32::from(length), Field::Name)
                .and_then(Name::parse)
        };
        let (substitute, print) = (name(substitute)?, name(print)?);
        Ok(Self::Symlink(SymlinkReparse { relative, substitute, print }))
    }
}

impl SymlinkReparse {
    /// Appends the reparse point.
    ///
    /// # Panics
    /// When both names together are over 64 KiB.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let substitute = wire::length16(self.substitute.wire_len());
        let print = wire::length16(self.print.wire_len());
        let length = wire::length16(usize::from(substitute) + usize::from(print) + 12);
        out.extend_from_slice(&SYMLINK_TAG.to_le_bytes());
        for value in [length, 0, 0, substitute, substitute, print] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&(if self.relative { RELATIVE } else { 0 }).to_le_bytes());
        self.substitute.emit(out);
        self.print.emit(out);
    }
}

/// IO_REPARSE_TAG_SYMLINK.
pub const SYMLINK_TAG: u32 = 0xa000_000c;
const RELATIVE: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    // Typed from MS-FSCC §2.1.2.4, the printed name first, as cifs.ko writes it.
    const GOLDEN: &[u8] = b"\x0c\0\0\xa0\x14\0\0\0\x04\0\x04\0\0\0\x04\0\x01\0\0\0d\0e\0d\0e\0";

    #[test]
    fn a_reparse_buffer_of_a_link_holds_its_target_twice() {
        let de = Name::new("de").unwrap();
        let link = SymlinkReparse { relative: true, substitute: de.clone(), print: de };
        let mut out = Vec::new();
        link.emit(&mut out);
        assert_eq!(ReparsePoint::parse(&out), Ok(ReparsePoint::Symlink(link.clone())));
        assert_eq!(ReparsePoint::parse(GOLDEN), Ok(ReparsePoint::Symlink(link)));
        for len in 0..GOLDEN.len() {
            assert!(ReparsePoint::parse(&GOLDEN[..len]).is_err(), "{len}");
        }
        let fifo = b"\x14\0\0\x80\x08\0\0\0FIFO\0\0\0\0";
        assert_eq!(ReparsePoint::parse(fifo), Ok(ReparsePoint::Other(0x8000_0014)));
    }
}
