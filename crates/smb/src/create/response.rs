//! CREATE response.
//!
//! ```text
//!  64   66     67      68       72       104         112   120     124   128        144
//!  +----+------+-------+--------+--------+-----------+-----+-------+-----+----------+------
//!  | 89 |oplock| flags | action | 4 times| allocated | eof | attrs | 0   | file id  | ...
//!  +----+------+-------+--------+--------+-----------+-----+-------+-----+----------+------
//!  144               148               152
//!  +-----------------+-----------------+----------
//!  | contexts offset | contexts length | contexts
//!  +-----------------+-----------------+----------
//! ```
//!
//! Spec: MS-SMB2 §2.2.14.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CreateAction, CreateResponseContext, OplockLevel, chain};
use crate::dtyp::FileTime;
use crate::header::{FileId, WireFileId};
use crate::info::FileAttributes;
use crate::parse_error::{Field, ParseError};
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    structure_size: zerocopy::little_endian::U16,
    oplock_level: u8,
    flags: u8,
    action: U32,
    creation_time: U64,
    last_access_time: U64,
    last_write_time: U64,
    change_time: U64,
    allocation_size: U64,
    end_of_file: U64,
    attributes: U32,
    reserved: U32,
    file_id: WireFileId,
    contexts_offset: U32,
    contexts_length: U32,
}

const _: () = assert!(size_of::<Wire>() == 88);

/// An open.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CreateResponse<'a> {
    /// Caching right granted.
    pub oplock_level: OplockLevel,
    /// A reparse point stood in the path (3.x).
    pub reparse_point: bool,
    /// What was done.
    pub action: CreateAction,
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
    /// Its name from here on.
    pub file_id: FileId,
    /// Contexts.
    pub contexts: Vec<CreateResponseContext<'a>>,
}

impl<'a> CreateResponse<'a> {
    /// Reads a response.
    ///
    /// # Errors
    /// Malformed, contexts included.
    pub fn parse(pdu: &'a [u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<Wire>(pdu, 89)?;
        let (offset, length) = (wire.contexts_offset.get(), wire.contexts_length.get());
        let contexts = wire::pdu_buffer::<Wire>(pdu, offset, length, Field::Context)?;
        Ok(Self {
            oplock_level: OplockLevel(wire.oplock_level),
            reparse_point: wire.flags & REPARSE_POINT != 0,
            action: CreateAction(wire.action.get()),
            creation_time: FileTime(wire.creation_time.get()),
            last_access_time: FileTime(wire.last_access_time.get()),
            last_write_time: FileTime(wire.last_write_time.get()),
            change_time: FileTime(wire.change_time.get()),
            allocation_size: wire.allocation_size.get(),
            end_of_file: wire.end_of_file.get(),
            attributes: FileAttributes::from_bits_retain(wire.attributes.get()),
            file_id: wire.file_id.into(),
            contexts: chain::parse(contexts, CreateResponseContext::parse)?,
        })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let body = out.len();
        wire::put(
            out,
            &Wire {
                structure_size: 89.into(),
                oplock_level: self.oplock_level.0,
                flags: if self.reparse_point { REPARSE_POINT } else { 0 },
                action: U32::new(self.action.0),
                creation_time: U64::new(self.creation_time.0),
                last_access_time: U64::new(self.last_access_time.0),
                last_write_time: U64::new(self.last_write_time.0),
                change_time: U64::new(self.change_time.0),
                allocation_size: U64::new(self.allocation_size),
                end_of_file: U64::new(self.end_of_file),
                attributes: U32::new(self.attributes.bits()),
                reserved: U32::new(0),
                file_id: self.file_id.into(),
                contexts_offset: U32::new(0),
                contexts_length: U32::new(0),
            },
        );
        chain::emit_all(&self.contexts, out, body, CONTEXTS_OFFSET, CreateResponseContext::emit);
    }
}

const REPARSE_POINT: u8 = 1;
const CONTEXTS_OFFSET: usize = 80;
