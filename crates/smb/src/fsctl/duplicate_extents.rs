//! DUPLICATE_EXTENTS_TO_FILE: a range that from now on two files share.
//!
//! ```text
//!  0         16              24              32      40        _EX: 8 bytes of size in front,
//!  +---------+---------------+---------------+-------+         8 bytes of flags behind
//!  | file id | source offset | target offset | count |
//!  +---------+---------------+---------------+-------+
//! ```
//!
//! Spec: MS-FSCC §2.3: FSCTL_DUPLICATE_EXTENTS_TO_FILE, its _EX form; MS-SMB2 §3.3.5.15.17.

use crate::header::FileId;
use crate::parse_error::{Field, ParseError};
use crate::wire::Reader;

/// What to share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DuplicateExtents {
    /// An open of the file to share from.
    pub source: FileId,
    /// From where.
    pub source_offset: u64,
    /// To where.
    pub target_offset: u64,
    /// How many bytes.
    pub count: u64,
}

impl DuplicateExtents {
    /// Reads the input.
    ///
    /// # Errors
    /// Malformed, or reaching to 2^63 and beyond.
    pub fn parse(input: &[u8]) -> Result<Self, ParseError> {
        Self::take(&mut Reader::new(input))
    }

    /// Reads the input of the _EX form. Its one flag asks for atomicity, which a clone has.
    ///
    /// # Errors
    /// As [`Self::parse`], or of another size.
    pub fn parse_ex(input: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(input);
        let size = reader.u64()?;
        if size != EX_SIZE {
            return Err(ParseError::PeerValue { field: Field::Size, value: size });
        }
        let this = Self::take(&mut reader)?;
        reader.u64()?;
        Ok(this)
    }

    /// Appends the input.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.source.persistent.to_le_bytes());
        out.extend_from_slice(&self.source.volatile.to_le_bytes());
        for number in [self.source_offset, self.target_offset, self.count] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let source = FileId { persistent: reader.u64()?, volatile: reader.u64()? };
        let (source_offset, target_offset) = (reader.u64()?, reader.u64()?);
        let count = reader.u64()?;
        for offset in [source_offset, target_offset] {
            if offset.checked_add(count).is_none_or(|end| end > i64::MAX.unsigned_abs()) {
                return Err(ParseError::PeerValue { field: Field::Ranges, value: offset });
            }
        }
        Ok(Self { source, source_offset, target_offset, count })
    }
}

// DUPLICATE_EXTENTS_DATA_EX with its own field.
const EX_SIZE: u64 = 0x30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_carry_the_same_fields() {
        // Typed from MS-FSCC: file id (1, 2), source 4096, target 8192, 64 KiB.
        let golden = b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\
            \0\x20\0\0\0\0\0\0\0\0\x01\0\0\0\0\0";
        let parsed = DuplicateExtents::parse(golden).unwrap();
        assert_eq!(parsed.source, FileId { persistent: 1, volatile: 2 });
        assert_eq!((parsed.source_offset, parsed.target_offset), (4096, 8192));
        let mut ex = vec![0x30, 0, 0, 0, 0, 0, 0, 0];
        ex.extend_from_slice(golden);
        DuplicateExtents::parse_ex(&ex).unwrap_err();
        ex.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(DuplicateExtents::parse_ex(&ex), Ok(parsed));
        let mut out = Vec::new();
        parsed.emit(&mut out);
        assert_eq!(out, golden);
    }
}
