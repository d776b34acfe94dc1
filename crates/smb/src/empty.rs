//! The body that says nothing: LOGOFF, TREE_DISCONNECT, ECHO (both ways), CANCEL requests, and the
//! FLUSH and LOCK responses.
//!
//! ```text
//!  64  66         68
//!  +---+----------+
//!  | 4 | reserved |
//!  +---+----------+
//! ```
//!
//! Spec: MS-SMB2 §2.2.7, §2.2.8, §2.2.11, §2.2.12, §2.2.18, §2.2.27, §2.2.28, §2.2.29, §2.2.30.

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::parse_error::ParseError;
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    structure_size: U16,
    reserved: U16,
}

/// A body without content.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Empty;

impl Empty {
    /// Checks that there is nothing in it.
    ///
    /// # Errors
    /// Too short or another StructureSize.
    pub fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        wire::body::<Wire>(pdu, STRUCTURE_SIZE)?;
        Ok(Self)
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let structure_size = U16::new(STRUCTURE_SIZE);
        wire::put(out, &Wire { structure_size, reserved: U16::new(0) });
    }
}

const STRUCTURE_SIZE: u16 = 4;
