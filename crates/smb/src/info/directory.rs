//! Directory classes: one entry type, twelve layouts, and the writer of all listings.
//!
//! ```text
//!  0      4       8        40    48      56      60       64
//!  +------+-------+--------+-----+-------+-------+--------+--------------------------------
//!  | next | index | 4 times| eof | alloc.| attrs | length | then, by class:
//!  +------+-------+--------+-----+-------+-------+--------+
//!  1  DIRECTORY          64 name
//!  2  FULL               64 ea u32, 68 name
//!  3  BOTH               64 ea u32, 68 short length u8, 0, 70 short[24], 94 name
//!  12 NAMES              next, index, length at 8, 12 name
//!  37 ID_BOTH            as BOTH, 94 0 u16, 96 id u64, 104 name
//!  38 ID_FULL            64 ea u32, 68 0 u32, 72 id u64, 80 name
//!  60 ID_EXTD            64 ea u32, 68 tag u32, 72 id[16], 88 name
//!  63 ID_EXTD_BOTH       as ID_EXTD, 88 short length u8, 0, 90 short[24], 114 name
//!  78 ID_64_EXTD         64 ea u32, 68 tag u32, 72 id u64, 80 name
//!  79 ID_64_EXTD_BOTH    as 78, 80 short length u8, 0, 82 short[24], 106 name
//!  80 ID_ALL_EXTD        as 78 with id[16] behind the id, 96 name
//!  81 ID_ALL_EXTD_BOTH   as 80, 96 short length u8, 0, 98 short[24], 122 name
//!  100 POSIX             see posix.rs
//! ```
//!
//! Entries are 8-aligned.
//!
//! Spec: MS-FSCC §2.4: the classes named ..DirectoryInformation, and FileNamesInformation.

use super::name::read_listed_name;
use super::{FileAttributes, FileInfoClass, PosixEntry};
use crate::dtyp::{FileTime, Name};
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// One entry of a listing. What a class does not carry is zero when read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DirectoryEntry {
    /// Place in the directory, 0 where that means nothing.
    pub file_index: u32,
    /// Birth.
    pub creation_time: FileTime,
    /// Last read.
    pub last_access_time: FileTime,
    /// Last change of data.
    pub last_write_time: FileTime,
    /// Last change of data or metadata.
    pub change_time: FileTime,
    /// Length.
    pub end_of_file: u64,
    /// Bytes reserved.
    pub allocation_size: u64,
    /// Attributes.
    pub attributes: FileAttributes,
    /// Bytes of extended attributes; of a reparse point its tag, in the classes without one.
    pub ea_size: u32,
    /// Reparse tag, in the classes that have one.
    pub reparse_tag: u32,
    /// Number of the file on its volume; in the low half where the class has 128 bits.
    pub file_id: u64,
    /// 8.3 name, if there is one.
    pub short_name: ShortName,
    /// Name.
    pub name: Name,
}

/// An 8.3 name: at most twelve UTF-16 units.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ShortName {
    len: u8,
    bytes: [u8; 24],
}

impl ShortName {
    /// Takes a name, or `None` when it is longer than twelve UTF-16 units.
    pub fn new(name: &str) -> Option<Self> {
        let mut short = Self::default();
        for unit in name.encode_utf16() {
            let at = usize::from(short.len);
            short.bytes.get_mut(at..at + 2)?.copy_from_slice(&unit.to_le_bytes());
            short.len += 2;
        }
        Some(short)
    }
}

/// Which fields follow the common part.
#[derive(Clone, Copy)]
struct Tail {
    ea: bool,
    tag: bool,
    short: bool,
    id: IdField,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum IdField {
    None,
    /// Behind padding to 8.
    U64,
    U128,
    /// One behind the other.
    Both,
}

fn tail(class: FileInfoClass) -> Option<Tail> {
    let (ea, tag, short, id) = match class {
        FileInfoClass::DIRECTORY => (false, false, false, IdField::None),
        FileInfoClass::FULL_DIRECTORY => (true, false, false, IdField::None),
        FileInfoClass::BOTH_DIRECTORY => (true, false, true, IdField::None),
        FileInfoClass::ID_BOTH_DIRECTORY => (true, false, true, IdField::U64),
        FileInfoClass::ID_FULL_DIRECTORY => (true, false, false, IdField::U64),
        FileInfoClass::ID_EXTD_DIRECTORY => (true, true, false, IdField::U128),
        FileInfoClass::ID_EXTD_BOTH_DIRECTORY => (true, true, true, IdField::U128),
        FileInfoClass::ID_64_EXTD_DIRECTORY => (true, true, false, IdField::U64),
        FileInfoClass::ID_64_EXTD_BOTH_DIRECTORY => (true, true, true, IdField::U64),
        FileInfoClass::ID_ALL_EXTD_DIRECTORY => (true, true, false, IdField::Both),
        FileInfoClass::ID_ALL_EXTD_BOTH_DIRECTORY => (true, true, true, IdField::Both),
        _ => return None,
    };
    Some(Tail { ea, tag, short, id })
}

impl DirectoryEntry {
    /// Reads a listing.
    ///
    /// # Errors
    /// Malformed, or a class that is no directory class.
    pub fn parse_list(class: FileInfoClass, bytes: &[u8]) -> Result<Vec<Self>, ParseError> {
        let mut list = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let record;
            (record, rest) = wire::split_record(rest, NAMES_LEN)?;
            list.push(Self::parse_one(class, record)?);
        }
        Ok(list)
    }

