//! SESSION_SETUP: one leg of the GSS exchange, and its answer.
//!
//! ```text
//!  request                                                                  88
//!  64   66      67     68             72        76       78       80        |
//!  +----+-------+------+--------------+---------+--------+--------+---------+-------
//!  | 25 | flags | mode | capabilities | channel | token  | token  | previous| token
//!  |    |       |      |              | = 0     | offset | length | session |
//!  +----+-------+------+--------------+---------+--------+--------+---------+-------
//!  response
//!  64  66      68       70       72
//!  +---+-------+--------+--------+-------
//!  | 9 | flags | token  | token  | token
//!  |   |       | offset | length |
//!  +---+-------+--------+--------+-------
//! ```
//!
//! Spec: MS-SMB2 §2.2.5 and §2.2.6.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::header::SessionId;
use crate::negotiate::{Capabilities, SecurityMode};
use crate::parse_error::{Field, ParseError};
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireRequest {
    structure_size: U16,
    flags: u8,
    security_mode: u8,
    capabilities: U32,
    channel: U32,
    token_offset: U16,
    token_length: U16,
    previous_session_id: U64,
}

const _: () = assert!(size_of::<WireRequest>() == 24);

/// One leg from the client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SessionSetupRequest<'a> {
    /// Binds this connection to an existing session (multichannel).
    pub binding: bool,
    /// Signing policy; only the low eight bits travel.
    pub security_mode: SecurityMode,
    /// Capabilities; only DFS means something here.
    pub capabilities: Capabilities,
    /// A session of the same user, lost with its connection, to be ended.
    pub previous_session_id: SessionId,
    /// GSS token.
    pub token: &'a [u8],
}

impl<'a> SessionSetupRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &'a [u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<WireRequest>(pdu, 25)?;
        Ok(Self {
            binding: wire.flags & BINDING != 0,
            security_mode: SecurityMode::from_bits_retain(u16::from(wire.security_mode)),
            capabilities: Capabilities::from_bits_retain(wire.capabilities.get()),
            previous_session_id: SessionId(wire.previous_session_id.get()),
            token: wire::pdu_buffer::<WireRequest>(
                pdu,
                wire.token_offset.get(),
                wire.token_length.get(),
                Field::SecurityBuffer,
            )?,
        })
    }

    /// Appends the body behind a header.
    ///
    /// # Panics
    /// When the token is over 64 KiB.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let [security_mode, _] = self.security_mode.bits().to_le_bytes();
        wire::put(
            out,
            &WireRequest {
                structure_size: U16::new(25),
                flags: if self.binding { BINDING } else { 0 },
                security_mode,
                capabilities: U32::new(self.capabilities.bits()),
                channel: U32::new(0),
                token_offset: U16::new(88),
                token_length: U16::new(wire::length16(self.token.len())),
                previous_session_id: U64::new(self.previous_session_id.0),
            },
        );
        wire::put_variable(out, self.token);
    }
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireResponse {
    structure_size: U16,
    flags: U16,
    token_offset: U16,
    token_length: U16,
}

/// One leg from the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SessionSetupResponse<'a> {
    /// What kind of session it became.
    pub flags: SessionFlags,
    /// GSS token.
    pub token: &'a [u8],
}

impl<'a> SessionSetupResponse<'a> {
    /// Reads a response.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &'a [u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<WireResponse>(pdu, 9)?;
        Ok(Self {
            flags: SessionFlags::from_bits_retain(wire.flags.get()),
            token: wire::pdu_buffer::<WireResponse>(
                pdu,
                wire.token_offset.get(),
                wire.token_length.get(),
                Field::SecurityBuffer,
            )?,
        })
    }

    /// Appends the body behind a header.
    ///
    /// # Panics
    /// When the token is over 64 KiB.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(
            out,
            &WireResponse {
                structure_size: U16::new(9),
                flags: U16::new(self.flags.bits()),
                token_offset: U16::new(72),
                token_length: U16::new(wire::length16(self.token.len())),
            },
        );
        out.extend_from_slice(self.token);
    }
}

bitflags::bitflags! {
    /// SessionFlags of a response.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct SessionFlags: u16 {
        /// Logged on as guest.
        const GUEST = 0x0001;
        /// Logged on as nobody.
        const NULL = 0x0002;
        /// Every message of the session is to be encrypted.
        const ENCRYPT_DATA = 0x0004;
        const _ = !0;
    }
}

const BINDING: u8 = 1;
