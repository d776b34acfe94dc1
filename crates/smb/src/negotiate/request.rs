//! NEGOTIATE request.
//!
//! ```text
//!  64   66       68       70   72             76            92                     100
//!  +----+--------+--------+----+--------------+-------------+----------------------+----------
//!  | 36 | dialect| secur. | 0  | capabilities | client GUID | context offset, count| dialects
//!  |    | count  | mode   |    |              |             |  (start time before) | contexts
//!  +----+--------+--------+----+--------------+-------------+----------------------+----------
//! ```
//!
//! Spec: MS-SMB2 §2.2.3.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Capabilities, Dialect, NegotiateContext, SecurityMode};
use crate::dtyp::Guid;
use crate::header::Header;
use crate::parse_error::{Field, ParseError};
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    structure_size: U16,
    dialect_count: U16,
    security_mode: U16,
    reserved: U16,
    capabilities: U32,
    client_guid: [u8; 16],
    context_offset: U32,
    context_count: U16,
    reserved2: U16,
}

const _: () = assert!(size_of::<Wire>() == 36);

/// What a client can do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NegotiateRequest<'a> {
    /// Signing policy.
    pub security_mode: SecurityMode,
    /// Capabilities.
    pub capabilities: Capabilities,
    /// The GUID by which the client identifies itself.
    pub client_guid: Guid,
    /// Dialects in the client's order, at least one.
    pub dialects: Vec<Dialect>,
    /// Contexts; only read and sent when 3.1.1 is among the dialects.
    pub contexts: Vec<NegotiateContext<'a>>,
}

impl<'a> NegotiateRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// Malformed, no dialect, or more of something than its limit.
    pub fn parse(pdu: &'a [u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<Wire>(pdu, STRUCTURE_SIZE)?;
        let count = usize::from(wire.dialect_count.get());
        // MS-SMB2 §3.3.5.4: no dialect at all is STATUS_INVALID_PARAMETER.
        if count == 0 {
            return Err(ParseError::PeerValue { field: Field::Dialects, value: 0 });
        }
        wire::limit(Field::Dialects, count, DIALECTS_MAX)?;
        let at = Header::LEN + size_of::<Wire>();
        let need = at + 2 * count;
        let bytes = pdu.get(at..need).ok_or(ParseError::PeerTruncated { need, got: pdu.len() })?;
        let (dialects, _) = bytes.as_chunks::<2>();
        let dialects: Vec<_> =
            dialects.iter().map(|bytes| Dialect(u16::from_le_bytes(*bytes))).collect();
        let contexts = if dialects.contains(&Dialect::SMB_3_1_1) {
            let offset = wire.context_offset.get();
            NegotiateContext::parse_list(pdu, need, offset, wire.context_count.get())?
        } else {
            Vec::new()
        };
        Ok(Self {
            security_mode: SecurityMode::from_bits_retain(wire.security_mode.get()),
            capabilities: Capabilities::from_bits_retain(wire.capabilities.get()),
            client_guid: Guid(wire.client_guid),
            dialects,
            contexts,
        })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let body = out.len();
        let pdu_start = body - Header::LEN;
        let contexts: &[_] =
            if self.dialects.contains(&Dialect::SMB_3_1_1) { &self.contexts } else { &[] };
        wire::put(
            out,
            &Wire {
                structure_size: U16::new(STRUCTURE_SIZE),
                dialect_count: U16::new(wire::length16(self.dialects.len())),
                security_mode: U16::new(self.security_mode.bits()),
                reserved: U16::new(0),
                capabilities: U32::new(self.capabilities.bits()),
                client_guid: self.client_guid.0,
                context_offset: U32::new(0),
                context_count: U16::new(wire::length16(contexts.len())),
                reserved2: U16::new(0),
            },
        );
        for dialect in &self.dialects {
            out.extend_from_slice(&dialect.0.to_le_bytes());
        }
        if !contexts.is_empty() {
            wire::pad(out, pdu_start, 8);
            let offset = wire::length32(out.len() - pdu_start);
            wire::patch_u32(out, body + CONTEXT_OFFSET, offset);
            NegotiateContext::emit_list(contexts, out, pdu_start);
        }
    }
}

/// Dialects of one request; five exist.
pub const DIALECTS_MAX: usize = 64;

const STRUCTURE_SIZE: u16 = 36;
const CONTEXT_OFFSET: usize = 28;
