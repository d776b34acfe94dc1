//! The connection-oriented PDUs of DCE/RPC.
//!
//! ```text
//!  0     1     2      3       4                8          10        12        16
//!  +-----+-----+------+-------+----------------+----------+---------+---------+
//!  | 5   | 0   | type | flags | drep (10 0 0 0)| frag_len | auth_len| call_id |
//!  +-----+-----+------+-------+----------------+----------+---------+---------+
//!  bind:      max_xmit u16 | max_recv u16 | assoc_group u32 | count u8, 0 0 0 |
//!             each: context_id u16 | transfers u8, 0 | abstract (uuid, version u32) | transfer syntaxes
//!  bind_ack:  max_xmit u16 | max_recv u16 | assoc_group u32 | len u16, address, pad | count u8, 0 0 0 |
//!             each: result u16 | reason u16 | transfer syntax
//!  request:   alloc_hint u32 | context_id u16 | opnum u16 | [object uuid] | stub
//!  response:  alloc_hint u32 | context_id u16 | cancels u8, 0 | stub
//!  fault:     alloc_hint u32 | context_id u16 | cancels u8, 0 | status u32, 0 0 0 0
//! ```
//!
//! Spec: C706 §12.6, MS-RPCE §2.2.2.

use crate::ParseError;
use crate::parse_error::Field;
use crate::wire::{self, Reader};

/// What can be bound.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interface {
    /// Shares and the server itself: MS-SRVS §1.9.
    Srvsvc,
    /// The machine: MS-WKST §1.9.
    Wkssvc,
    /// Names and SIDs: MS-LSAD §1.9, MS-LSAT §1.9.
    Lsarpc,
}

impl Interface {
    const ALL: [Self; 3] = [Self::Srvsvc, Self::Wkssvc, Self::Lsarpc];

    /// By the name of its pipe, whatever its case.
    pub fn of_pipe(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|interface| interface.pipe().eq_ignore_ascii_case(name))
    }

    /// The name of its pipe.
    pub fn pipe(self) -> &'static str {
        match self {
            Self::Srvsvc => "srvsvc",
            Self::Wkssvc => "wkssvc",
            Self::Lsarpc => "lsarpc",
        }
    }

    /// Its UUID and version as they stand in a bind.
    fn syntax(self) -> [u8; SYNTAX_LEN] {
        match self {
            // 4b324fc8-1670-01d3-1278-5a47bf6ee188, version 3.0
            Self::Srvsvc => [
                0xc8, 0x4f, 0x32, 0x4b, 0x70, 0x16, 0xd3, 0x01, 0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e,
                0xe1, 0x88, 3, 0, 0, 0,
            ],
            // 6bffd098-a112-3610-9833-46c3f87e345a, version 1.0
            Self::Wkssvc => [
                0x98, 0xd0, 0xff, 0x6b, 0x12, 0xa1, 0x10, 0x36, 0x98, 0x33, 0x46, 0xc3, 0xf8, 0x7e,
                0x34, 0x5a, 1, 0, 0, 0,
            ],
            // 12345778-1234-abcd-ef00-0123456789ab, version 0.0
            Self::Lsarpc => [
                0x78, 0x57, 0x34, 0x12, 0x34, 0x12, 0xcd, 0xab, 0xef, 0x00, 0x01, 0x23, 0x45, 0x67,
                0x89, 0xab, 0, 0, 0, 0,
            ],
        }
    }
}

/// Why a call was not carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Fault(pub(super) u32);

impl Fault {
    /// nca_s_op_rng_error: no such call.
    pub(super) const NO_SUCH_CALL: Self = Self(0x1c01_0002);
    /// nca_s_unk_if: nothing is bound under that context.
    pub(super) const NOT_BOUND: Self = Self(0x1c01_0003);
    /// nca_s_proto_error: a request that is too long, or a PDU that has no place here.
    pub(super) const PROTOCOL: Self = Self(0x1c01_000b);
    /// nca_s_fault_context_mismatch: a handle that is not open.
    pub(super) const CONTEXT_MISMATCH: Self = Self(0x1c00_001a);
    /// RPC_X_BAD_STUB_DATA: the arguments do not parse.
    pub(super) const BAD_STUB_DATA: Self = Self(0x0000_06f7);
}

/// The first sixteen bytes of a PDU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Preamble {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) len: usize,
    pub(super) auth_len: u16,
    pub(super) call_id: u32,
}

