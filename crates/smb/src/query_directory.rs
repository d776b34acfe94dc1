//! QUERY_DIRECTORY request. The response is [`crate::OutputResponse`] with entries of a directory
//! class of [`crate::info`].
//!
//! ```text
//!  64   66      67      68      72         88       90       92         96
//!  +----+-------+-------+-------+----------+--------+--------+----------+---------
//!  | 33 | class | flags | index | file id  | pattern| pattern| output   | pattern
//!  |    |       |       |       |          | offset | length | max      |
//!  +----+-------+-------+-------+----------+--------+--------+----------+---------
//! ```
//!
//! Spec: MS-SMB2 §2.2.33.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::dtyp::Name;
use crate::header::{FileId, WireFileId};
use crate::info::FileInfoClass;
use crate::parse_error::{Field, ParseError};
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    structure_size: U16,
    class: u8,
    flags: u8,
    file_index: U32,
    file_id: WireFileId,
    pattern_offset: U16,
    pattern_length: U16,
    output_length_max: U32,
}

const _: () = assert!(size_of::<Wire>() == 32);

/// Lists the next entries of a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QueryDirectoryRequest {
    /// Format of the entries.
    pub class: FileInfoClass,
    /// Where to go on.
    pub flags: QueryDirectoryFlags,
    /// With INDEX_SPECIFIED: from where.
    pub file_index: u32,
    /// Which open.
    pub file_id: FileId,
    /// Which names; `*` and `?` as MS-FSA §2.1.4.4 has them.
    pub pattern: Name,
    /// Most bytes of the answer.
    pub output_length_max: u32,
}

impl QueryDirectoryRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<Wire>(pdu, 33)?;
        let (offset, length) = (wire.pattern_offset.get(), wire.pattern_length.get());
        let pattern = wire::pdu_buffer::<Wire>(pdu, offset, length, Field::Name)?;
        Ok(Self {
            class: FileInfoClass(wire.class),
            flags: QueryDirectoryFlags::from_bits_retain(wire.flags),
            file_index: wire.file_index.get(),
            file_id: wire.file_id.into(),
            pattern: Name::parse(pattern)?,
            output_length_max: wire.output_length_max.get(),
        })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(
            out,
            &Wire {
                structure_size: U16::new(33),
                class: self.class.0,
                flags: self.flags.bits(),
                file_index: U32::new(self.file_index),
                file_id: self.file_id.into(),
                pattern_offset: U16::new(96),
                pattern_length: U16::new(wire::length16(self.pattern.wire_len())),
                output_length_max: U32::new(self.output_length_max),
            },
        );
        if self.pattern.emit(out) == 0 {
            wire::put_variable(out, &[]);
        }
    }
}

bitflags::bitflags! {
    /// Where a listing goes on.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct QueryDirectoryFlags: u8 {
        /// From the beginning.
        const RESTART_SCANS = 0x01;
        /// One entry only.
        const RETURN_SINGLE_ENTRY = 0x02;
        /// From `file_index`.
        const INDEX_SPECIFIED = 0x04;
        /// From the beginning, with a new pattern.
        const REOPEN = 0x10;
        const _ = !0;
    }
}
