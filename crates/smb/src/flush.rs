//! FLUSH request: make what was written to an open durable. The response is [`crate::Empty`].
//!
//! ```text
//!  64   66          72         88
//!  +----+-----------+----------+
//!  | 24 | reserved  | file id  |
//!  +----+-----------+----------+
//! ```
//!
//! Spec: MS-SMB2 §2.2.17.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::header::{FileId, WireFileId};
use crate::parse_error::ParseError;
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    structure_size: U16,
    reserved: U16,
    reserved2: U32,
    file_id: WireFileId,
}

const _: () = assert!(size_of::<Wire>() == 24);

/// Makes an open's data durable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlushRequest {
    /// Which open.
    pub file_id: FileId,
}

impl FlushRequest {
    /// Reads a request at fixed offsets.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<Wire>(pdu, 24)?;
        Ok(Self { file_id: wire.file_id.into() })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(
            out,
            &Wire {
                structure_size: U16::new(24),
                reserved: U16::new(0),
                reserved2: U32::new(0),
                file_id: self.file_id.into(),
            },
        );
    }
}