impl Preamble {
    /// `None`: fewer bytes than a preamble are there.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, ParseError> {
        if bytes.len() < PREAMBLE_LEN {
            return Ok(None);
        }
        let mut reader = Reader::new(bytes);
        let [major, minor, kind, flags] = reader.array::<4>()?;
        let representation = reader.u32()?;
        let value = |value: u64| ParseError::PeerValue { field: Field::Data, value };
        if (major, minor) != (5, 0) {
            return Err(value(u64::from(major)));
        }
        // Little-endian numbers, ASCII characters, IEEE: what everybody sends.
        if representation != LITTLE_ENDIAN {
            return Err(value(u64::from(representation)));
        }
        let len = usize::from(reader.u16()?);
        if len < PREAMBLE_LEN {
            return Err(ParseError::PeerTruncated { need: PREAMBLE_LEN, got: len });
        }
        let (auth_len, call_id) = (reader.u16()?, reader.u32()?);
        Ok(Some(Self { kind, flags, len, auth_len, call_id }))
    }
}

/// What a client asks to bind.
#[derive(Debug)]
pub(super) struct Bind {
    /// Longest fragment the client takes.
    pub(super) fragment_max: u16,
    pub(super) group: u32,
    pub(super) contexts: Vec<Context>,
}

/// One interface under one number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    pub(super) id: u16,
    pub(super) interface: Option<Interface>,
    pub(super) has_ndr: bool,
}

impl Bind {
    /// Reads what follows the preamble.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(body);
        let _their_send_max = reader.u16()?;
        let fragment_max = reader.u16()?;
        let group = reader.u32()?;
        let count = reader.u32()? & 0xff;
        let count = usize::try_from(count).expect("one byte");
        wire::limit(Field::Interfaces, count, CONTEXTS_MAX)?;
        let mut contexts = Vec::with_capacity(count);
        for _ in 0..count {
            let id = reader.u16()?;
            let transfers = reader.u16()? & 0xff;
            let asked = reader.array::<SYNTAX_LEN>()?;
            let interface =
                Interface::ALL.into_iter().find(|interface| interface.syntax() == asked);
            let mut has_ndr = false;
            for _ in 0..transfers {
                has_ndr |= reader.array::<SYNTAX_LEN>()? == NDR;
            }
            contexts.push(Context { id, interface, has_ndr });
        }
        Ok(Self { fragment_max, group, contexts })
    }
}

/// One fragment of a call.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) context_id: u16,
    pub(super) opnum: u16,
    pub(super) stub: &'a [u8],
}

impl<'a> Request<'a> {
    /// Reads what follows the preamble.
    pub(super) fn parse(flags: u8, body: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(body);
        let _alloc_hint = reader.u32()?;
        let (context_id, opnum) = (reader.u16()?, reader.u16()?);
        if flags & OBJECT_UUID != 0 {
            reader.array::<16>()?;
        }
        Ok(Self { context_id, opnum, stub: reader.rest() })
    }
}

/// Answers a bind or an alteration of what is bound (`kind` tells them apart).
pub(super) fn bind_ack(kind: u8, call_id: u32, bind: &Bind, fragment_max: u16) -> Vec<u8> {
    let mut out = begin(kind, FIRST | LAST, call_id);
    out.extend_from_slice(&fragment_max.to_le_bytes());
    out.extend_from_slice(&fragment_max.to_le_bytes());
    // A group is for clients with several associations; nobody needs more than one here.
    out.extend_from_slice(&bind.group.max(1).to_le_bytes());
    let address: &[u8] = if kind == BIND_ACK { b"\\PIPE\\landfast\0" } else { b"" };
    out.extend_from_slice(&wire::length16(address.len()).to_le_bytes());
    out.extend_from_slice(address);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend_from_slice(&wire::length32(bind.contexts.len()).to_le_bytes());
    for context in &bind.contexts {
        let (reason, syntax) = match (context.interface, context.has_ndr) {
            (Some(_), true) => (None, NDR),
            (None, _) => (Some(NO_SUCH_INTERFACE), [0; SYNTAX_LEN]),
            (Some(_), false) => (Some(NO_SUCH_SYNTAX), [0; SYNTAX_LEN]),
        };
        let result = if reason.is_some() { PROVIDER_REJECTS } else { ACCEPTED };
        out.extend_from_slice(&result.to_le_bytes());
        out.extend_from_slice(&reason.unwrap_or_default().to_le_bytes());
        out.extend_from_slice(&syntax);
    }
    end(out)
}

