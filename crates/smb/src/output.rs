//! The response that is one buffer: QUERY_DIRECTORY, QUERY_INFO and CHANGE_NOTIFY share it.
//!
//! ```text
//!  64  66       68       72
//!  +---+--------+--------+---------
//!  | 9 | offset | length | output
//!  +---+--------+--------+---------
//! ```
//!
//! Spec: MS-SMB2 §2.2.34, §2.2.36, §2.2.38.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::parse_error::{Field, ParseError};
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    structure_size: U16,
    offset: U16,
    length: U32,
}

/// A buffer in the format of the class or filter that was asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutputResponse<'a> {
    /// The buffer.
    pub output: &'a [u8],
}

impl<'a> OutputResponse<'a> {
    /// Reads a response.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &'a [u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<Wire>(pdu, 9)?;
        let (offset, length) = (wire.offset.get(), wire.length.get());
        Ok(Self { output: wire::pdu_buffer::<Wire>(pdu, offset, length, Field::Output)? })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        Self::emit_with(out, |out| out.extend_from_slice(self.output));
    }

    /// Appends the body; `fill` appends the output straight behind it.
    pub fn emit_with(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
        let body = out.len();
        wire::put(
            out,
            &Wire { structure_size: U16::new(9), offset: U16::new(BUFFER), length: U32::new(0) },
        );
        let start = out.len();
        fill(out);
        let length = wire::length32(out.len() - start);
        wire::patch_u32(out, body + LENGTH, length);
    }
}

const BUFFER: u16 = 72;
const LENGTH: usize = 4;
