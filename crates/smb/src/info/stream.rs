//! FileStreamInformation: the streams of a file.
//!
//! ```text
//!  0      4        8      16           24
//!  +------+--------+------+------------+-------------------
//!  | next | length | size | allocation | ":name:$DATA"
//!  +------+--------+------+------------+-------------------
//! ```
//!
//! Spec: MS-FSCC §2.4, FileStreamInformation.

use super::name::read_name;
use crate::dtyp::Name;
use crate::parse_error::ParseError;
use crate::wire::{self, Reader};

/// One stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stream {
    /// Length.
    pub size: u64,
    /// Bytes reserved.
    pub allocation_size: u64,
    /// `::$DATA` or `:name:$DATA`.
    pub name: Name,
}

impl Stream {
    /// Reads a list.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse_list(bytes: &[u8]) -> Result<Vec<Self>, ParseError> {
        let mut list = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let record;
            (record, rest) = wire::split_record(rest, FIXED_LEN)?;
            let mut reader = Reader::new(record);
            reader.u32()?;
            let length = reader.u32()?;
            let (size, allocation_size) = (reader.u64()?, reader.u64()?);
            list.push(Self { size, allocation_size, name: read_name(&mut reader, length)? });
        }
        Ok(list)
    }

    /// Appends a list, 8-aligned.
    pub fn emit_list(list: &[Self], out: &mut Vec<u8>) {
        let start = out.len();
        let mut previous = None;
        for stream in list {
            wire::pad(out, start, 8);
            let at = out.len();
            if let Some(previous) = previous.replace(at) {
                wire::patch_u32(out, previous, wire::length32(at - previous));
            }
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&wire::length32(stream.name.wire_len()).to_le_bytes());
            out.extend_from_slice(&stream.size.to_le_bytes());
            out.extend_from_slice(&stream.allocation_size.to_le_bytes());
            stream.name.emit(out);
        }
    }
}

const FIXED_LEN: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    // Two records of 24 bytes; the first claims a name that lies in the second.
    #[test]
    fn a_name_ends_before_the_next_record_begins() {
        let mut bytes = vec![0; 48];
        bytes[0] = 24;
        assert_eq!(Stream::parse_list(&bytes).unwrap().len(), 2);
        bytes[4] = 2;
        Stream::parse_list(&bytes).unwrap_err();
    }
}