/// Refuses a bind altogether.
pub(super) fn bind_nak(call_id: u32) -> Vec<u8> {
    let mut out = begin(BIND_NAK, FIRST | LAST, call_id);
    out.extend_from_slice(&AUTHENTICATION_UNKNOWN.to_le_bytes());
    // Versions supported: one, 5.0.
    out.extend_from_slice(&[1, 5, 0]);
    end(out)
}

/// A fault in the place of a response.
pub(super) fn fault(call_id: u32, context_id: u16, fault: Fault) -> Vec<u8> {
    let mut out = begin(FAULT, FIRST | LAST | DID_NOT_EXECUTE, call_id);
    out.extend_from_slice(&0_u32.to_le_bytes());
    out.extend_from_slice(&context_id.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&fault.0.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    end(out)
}

/// A response, cut into fragments of at most `fragment_max` bytes.
pub(super) fn response(
    call_id: u32,
    context_id: u16,
    stub: &[u8],
    fragment_max: u16,
) -> Vec<Vec<u8>> {
    // C706 §12.6.3.10: every part but the last is a multiple of eight.
    let room = (usize::from(fragment_max) - PREAMBLE_LEN - RESPONSE_FIXED) & !7;
    let pieces: Vec<&[u8]> = if stub.is_empty() { vec![&[]] } else { stub.chunks(room).collect() };
    let count = pieces.len();
    let mut left = stub.len();
    let mut fragments = Vec::with_capacity(count);
    for (index, piece) in pieces.into_iter().enumerate() {
        let first = if index == 0 { FIRST } else { 0 };
        let last = if index + 1 == count { LAST } else { 0 };
        let mut out = begin(RESPONSE, first | last, call_id);
        out.extend_from_slice(&wire::length32(left).to_le_bytes());
        out.extend_from_slice(&context_id.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(piece);
        left -= piece.len();
        fragments.push(end(out));
    }
    fragments
}

fn begin(kind: u8, flags: u8, call_id: u32) -> Vec<u8> {
    let mut out = vec![5, 0, kind, flags];
    out.extend_from_slice(&LITTLE_ENDIAN.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&call_id.to_le_bytes());
    out
}

fn end(mut out: Vec<u8>) -> Vec<u8> {
    let len = wire::length16(out.len());
    wire::patch_u16(&mut out, 8, len);
    out
}

/// Bytes before the body of every PDU.
pub(super) const PREAMBLE_LEN: usize = 16;
// Allocation hint, context, cancel count.
const RESPONSE_FIXED: usize = 8;
const SYNTAX_LEN: usize = 20;
const LITTLE_ENDIAN: u32 = 0x10;
/// The shortest fragment everybody takes: C706 §12.6.3.1.
pub(super) const FRAGMENT_FLOOR: u16 = 1432;
// Windows binds three at most: the interface, NDR64 and feature negotiation.
const CONTEXTS_MAX: usize = 16;

pub(super) const REQUEST: u8 = 0;
const RESPONSE: u8 = 2;
const FAULT: u8 = 3;
pub(super) const BIND: u8 = 11;
pub(super) const BIND_ACK: u8 = 12;
const BIND_NAK: u8 = 13;
pub(super) const ALTER_CONTEXT: u8 = 14;
pub(super) const ALTER_CONTEXT_RESPONSE: u8 = 15;
/// A call that the client gives up; its answer is there already.
pub(super) const CANCEL: u8 = 18;
/// The same, without interest in the answer.
pub(super) const ORPHANED: u8 = 19;

pub(super) const FIRST: u8 = 0x01;
pub(super) const LAST: u8 = 0x02;
const DID_NOT_EXECUTE: u8 = 0x20;
const OBJECT_UUID: u8 = 0x80;

const ACCEPTED: u16 = 0;
const PROVIDER_REJECTS: u16 = 2;
const NO_SUCH_INTERFACE: u16 = 1;
const NO_SUCH_SYNTAX: u16 = 2;
const AUTHENTICATION_UNKNOWN: u16 = 8;

// 8a885d04-1ceb-11c9-9fe8-08002b104860, version 2
const NDR: [u8; SYNTAX_LEN] = [
    0x04, 0x5d, 0x88, 0x8a, 0xeb, 0x1c, 0xc9, 0x11, 0x9f, 0xe8, 0x08, 0x00, 0x2b, 0x10, 0x48, 0x60,
    2, 0, 0, 0,
];
