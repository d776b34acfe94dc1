//! CLOSE: ending an open, on wish with its last attributes.
//!
//! ```text
//!  request                              response
//!  64   66      68   72         88     64   66      68  72       104        112   120      124
//!  +----+-------+----+----------+      +----+-------+---+--------+----------+-----+--------+
//!  | 24 | flags | 0  | file id  |      | 60 | flags | 0 | 4 times| allocated| eof | attrs  |
//!  +----+-------+----+----------+      +----+-------+---+--------+----------+-----+--------+
//! ```
//!
//! Spec: MS-SMB2 §2.2.15 and §2.2.16.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::dtyp::FileTime;
use crate::header::{FileId, WireFileId};
use crate::info::FileAttributes;
use crate::parse_error::ParseError;
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireRequest {
    structure_size: U16,
    flags: U16,
    reserved: U32,
    file_id: WireFileId,
}

const _: () = assert!(size_of::<WireRequest>() == 24);

/// Ends an open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CloseRequest {
    /// Wants the attributes in the answer.
    pub query_attributes: bool,
    /// Which open.
    pub file_id: FileId,
}

impl CloseRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<WireRequest>(pdu, 24)?;
        Ok(Self {
            query_attributes: wire.flags.get() & POSTQUERY_ATTRIB != 0,
            file_id: wire.file_id.into(),
        })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(
            out,
            &WireRequest {
                structure_size: U16::new(24),
                flags: U16::new(if self.query_attributes { POSTQUERY_ATTRIB } else { 0 }),
                reserved: U32::new(0),
                file_id: self.file_id.into(),
            },
        );
    }
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireResponse {
    structure_size: U16,
    flags: U16,
    reserved: U32,
    creation_time: U64,
    last_access_time: U64,
    last_write_time: U64,
    change_time: U64,
    allocation_size: U64,
    end_of_file: U64,
    attributes: U32,
}

const _: () = assert!(size_of::<WireResponse>() == 60);

/// The open is gone. The attributes are there if they were asked for and could be had.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CloseResponse {
    /// Attributes at the moment of closing.
    pub attributes: Option<CloseAttributes>,
}

/// Attributes of a file as CLOSE reports them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CloseAttributes {
    /// Birth.
    pub creation_time: FileTime,
    /// Last read.
    pub last_access_time: FileTime,
    /// Last change of data.
    pub last_write_time: FileTime,
    /// Last change of data or metadata.
    pub change_time: FileTime,
    /// Bytes reserved on the medium.
    pub allocation_size: u64,
    /// Length.
    pub end_of_file: u64,
    /// Attributes.
    pub attributes: FileAttributes,
}

impl CloseResponse {
    /// Reads a response.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<WireResponse>(pdu, 60)?;
        let asked = wire.flags.get() & POSTQUERY_ATTRIB != 0;
        let attributes = asked.then(|| CloseAttributes {
            creation_time: FileTime(wire.creation_time.get()),
            last_access_time: FileTime(wire.last_access_time.get()),
            last_write_time: FileTime(wire.last_write_time.get()),
            change_time: FileTime(wire.change_time.get()),
            allocation_size: wire.allocation_size.get(),
            end_of_file: wire.end_of_file.get(),
            attributes: FileAttributes::from_bits_retain(wire.attributes.get()),
        });
        Ok(Self { attributes })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let time = |of: fn(&CloseAttributes) -> FileTime| {
            U64::new(self.attributes.as_ref().map_or(0, |found| of(found).0))
        };
        let found = self.attributes;
        wire::put(
            out,
            &WireResponse {
                structure_size: U16::new(60),
                flags: U16::new(if found.is_some() { POSTQUERY_ATTRIB } else { 0 }),
                reserved: U32::new(0),
                creation_time: time(|found| found.creation_time),
                last_access_time: time(|found| found.last_access_time),
                last_write_time: time(|found| found.last_write_time),
                change_time: time(|found| found.change_time),
                allocation_size: U64::new(found.map_or(0, |found| found.allocation_size)),
                end_of_file: U64::new(found.map_or(0, |found| found.end_of_file)),
                attributes: U32::new(found.map_or(0, |found| found.attributes.bits())),
            },
        );
    }
}

const POSTQUERY_ATTRIB: u16 = 1;
