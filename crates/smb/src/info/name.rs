//! Classes that are one name: Name, NormalizedName, AlternateName.
//!
//! ```text
//!  0        4
//!  +--------+------------------
//!  | length | name (UTF-16LE)
//!  +--------+------------------
//! ```
//!
//! Spec: MS-FSCC §2.1.7; §2.4, the classes that hold a name alone.

use crate::dtyp::Name;
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// A name with its length before it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FileName {
    /// The name.
    pub name: Name,
}

impl FileName {
    /// Reads the class.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        let length = reader.u32()?;
        Ok(Self { name: read_name(&mut reader, length)? })
    }

    /// Appends the class.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let length = wire::length32(self.name.wire_len());
        out.extend_from_slice(&length.to_le_bytes());
        self.name.emit(out);
    }
}

/// A name of `length` bytes at the front of `reader`.
pub(super) fn read_name(reader: &mut Reader<'_>, length: u32) -> Result<Name, ParseError> {
    Name::parse(name_bytes(reader, length)?)
}

/// As [`read_name`], of a listing; half a surrogate pair becomes U+FFFD.
pub(super) fn read_listed_name(reader: &mut Reader<'_>, length: u32) -> Result<Name, ParseError> {
    Name::parse_lossy(name_bytes(reader, length)?)
}

fn name_bytes<'a>(reader: &mut Reader<'a>, length: u32) -> Result<&'a [u8], ParseError> {
    let got = reader.rest().len();
    let outside = ParseError::PeerOffset { field: Field::Name, offset: 0, length, got };
    let length = usize::try_from(length).map_err(|_| outside)?;
    reader.bytes(length)
}
