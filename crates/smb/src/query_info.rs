//! QUERY_INFO request. The response is [`crate::OutputResponse`] in the format of the class.
//!
//! ```text
//!  64   66     67      68         72       74  76       80           84      88         104
//!  +----+------+-------+----------+--------+---+--------+------------+-------+----------+------
//!  | 41 | type | class | output   | input  | 0 | input  | additional | flags | file id  | input
//!  |    |      |       | max      | offset |   | length |            |       |          |
//!  +----+------+-------+----------+--------+---+--------+------------+-------+----------+------
//! ```
//!
//! Spec: MS-SMB2 §2.2.37.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::header::{FileId, WireFileId};
use crate::info::{InfoType, SecurityInformation};
use crate::parse_error::{Field, ParseError};
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    structure_size: U16,
    info_type: u8,
    class: u8,
    output_length_max: U32,
    input_offset: U16,
    reserved: U16,
    input_length: U32,
    additional: U32,
    flags: U32,
    file_id: WireFileId,
}

const _: () = assert!(size_of::<Wire>() == 40);

/// Asks for metadata.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QueryInfoRequest<'a> {
    /// File, file system, security or quota.
    pub info_type: InfoType,
    /// Which structure; the meaning of the number depends on the type
    /// ([`crate::info::FileInfoClass`], [`crate::info::FsInfoClass`]).
    pub class: u8,
    /// Most bytes of the answer.
    pub output_length_max: u32,
    /// For security: which parts.
    pub additional: SecurityInformation,
    /// For extended attributes: restart, single, index given.
    pub flags: u32,
    /// Which open.
    pub file_id: FileId,
    /// A list of attribute names, or a quota query.
    pub input: &'a [u8],
}

impl<'a> QueryInfoRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &'a [u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<Wire>(pdu, 41)?;
        let (offset, length) = (wire.input_offset.get(), wire.input_length.get());
        Ok(Self {
            info_type: InfoType(wire.info_type),
            class: wire.class,
            output_length_max: wire.output_length_max.get(),
            additional: SecurityInformation::from_bits_retain(wire.additional.get()),
            flags: wire.flags.get(),
            file_id: wire.file_id.into(),
            input: wire::pdu_buffer::<Wire>(pdu, offset, length, Field::Input)?,
        })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let input_offset = if self.input.is_empty() { 0 } else { BUFFER };
        wire::put(
            out,
            &Wire {
                structure_size: U16::new(41),
                info_type: self.info_type.0,
                class: self.class,
                output_length_max: U32::new(self.output_length_max),
                input_offset: U16::new(input_offset),
                reserved: U16::new(0),
                input_length: U32::new(wire::length32(self.input.len())),
                additional: U32::new(self.additional.bits()),
                flags: U32::new(self.flags),
                file_id: self.file_id.into(),
            },
        );
        wire::put_variable(out, self.input);
    }
}

const BUFFER: u16 = 104;
