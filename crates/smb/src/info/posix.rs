//! What POSIX clients ask of a file, alone and in listings: class 100 of the SMB3 POSIX extensions.
//!
//! ```text
//!  0        32    40      48      52      60       64    68      72     76     80
//!  +--------+-----+-------+-------+-------+--------+-----+-------+------+------+-------+-------+
//!  | 4 times| eof | alloc.| attrs | inode | device | 0   | links | tag  | mode | owner | group |
//!  +--------+-----+-------+-------+-------+--------+-----+-------+------+------+-------+-------+
//!                                                                                SIDs
//!  in a listing: next u32, 0 u32 before it, length of the name u32 and the name behind it
//! ```
//!
//! Nothing of it is aligned but the entries of a listing, to 8.
//!
//! Spec: SMB3 POSIX extensions, POSIX-FSCC §2.1.1 (mode), FilePosixInformation.

use super::FileAttributes;
use super::name::read_name;
use crate::create::PosixResponse;
use crate::dtyp::{FileTime, Name};
use crate::parse_error::ParseError;
use crate::wire::{self, Reader};

/// What POSIX clients want to know of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PosixInfo {
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
    /// Number of the file on its device.
    pub inode: u64,
    /// Number of the device.
    pub device: u32,
    /// What the answer to CREATE says too.
    pub facts: PosixResponse,
}

impl PosixInfo {
    /// Reads the class; bytes behind it are ignored.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        Self::take(bytes).map(|(info, _)| info)
    }

    fn take(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut reader = Reader::new(bytes);
        let mut time = || reader.u64().map(FileTime);
        let times = [time()?, time()?, time()?, time()?];
        let [creation_time, last_access_time, last_write_time, change_time] = times;
        let (end_of_file, allocation_size) = (reader.u64()?, reader.u64()?);
        let attributes = FileAttributes::from_bits_retain(reader.u32()?);
        let (inode, device) = (reader.u64()?, reader.u32()?);
        reader.u32()?;
        let (facts, rest) = PosixResponse::parse(reader.rest())?;
        let info = Self {
            creation_time,
            last_access_time,
            last_write_time,
            change_time,
            end_of_file,
            allocation_size,
            attributes,
            inode,
            device,
            facts,
        };
        Ok((info, rest))
    }

    /// Appends the class.
    pub fn emit(&self, out: &mut Vec<u8>) {
        for time in
            [self.creation_time, self.last_access_time, self.last_write_time, self.change_time]
        {
            out.extend_from_slice(&time.0.to_le_bytes());
        }
        out.extend_from_slice(&self.end_of_file.to_le_bytes());
        out.extend_from_slice(&self.allocation_size.to_le_bytes());
        out.extend_from_slice(&self.attributes.bits().to_le_bytes());
        out.extend_from_slice(&self.inode.to_le_bytes());
        out.extend_from_slice(&self.device.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        self.facts.emit(out);
    }
}

/// One entry of a listing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PosixEntry {
    /// The file.
    pub info: PosixInfo,
    /// Its name.
    pub name: Name,
}

impl PosixEntry {
    /// Reads a listing.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse_list(bytes: &[u8]) -> Result<Vec<Self>, ParseError> {
        let mut list = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let record;
            (record, rest) = wire::split_record(rest, HEAD_LEN)?;
            let head = Reader::new(record).bytes(HEAD_LEN)?;
            let (info, name) = PosixInfo::take(&record[head.len()..])?;
            let mut reader = Reader::new(name);
            let length = reader.u32()?;
            list.push(Self { info, name: read_name(&mut reader, length)? });
        }
        Ok(list)
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; HEAD_LEN]);
        self.info.emit(out);
        out.extend_from_slice(&wire::length32(self.name.wire_len()).to_le_bytes());
        self.name.emit(out);
    }
}

/// The kind of a file, in bits 12 to 14 of its mode. Not the numbers of stat(2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PosixKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

impl PosixKind {
    /// The mode of a file of this kind with these permission bits.
    pub fn mode(self, permissions: u32) -> u32 {
        let kind = match self {
            Self::Regular => 0,
            Self::Directory => 1,
            Self::Symlink => 2,
        };
        (kind << KIND_SHIFT) | (permissions & PERMISSIONS)
    }
}

// Next and what other classes call the index.
const HEAD_LEN: usize = 8;
const KIND_SHIFT: u32 = 12;
const PERMISSIONS: u32 = 0o7777;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::security::Sid;
    use crate::info::{DirectoryWriter, FileInfoClass};

    fn info() -> PosixInfo {
        PosixInfo {
            creation_time: FileTime(1),
            last_access_time: FileTime(2),
            last_write_time: FileTime(3),
            change_time: FileTime(4),
            end_of_file: 5,
            allocation_size: 4096,
            attributes: FileAttributes::ARCHIVE,
            inode: 0x0102_0304_0506_0708,
            device: 0x0809,
            facts: PosixResponse {
                links: 2,
                reparse_tag: 0,
                mode: PosixKind::Directory.mode(0o755),
                owner: Sid::unix_user(1000),
                group: Sid::unix_group(100),
            },
        }
    }

    // Typed from struct smb2_posix_info of Linux, which cifs.ko lays over a listing.
    const GOLDEN: &[u8] =
        b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\
        \x05\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\x20\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\
        \x09\x08\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\xed\x11\0\0\
        \x01\x02\0\0\0\0\0\x16\x01\0\0\0\xe8\x03\0\0\x01\x02\0\0\0\0\0\x16\x02\0\0\0\x64\0\0\0";

    #[test]
    fn the_fields_lie_where_linux_looks_for_them() {
        let mut out = Vec::new();
        info().emit(&mut out);
        assert_eq!(out, GOLDEN);
        assert_eq!(PosixInfo::parse(GOLDEN), Ok(info()));
        for len in 0..GOLDEN.len() {
            assert!(PosixInfo::parse(&GOLDEN[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn a_listing_is_read_as_it_was_written() {
        let entry = |name| PosixEntry { info: info(), name: Name::new(name).unwrap() };
        let mut out = Vec::new();
        let len = 2 * (8 + GOLDEN.len() + 4 + 8);
        let mut writer = DirectoryWriter::new(FileInfoClass::POSIX, &out, len).unwrap();
        assert!(writer.push_posix(&mut out, &entry("a:b")));
        assert!(writer.push_posix(&mut out, &entry("*")));
        assert!(!writer.push_posix(&mut out, &entry("c")));
        assert_eq!(out[8..8 + GOLDEN.len()], *GOLDEN);
        assert_eq!(PosixEntry::parse_list(&out), Ok(vec![entry("a:b"), entry("*")]));
    }
}
