//! NEGOTIATE response.
//!
//! ```text
//!  64   66     68       70       72            88             92         96      100      104
//!  +----+------+--------+--------+-------------+--------------+----------+-------+--------+---
//!  | 65 | mode | dialect| context| server GUID | capabilities | transact | read  | write  |
//!  |    |      |        | count  |             |              | max      | max   | max    |
//!  +----+------+--------+--------+-------------+--------------+----------+-------+--------+---
//!  104           112          120      122      124             128
//!  +-------------+------------+--------+--------+---------------+--------------+-----------
//!  | system time | start time | token  | token  | context       | token        | contexts
//!  |             |            | offset | length | offset        |              |
//!  +-------------+------------+--------+--------+---------------+--------------+-----------
//! ```
//!
//! Spec: MS-SMB2 §2.2.4.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Capabilities, Dialect, NegotiateContext, SecurityMode};
use crate::dtyp::{FileTime, Guid};
use crate::header::Header;
use crate::parse_error::{Field, ParseError};
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    structure_size: U16,
    security_mode: U16,
    dialect: U16,
    context_count: U16,
    server_guid: [u8; 16],
    capabilities: U32,
    transact_size_max: U32,
    read_size_max: U32,
    write_size_max: U32,
    system_time: U64,
    start_time: U64,
    token_offset: U16,
    token_length: U16,
    context_offset: U32,
}

const _: () = assert!(size_of::<Wire>() == 64);

/// What the server chose.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NegotiateResponse<'a> {
    /// Signing policy.
    pub security_mode: SecurityMode,
    /// The dialect from here on.
    pub dialect: Dialect,
    /// The GUID by which the server identifies itself.
    pub server_guid: Guid,
    /// Capabilities.
    pub capabilities: Capabilities,
    /// Largest buffer of QUERY_INFO, QUERY_DIRECTORY, SET_INFO, IOCTL and CHANGE_NOTIFY.
    pub transact_size_max: u32,
    /// Largest READ.
    pub read_size_max: u32,
    /// Largest WRITE.
    pub write_size_max: u32,
    /// The server's clock.
    pub system_time: FileTime,
    /// When it started; zero unless the administrator wants it known.
    pub start_time: FileTime,
    /// First GSS token (the list of mechanisms).
    pub token: &'a [u8],
    /// Contexts of 3.1.1.
    pub contexts: Vec<NegotiateContext<'a>>,
}

impl<'a> NegotiateResponse<'a> {
    /// Reads a response.
    ///
    /// # Errors
    /// Malformed, or more of something than its limit.
    pub fn parse(pdu: &'a [u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<Wire>(pdu, STRUCTURE_SIZE)?;
        let dialect = Dialect(wire.dialect.get());
        let fixed = Header::LEN + size_of::<Wire>();
        let contexts = if dialect == Dialect::SMB_3_1_1 {
            let offset = wire.context_offset.get();
            NegotiateContext::parse_list(pdu, fixed, offset, wire.context_count.get())?
        } else {
            Vec::new()
        };
        Ok(Self {
            security_mode: SecurityMode::from_bits_retain(wire.security_mode.get()),
            dialect,
            server_guid: Guid(wire.server_guid),
            capabilities: Capabilities::from_bits_retain(wire.capabilities.get()),
            transact_size_max: wire.transact_size_max.get(),
            read_size_max: wire.read_size_max.get(),
            write_size_max: wire.write_size_max.get(),
            system_time: FileTime(wire.system_time.get()),
            start_time: FileTime(wire.start_time.get()),
            token: wire::pdu_buffer::<Wire>(
                pdu,
                wire.token_offset.get(),
                wire.token_length.get(),
                Field::SecurityBuffer,
            )?,
            contexts,
        })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let body = out.len();
        let pdu_start = body - Header::LEN;
        let contexts: &[_] = if self.dialect == Dialect::SMB_3_1_1 { &self.contexts } else { &[] };
        wire::put(
            out,
            &Wire {
                structure_size: U16::new(STRUCTURE_SIZE),
                security_mode: U16::new(self.security_mode.bits()),
                dialect: U16::new(self.dialect.0),
                context_count: U16::new(wire::length16(contexts.len())),
                server_guid: self.server_guid.0,
                capabilities: U32::new(self.capabilities.bits()),
                transact_size_max: U32::new(self.transact_size_max),
                read_size_max: U32::new(self.read_size_max),
                write_size_max: U32::new(self.write_size_max),
                system_time: U64::new(self.system_time.0),
                start_time: U64::new(self.start_time.0),
                token_offset: U16::new(TOKEN_OFFSET),
                token_length: U16::new(wire::length16(self.token.len())),
                context_offset: U32::new(0),
            },
        );
        out.extend_from_slice(self.token);
        if !contexts.is_empty() {
            wire::pad(out, pdu_start, 8);
            let offset = wire::length32(out.len() - pdu_start);
            wire::patch_u32(out, body + CONTEXT_OFFSET, offset);
            NegotiateContext::emit_list(contexts, out, pdu_start);
        }
    }
}

const STRUCTURE_SIZE: u16 = 65;
const TOKEN_OFFSET: u16 = 128;
const CONTEXT_OFFSET: usize = 60;
