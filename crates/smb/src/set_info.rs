//! SET_INFO: changing metadata.
//!
//! ```text
//!  request                                                               response
//!  64   66     67      68       72       74  76           80         96  64  66
//!  +----+------+-------+--------+--------+---+------------+----------+-- +---+
//!  | 33 | type | class | buffer | buffer | 0 | additional | file id  |   | 2 |
//!  |    |      |       | length | offset |   |            |          |   +---+
//!  +----+------+-------+--------+--------+---+------------+----------+--
//! ```
//!
//! Spec: MS-SMB2 §2.2.39 and §2.2.40.

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
    buffer_length: U32,
    buffer_offset: U16,
    reserved: U16,
    additional: U32,
    file_id: WireFileId,
}

const _: () = assert!(size_of::<Wire>() == 32);

/// Changes metadata.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SetInfoRequest<'a> {
    /// File, file system, security or quota.
    pub info_type: InfoType,
    /// Which structure.
    pub class: u8,
    /// For security: which parts.
    pub additional: SecurityInformation,
    /// Which open.
    pub file_id: FileId,
    /// The structure.
    pub buffer: &'a [u8],
}

impl<'a> SetInfoRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &'a [u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<Wire>(pdu, 33)?;
        let (offset, length) = (wire.buffer_offset.get(), wire.buffer_length.get());
        Ok(Self {
            info_type: InfoType(wire.info_type),
            class: wire.class,
            additional: SecurityInformation::from_bits_retain(wire.additional.get()),
            file_id: wire.file_id.into(),
            buffer: wire::pdu_buffer::<Wire>(pdu, offset, length, Field::Input)?,
        })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(
            out,
            &Wire {
                structure_size: U16::new(33),
                info_type: self.info_type.0,
                class: self.class,
                buffer_length: U32::new(wire::length32(self.buffer.len())),
                buffer_offset: U16::new(BUFFER),
                reserved: U16::new(0),
                additional: U32::new(self.additional.bits()),
                file_id: self.file_id.into(),
            },
        );
        wire::put_variable(out, self.buffer);
    }
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireResponse {
    structure_size: U16,
}

/// It is changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SetInfoResponse;

impl SetInfoResponse {
    /// Reads a response.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        wire::body::<WireResponse>(pdu, 2)?;
        Ok(Self)
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(out, &WireResponse { structure_size: U16::new(2) });
    }
}

const BUFFER: u16 = 96;
