//! Extended attributes: values (FULL_EA) and lists of names wanted (GET_EA).
//!
//! ```text
//!  0      4       5        6       8                          0      4        5
//!  +------+-------+--------+-------+------+---+-------        +------+--------+------+---
//!  | next | flags | name   | value | name | 0 | value         | next | name   | name | 0
//!  |      |       | length | length|      |   |               |      | length |      |
//!  +------+-------+--------+-------+------+---+-------        +------+--------+------+---
//! ```
//!
//! Entries are 4-aligned; names are ASCII and case-insensitive.
//!
//! Spec: MS-FSCC §2.4, FileFullEaInformation and FILE_GET_EA_INFORMATION.

use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// One extended attribute.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FullEa<'a> {
    /// 0x80: a client that does not understand it must not open the file.
    pub flags: u8,
    /// Name, at most 255 bytes.
    pub name: &'a [u8],
    /// Value; none removes the attribute.
    pub value: &'a [u8],
}

impl<'a> FullEa<'a> {
    /// Reads a list.
    ///
    /// # Errors
    /// Malformed, or longer than [`EA_LIST_MAX`].
    pub fn parse_list(bytes: &'a [u8]) -> Result<Vec<Self>, ParseError> {
        entries(bytes, 8, |mut reader| {
            let flags = reader.u8()?;
            let name_length = usize::from(reader.u8()?);
            let value_length = usize::from(reader.u16()?);
            let name = reader.bytes(name_length)?;
            reader.u8()?;
            Ok(Self { flags, name, value: reader.bytes(value_length)? })
        })
    }

    /// Appends a list.
    ///
    /// # Panics
    /// When a name is over 255 bytes or a value over 64 KiB.
    pub fn emit_list(list: &[Self], out: &mut Vec<u8>) {
        let start = out.len();
        let mut previous = None;
        for ea in list {
            wire::pad(out, start, 4);
            let at = out.len();
            if let Some(previous) = previous.replace(at) {
                wire::patch_u32(out, previous, wire::length32(at - previous));
            }
            let name_length = u8::try_from(ea.name.len()).expect("EA names have 255 bytes");
            out.extend_from_slice(&[0, 0, 0, 0, ea.flags, name_length]);
            out.extend_from_slice(&wire::length16(ea.value.len()).to_le_bytes());
            out.extend_from_slice(ea.name);
            out.push(0);
            out.extend_from_slice(ea.value);
        }
    }
}

/// Names of the attributes a QUERY_INFO wants.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EaNames<'a>(pub Vec<&'a [u8]>);

impl<'a> EaNames<'a> {
    /// Reads a list.
    ///
    /// # Errors
    /// Malformed, or longer than [`EA_LIST_MAX`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        entries(bytes, 5, |mut reader| {
            let length = usize::from(reader.u8()?);
            reader.bytes(length)
        })
        .map(Self)
    }
}

/// Walks a chain of entries; `take` reads what follows the offset of the next one, and no byte of that one.
fn entries<'a, T>(
    bytes: &'a [u8],
    fixed: usize,
    take: impl Fn(Reader<'a>) -> Result<T, ParseError>,
) -> Result<Vec<T>, ParseError> {
    let mut list = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        wire::limit(Field::Entries, list.len() + 1, EA_LIST_MAX)?;
        let (entry, others) = wire::split_record(rest, fixed)?;
        if !entry.len().is_multiple_of(4) && !others.is_empty() {
            let offset = wire::length32(entry.len());
            return Err(ParseError::PeerAlignment { field: Field::Next, offset, align: 4 });
        }
        let mut reader = Reader::new(entry);
        reader.u32()?;
        list.push(take(reader)?);
        rest = others;
    }
    Ok(list)
}

/// Attributes of one list; a file has at most 64 KiB of them.
pub const EA_LIST_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_an_ea_list_that_overlap_are_refused() {
        // Typed from MS-FSCC §2.4.15: two entries of 8 bytes whose values would be what follows both of them.
        let mut list = b"\x08\0\0\0\0\x01\x10\0\0\0\0\0\0\x01\x10\0A\0".to_vec();
        list.extend_from_slice(&[7; 16]);
        let _ = FullEa::parse_list(&list).unwrap_err();
        assert_eq!(FullEa::parse_list(&list[8..]).unwrap()[0].value, [7; 16]);
        // The same of names: the first would end in the second entry.
        let names = b"\x08\0\0\0\x04AAA\0\0\0\0\x01B\0";
        let _ = EaNames::parse(names).unwrap_err();
        assert_eq!(EaNames::parse(&names[8..]).unwrap().0, [b"B"]);
    }
}
