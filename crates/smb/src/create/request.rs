//! CREATE request.
//!
//! ```text
//!  64   66  67     68     72           80        88      92      96     100
//!  +----+---+------+------+------------+---------+-------+-------+------+------
//!  | 57 | 0 |oplock| imp. | create fl. | 0       | access| attrs | share| ...
//!  +----+---+------+------+------------+---------+-------+-------+------+------
//!  100           104       108      110      112        116        120
//!  +-------------+---------+--------+--------+----------+----------+------+----------
//!  | disposition | options | name   | name   | contexts | contexts | name | contexts
//!  |             |         | offset | length | offset   | length   |      |
//!  +-------------+---------+--------+--------+----------+----------+------+----------
//! ```
//!
//! Spec: MS-SMB2 §2.2.13.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequestContext, ImpersonationLevel,
    OplockLevel, ShareAccess, chain,
};
use crate::dtyp::Name;
use crate::header::Header;
use crate::info::FileAttributes;
use crate::parse_error::{Field, ParseError};
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    structure_size: U16,
    security_flags: u8,
    oplock_level: u8,
    impersonation: U32,
    create_flags: U64,
    reserved: U64,
    desired_access: U32,
    attributes: U32,
    share_access: U32,
    disposition: U32,
    options: U32,
    name_offset: U16,
    name_length: U16,
    contexts_offset: U32,
    contexts_length: U32,
}

const _: () = assert!(size_of::<Wire>() == 56);

/// Opens or creates a file, directory or pipe.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CreateRequest<'a> {
    /// Caching right asked for.
    pub oplock_level: OplockLevel,
    /// How far the server may act for the client.
    pub impersonation: ImpersonationLevel,
    /// Rights asked for.
    pub desired_access: AccessMask,
    /// Attributes of a new file.
    pub attributes: FileAttributes,
    /// What others may do.
    pub share_access: ShareAccess,
    /// What to do when it exists, and when not.
    pub disposition: CreateDisposition,
    /// How to open.
    pub options: CreateOptions,
    /// Path below the share with backslashes, empty for its root. As sent: not normalised, not
    /// checked for `..`, wildcards or stream names.
    pub name: Name,
    /// Contexts.
    pub contexts: Vec<CreateRequestContext<'a>>,
}

impl<'a> CreateRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// Malformed, contexts included.
    pub fn parse(pdu: &'a [u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<Wire>(pdu, 57)?;
        let (offset, length) = (wire.name_offset.get(), wire.name_length.get());
        let name = wire::pdu_buffer::<Wire>(pdu, offset, length, Field::Name)?;
        let (offset, length) = (wire.contexts_offset.get(), wire.contexts_length.get());
        if length != 0 && !offset.is_multiple_of(8) {
            return Err(ParseError::PeerAlignment { field: Field::Context, offset, align: 8 });
        }
        let contexts = wire::pdu_buffer::<Wire>(pdu, offset, length, Field::Context)?;
        Ok(Self {
            oplock_level: OplockLevel(wire.oplock_level),
            impersonation: ImpersonationLevel(wire.impersonation.get()),
            desired_access: AccessMask::from_bits_retain(wire.desired_access.get()),
            attributes: FileAttributes::from_bits_retain(wire.attributes.get()),
            share_access: ShareAccess::from_bits_retain(wire.share_access.get()),
            disposition: CreateDisposition(wire.disposition.get()),
            options: CreateOptions::from_bits_retain(wire.options.get()),
            name: Name::parse(name)?,
            contexts: chain::parse(contexts, CreateRequestContext::parse)?,
        })
    }

    /// Appends the body behind a header.
    ///
    /// # Panics
    /// When an opaque context is over 4 GiB or its name over 64 KiB.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let body = out.len();
        wire::put(
            out,
            &Wire {
                structure_size: U16::new(57),
                security_flags: 0,
                oplock_level: self.oplock_level.0,
                impersonation: U32::new(self.impersonation.0),
                create_flags: U64::new(0),
                reserved: U64::new(0),
                desired_access: U32::new(self.desired_access.bits()),
                attributes: U32::new(self.attributes.bits()),
                share_access: U32::new(self.share_access.bits()),
                disposition: U32::new(self.disposition.0),
                options: U32::new(self.options.bits()),
                name_offset: U16::new(NAME_OFFSET),
                name_length: U16::new(wire::length16(self.name.wire_len())),
                contexts_offset: U32::new(0),
                contexts_length: U32::new(0),
            },
        );
        if self.name.emit(out) == 0 {
            wire::put_variable(out, &[]);
        }
        chain::emit_all(&self.contexts, out, body, CONTEXTS_OFFSET, CreateRequestContext::emit);
    }
}

const NAME_OFFSET: u16 = 120;
const CONTEXTS_OFFSET: usize = 48;

const _: () = assert!(Header::LEN + size_of::<Wire>() == 120);