    fn parse_one(class: FileInfoClass, record: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(record);
        reader.u32()?;
        let mut entry = Self { file_index: reader.u32()?, ..Self::default() };
        if class == FileInfoClass::NAMES {
            let length = reader.u32()?;
            entry.name = read_listed_name(&mut reader, length)?;
            return Ok(entry);
        }
        let Some(tail) = tail(class) else {
            let value = u64::from(class.0);
            return Err(ParseError::PeerValue { field: Field::Entries, value });
        };
        entry.creation_time = FileTime(reader.u64()?);
        entry.last_access_time = FileTime(reader.u64()?);
        entry.last_write_time = FileTime(reader.u64()?);
        entry.change_time = FileTime(reader.u64()?);
        entry.end_of_file = reader.u64()?;
        entry.allocation_size = reader.u64()?;
        entry.attributes = FileAttributes::from_bits_retain(reader.u32()?);
        let length = reader.u32()?;
        entry.parse_tail(tail, &mut reader)?;
        entry.name = read_listed_name(&mut reader, length)?;
        Ok(entry)
    }

    fn parse_tail(&mut self, tail: Tail, reader: &mut Reader<'_>) -> Result<(), ParseError> {
        if tail.ea {
            self.ea_size = reader.u32()?;
        }
        if tail.tag {
            self.reparse_tag = reader.u32()?;
            self.parse_id(tail.id, reader)?;
        }
        if tail.short {
            let len = reader.u8()?;
            wire::limit(Field::Name, usize::from(len), 24)?;
            reader.u8()?;
            self.short_name = ShortName { len, bytes: reader.array()? };
        }
        if !tail.tag && tail.id == IdField::U64 {
            reader.bytes(if tail.short { 2 } else { 4 })?;
            self.parse_id(tail.id, reader)?;
        }
        Ok(())
    }

    fn parse_id(&mut self, id: IdField, reader: &mut Reader<'_>) -> Result<(), ParseError> {
        self.file_id = reader.u64()?;
        reader.bytes(match id {
            IdField::None | IdField::U64 => 0,
            IdField::U128 => 8,
            IdField::Both => 16,
        })?;
        Ok(())
    }

    fn emit(&self, class: FileInfoClass, out: &mut Vec<u8>) {
        let length = wire::length32(self.name.wire_len());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.file_index.to_le_bytes());
        if let Some(tail) = tail(class) {
            let times =
                [self.creation_time, self.last_access_time, self.last_write_time, self.change_time];
            for value in
                times.map(|time| time.0).into_iter().chain([self.end_of_file, self.allocation_size])
            {
                out.extend_from_slice(&value.to_le_bytes());
            }
            out.extend_from_slice(&self.attributes.bits().to_le_bytes());
            out.extend_from_slice(&length.to_le_bytes());
            self.emit_tail(tail, out);
        } else {
            out.extend_from_slice(&length.to_le_bytes());
        }
        self.name.emit(out);
    }

    fn emit_tail(&self, tail: Tail, out: &mut Vec<u8>) {
        let id = |out: &mut Vec<u8>| {
            out.extend_from_slice(&self.file_id.to_le_bytes());
            if tail.id == IdField::Both {
                out.extend_from_slice(&self.file_id.to_le_bytes());
            }
            if matches!(tail.id, IdField::U128 | IdField::Both) {
                out.extend_from_slice(&[0; 8]);
            }
        };
        if tail.ea {
            out.extend_from_slice(&self.ea_size.to_le_bytes());
        }
        if tail.tag {
            out.extend_from_slice(&self.reparse_tag.to_le_bytes());
            id(out);
        }
        if tail.short {
            out.extend_from_slice(&[self.short_name.len, 0]);
            out.extend_from_slice(&self.short_name.bytes);
        }
        if !tail.tag && tail.id == IdField::U64 {
            out.extend_from_slice(if tail.short { &[0; 2] } else { &[0; 4] });
            id(out);
        }
    }
}

/// Fills a QUERY_DIRECTORY answer up to the client's limit.
#[derive(Debug)]
pub struct DirectoryWriter {
    class: FileInfoClass,
    start: usize,
    len_max: usize,
    previous: Option<usize>,
}

