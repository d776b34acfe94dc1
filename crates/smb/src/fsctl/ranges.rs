//! Holes: SET_SPARSE, SET_ZERO_DATA, QUERY_ALLOCATED_RANGES, FILE_LEVEL_TRIM.
//!
//! ```text
//!  SET_SPARSE   SET_ZERO_DATA          QUERY_ALLOCATED_RANGES   FILE_LEVEL_TRIM
//!  0   1        0        8        16   0        8        16     0     4       8
//!  +---+        +--------+--------+    +--------+--------+      +-----+-------+---------------
//!  |set|        | offset | end    |    | offset | length |      | key | count | ranges of 16
//!  +---+        +--------+--------+    +--------+--------+      +-----+-------+---------------
//!                                      answer: ranges of 16     answer: count u32
//! ```
//!
//! Spec: MS-FSCC §2.3: FSCTL_SET_SPARSE, FSCTL_SET_ZERO_DATA, FSCTL_QUERY_ALLOCATED_RANGES,
//! FSCTL_FILE_LEVEL_TRIM.

use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// Whether a file is to have holes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SetSparse {
    /// It is.
    pub sparse: bool,
}

impl SetSparse {
    /// Reads the input; none at all means yes, and what follows the first byte nothing.
    pub fn parse(input: &[u8]) -> Self {
        Self { sparse: input.first().is_none_or(|set| *set != 0) }
    }

    /// Appends that input.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.sparse));
    }
}

/// Bytes to be made zero.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ZeroData {
    /// The first.
    pub offset: u64,
    /// Behind the last; not before the first.
    pub end: u64,
}

impl ZeroData {
    /// Reads the input.
    ///
    /// # Errors
    /// Malformed, negative, or ending before it begins.
    pub fn parse(input: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(input);
        let (offset, end) = (reader.u64()?, reader.u64()?);
        if end > i64::MAX.unsigned_abs() || offset > end {
            return Err(ParseError::PeerValue { field: Field::Ranges, value: end });
        }
        Ok(Self { offset, end })
    }

    /// Appends that input.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.end.to_le_bytes());
    }
}

/// A range of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileRange {
    /// The first byte.
    pub offset: u64,
    /// How many; the sum stays below 2^63.
    pub length: u64,
}

impl FileRange {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads one range; what follows it is ignored, as everywhere.
    ///
    /// # Errors
    /// Malformed, or reaching to 2^63 and beyond.
    pub fn parse(input: &[u8]) -> Result<Self, ParseError> {
        Self::take(&mut Reader::new(input))
    }

    /// Reads the answer: ranges to its end.
    ///
    /// # Errors
    /// Malformed, or more than [`FILE_RANGES_MAX`].
    pub fn parse_list(output: &[u8]) -> Result<Vec<Self>, ParseError> {
        let count = output.len().div_ceil(Self::LEN);
        wire::limit(Field::Ranges, count, FILE_RANGES_MAX)?;
        let mut reader = Reader::new(output);
        (0..count).map(|_| Self::take(&mut reader)).collect()
    }

    /// Appends the range.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
    }

    /// Behind the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (offset, length) = (reader.u64()?, reader.u64()?);
        match offset.checked_add(length) {
            Some(end) if end <= i64::MAX.unsigned_abs() => Ok(Self { offset, length }),
            _ => Err(ParseError::PeerValue { field: Field::Ranges, value: length }),
        }
    }
}

/// Ranges whose bytes nobody needs any longer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FileLevelTrim {
    /// Key of byte-range locks; no server has any but 0.
    pub key: u32,
    /// Which ranges.
    pub ranges: Vec<FileRange>,
}

impl FileLevelTrim {
    /// Reads the input.
    ///
    /// # Errors
    /// Malformed, or more than [`FILE_RANGES_MAX`] ranges.
    pub fn parse(input: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(input);
        let (key, count) = (reader.u32()?, reader.u32()?);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        wire::limit(Field::Ranges, count, FILE_RANGES_MAX)?;
        let ranges = (0..count).map(|_| FileRange::take(&mut reader)).collect::<Result<_, _>>()?;
        Ok(Self { key, ranges })
    }

    /// Appends that input.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key.to_le_bytes());
        out.extend_from_slice(&wire::length32(self.ranges.len()).to_le_bytes());
        self.ranges.iter().for_each(|range| range.emit(out));
    }
}

/// Ranges of one request or answer: those of an answer of 1 MiB.
pub const FILE_RANGES_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lie_where_the_specification_puts_them() {
        // FSCTL_FILE_LEVEL_TRIM: key 0, one range of 64 KiB at 4 KiB.
        let golden = b"\0\0\0\0\x01\0\0\0\0\x10\0\0\0\0\0\0\0\0\x01\0\0\0\0\0";
        let trim = FileLevelTrim::parse(golden).unwrap();
        assert_eq!(trim.ranges, [FileRange { offset: 4096, length: 65_536 }]);
        let mut out = Vec::new();
        trim.emit(&mut out);
        assert_eq!(out, golden);
        let zero = ZeroData::parse(&golden[8..]).unwrap();
        assert_eq!((zero.offset, zero.end), (4096, 65_536));
        assert_eq!(FileRange::parse_list(&golden[8..]).unwrap(), trim.ranges);
    }

    #[test]
    fn ranges_that_wrap_or_turn_back_are_refused() {
        let pair = |offset: u64, second: u64| [offset.to_le_bytes(), second.to_le_bytes()].concat();
        FileRange::parse(&pair(512, u64::MAX)).unwrap_err();
        FileRange::parse(&pair(1 << 63, 0)).unwrap_err();
        ZeroData::parse(&pair(4096, 4095)).unwrap_err();
        ZeroData::parse(&pair(0, 1 << 63)).unwrap_err();
        ZeroData::parse(&pair(4095, 4095)).unwrap();
    }

    #[test]
    fn a_set_sparse_request_without_input_sets_sparse() {
        assert!(SetSparse::parse(&[]).sparse);
        assert!(SetSparse::parse(&[0xff, 0]).sparse);
        assert!(!SetSparse::parse(&[0, 1]).sparse);
    }

    #[test]
    fn an_input_of_more_ranges_than_the_limit_is_refused() {
        let input = |count: usize| {
            let mut input = Vec::new();
            let ranges = vec![FileRange { offset: 0, length: 1 }; count];
            FileLevelTrim { key: 0, ranges }.emit(&mut input);
            FileLevelTrim::parse(&input).map(|trim| trim.ranges.len())
        };
        assert_eq!(input(FILE_RANGES_MAX), Ok(FILE_RANGES_MAX));
        input(FILE_RANGES_MAX + 1).unwrap_err();
    }
}
