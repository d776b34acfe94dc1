//! The body of every response whose status is an error.
//!
//! ```text
//!  64  66        67  68       72                3.1.1 context, 8-aligned:
//!  +---+---------+---+--------+------           0        4    8
//!  | 9 | context | 0 | byte   | data            +--------+----+------
//!  |   | count   |   | count  |                 | length | id | data
//!  +---+---------+---+--------+------           +--------+----+------
//! ```
//!
//! Before 3.1.1 the data itself stands where the contexts stand.
//!
//! Spec: MS-SMB2 §2.2.2.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    structure_size: U16,
    context_count: u8,
    reserved: u8,
    byte_count: U32,
}

/// Why not, beside the status.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ErrorResponse<'a> {
    /// Bytes whose meaning the status gives; mostly none.
    Plain(&'a [u8]),
    /// Contexts of 3.1.1.
    Contexts(Vec<ErrorContext<'a>>),
}

/// One context.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ErrorContext<'a> {
    /// 0 default, 0x72645253 share redirect.
    pub id: u32,
    /// Bytes whose meaning status and id give.
    pub data: &'a [u8],
}

impl<'a> ErrorResponse<'a> {
    /// No data.
    pub const NONE: Self = Self::Plain(&[]);

    /// Reads an error body.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &'a [u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<Wire>(pdu, 9)?;
        let data = wire::pdu_buffer::<Wire>(pdu, BUFFER, wire.byte_count.get(), Field::Output)?;
        let count = usize::from(wire.context_count);
        if count == 0 {
            return Ok(Self::Plain(data));
        }
        let mut rest = data;
        let mut contexts = Vec::new();
        for _ in 0..count {
            let mut reader = Reader::new(rest);
            let len = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
            let id = reader.u32()?;
            contexts.push(ErrorContext { id, data: reader.bytes(len)? });
            rest = rest.get((8 + len).next_multiple_of(8)..).unwrap_or_default();
        }
        Ok(Self::Contexts(contexts))
    }

    /// Appends the body behind a header.
    ///
    /// # Panics
    /// With more than 255 contexts.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let body = out.len();
        let count = match self {
            Self::Plain(_) => 0,
            Self::Contexts(contexts) => {
                u8::try_from(contexts.len()).expect("a handful of error contexts")
            }
        };
        wire::put(
            out,
            &Wire {
                structure_size: U16::new(9),
                context_count: count,
                reserved: 0,
                byte_count: U32::new(0),
            },
        );
        let start = out.len();
        match self {
            Self::Plain(data) => out.extend_from_slice(data),
            Self::Contexts(contexts) => {
                for context in contexts {
                    wire::pad(out, start, 8);
                    let len = wire::length32(context.data.len());
                    out.extend_from_slice(&len.to_le_bytes());
                    out.extend_from_slice(&context.id.to_le_bytes());
                    out.extend_from_slice(context.data);
                }
            }
        }
        let count = wire::length32(out.len() - start);
        wire::patch_u32(out, body + BYTE_COUNT, count);
        // MS-SMB2 §2.2.2: an empty ErrorData is one zero byte, not counted.
        if count == 0 {
            out.push(0);
        }
    }
}

const BUFFER: u32 = 72;
const BYTE_COUNT: usize = 4;