impl DirectoryWriter {
    /// Starts at the present end of `out`; `None` for a class that is no directory class.
    pub fn new(class: FileInfoClass, out: &[u8], len_max: usize) -> Option<Self> {
        let has_own_layout = matches!(class, FileInfoClass::NAMES | FileInfoClass::POSIX);
        let known = has_own_layout || tail(class).is_some();
        known.then_some(Self { class, start: out.len(), len_max, previous: None })
    }

    /// Appends an entry if it fits; if not, `out` is as before and the answer is full. An answer
    /// that is full while empty is INFO_LENGTH_MISMATCH.
    pub fn push(&mut self, out: &mut Vec<u8>, entry: &DirectoryEntry) -> bool {
        let class = self.class;
        debug_assert!(class != FileInfoClass::POSIX, "its entries are of another type");
        self.append(out, |out| entry.emit(class, out))
    }

    /// The same for class POSIX.
    pub fn push_posix(&mut self, out: &mut Vec<u8>, entry: &PosixEntry) -> bool {
        debug_assert!(self.class == FileInfoClass::POSIX, "its entries are of another type");
        self.append(out, |out| entry.emit(out))
    }

    fn append(&mut self, out: &mut Vec<u8>, emit: impl FnOnce(&mut Vec<u8>)) -> bool {
        let before = out.len();
        wire::pad(out, self.start, 8);
        let at = out.len();
        emit(out);
        if out.len() - self.start > self.len_max {
            out.truncate(before);
            return false;
        }
        if let Some(previous) = self.previous.replace(at) {
            wire::patch_u32(out, previous, wire::length32(at - previous));
        }
        true
    }

    /// Nothing was appended yet.
    pub fn is_empty(&self) -> bool {
        self.previous.is_none()
    }
}

const NAMES_LEN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> DirectoryEntry {
        DirectoryEntry {
            end_of_file: 5,
            file_id: 77,
            name: Name::new(name).unwrap(),
            ..DirectoryEntry::default()
        }
    }

    #[test]
    fn one_unpaired_surrogate_hides_no_other_name_of_a_listing() {
        let class = FileInfoClass::ID_FULL_DIRECTORY;
        let mut out = Vec::new();
        let mut writer = DirectoryWriter::new(class, &out, 4096).unwrap();
        assert!(writer.push(&mut out, &entry("x")));
        assert!(writer.push(&mut out, &entry("y")));
        // U+D800 alone.
        out[80..82].copy_from_slice(&[0x00, 0xd8]);
        let list = DirectoryEntry::parse_list(class, &out).unwrap();
        let names: Vec<_> = list.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["\u{fffd}", "y"]);
    }

    #[test]
    fn names_begin_where_the_specification_puts_them() {
        let table = [(1, 64), (2, 68), (3, 94), (12, 12), (37, 104), (38, 80), (60, 88)];
        for (class, at) in
            table.into_iter().chain([(63, 114), (78, 80), (79, 106), (80, 96), (81, 122)])
        {
            let class = FileInfoClass(class);
            let mut out = Vec::new();
            let mut writer = DirectoryWriter::new(class, &out, 4096).unwrap();
            assert!(writer.push(&mut out, &entry("q")));
            assert_eq!(&out[at..], b"q\0", "{class}");
            let list = DirectoryEntry::parse_list(class, &out).unwrap();
            assert_eq!(list[0].name.as_str(), "q");
        }
        assert!(DirectoryWriter::new(FileInfoClass::BASIC, &[], 10).is_none());
    }

    #[test]
    fn an_entry_that_does_not_fit_leaves_no_trace() {
        let mut out = vec![9; 3];
        let class = FileInfoClass::ID_BOTH_DIRECTORY;
        let mut writer = DirectoryWriter::new(class, &out, 112 + 106).unwrap();
        assert!(writer.push(&mut out, &entry("one")));
        assert!(writer.push(&mut out, &entry("2")));
        let len = out.len();
        assert!(!writer.push(&mut out, &entry("three")));
        assert_eq!(out.len(), len);
        let list = DirectoryEntry::parse_list(class, &out[3..]).unwrap();
        assert_eq!(list, [entry("one"), entry("2")]);
    }

    // Two records of 12 bytes; the first claims a name that lies in the second. A listing of many
    // such would cost its reader far more memory than it has bytes.
    #[test]
    fn a_name_ends_before_the_next_record_begins() {
        let mut bytes = vec![0; 24];
        bytes[0] = 12;
        let parse = |bytes: &[u8]| DirectoryEntry::parse_list(FileInfoClass::NAMES, bytes);
        assert_eq!(parse(&bytes).unwrap().len(), 2);
        bytes[8] = 2;
        parse(&bytes).unwrap_err();
    }
}
