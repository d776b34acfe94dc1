//! Server-side copy: the key of a source, what to copy, and how far it came.
//!
//! ```text
//!  SRV_REQUEST_RESUME_KEY      SRV_COPYCHUNK input                      output
//!  0          24      28  32   0          24      28  32                0        4       8       12
//!  +----------+-------+---+    +----------+-------+---+--------------   +--------+-------+-------+
//!  | key      | 0 u32 | 0 |    | key      | count | 0 | chunks of 24    | chunks | bytes | total |
//!  +----------+-------+---+    +----------+-------+---+--------------   +--------+-------+-------+
//!
//!  0               8               16       20  24
//!  +---------------+---------------+--------+---+
//!  | source offset | target offset | length | 0 |
//!  +---------------+---------------+--------+---+
//! ```
//!
//! In the answer to a request that is too large the three numbers are the server's limits.
//!
//! Spec: MS-SMB2 §2.2.31.1, §2.2.32.1, §2.2.32.3.

use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// Names an open file as the source of a copy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ResumeKey(pub [u8; 24]);

impl ResumeKey {
    /// Reads the output of SRV_REQUEST_RESUME_KEY.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(output: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(output);
        let key = reader.array()?;
        reader.u32()?;
        Ok(Self(key))
    }

    /// Appends that output. It ends with an empty context of four bytes, as Windows sends it.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
        out.extend_from_slice(&[0; 8]);
    }
}

/// One range to copy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CopyChunk {
    /// Where it begins in the source.
    pub source_offset: u64,
    /// Where it goes in the target.
    pub target_offset: u64,
    /// Its bytes.
    pub length: u32,
}

/// What to copy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CopyChunkRequest {
    /// From where.
    pub source: ResumeKey,
    /// Which ranges, in this order.
    pub chunks: Vec<CopyChunk>,
}

impl CopyChunkRequest {
    /// Reads the input of SRV_COPYCHUNK.
    ///
    /// # Errors
    /// Malformed; [`ParseError::PeerTooMany`] of [`Field::Chunks`] with more than
    /// [`COPY_CHUNKS_MAX`].
    pub fn parse(input: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(input);
        let source = ResumeKey(reader.array()?);
        let count = reader.u32()?;
        reader.u32()?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        wire::limit(Field::Chunks, count, COPY_CHUNKS_MAX)?;
        let chunk = |_| {
            let (source_offset, target_offset) = (reader.u64()?, reader.u64()?);
            let length = reader.u32()?;
            reader.u32()?;
            Ok(CopyChunk { source_offset, target_offset, length })
        };
        Ok(Self { source, chunks: (0..count).map(chunk).collect::<Result<_, _>>()? })
    }

    /// Appends that input.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.source.0);
        out.extend_from_slice(&wire::length32(self.chunks.len()).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for chunk in &self.chunks {
            out.extend_from_slice(&chunk.source_offset.to_le_bytes());
            out.extend_from_slice(&chunk.target_offset.to_le_bytes());
            out.extend_from_slice(&chunk.length.to_le_bytes());
            out.extend_from_slice(&[0; 4]);
        }
    }
}

/// How far it came.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CopyChunkResponse {
    /// Chunks copied whole, or the most one request may have.
    pub chunks: u32,
    /// Bytes of the chunk that failed, or the most one chunk may have.
    pub chunk_bytes: u32,
    /// Bytes of all, or the most one request may have.
    pub total_bytes: u32,
}

impl CopyChunkResponse {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// Reads the output of SRV_COPYCHUNK.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(output: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(output);
        Ok(Self { chunks: reader.u32()?, chunk_bytes: reader.u32()?, total_bytes: reader.u32()? })
    }

    /// Appends that output.
    pub fn emit(&self, out: &mut Vec<u8>) {
        for number in [self.chunks, self.chunk_bytes, self.total_bytes] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// Chunks of one request: what Windows and Samba take.
pub const COPY_CHUNKS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    // Typed from MS-SMB2 §2.2.31.1: key 1..=24, two chunks.
    const GOLDEN: &[u8] = b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\
        \x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x02\0\0\0\0\0\0\0\
        \0\x10\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x02\0\0\0\0\0\0\
        \0\0\0\0\x01\0\0\0\x08\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0";

    #[test]
    fn chunks_lie_where_the_specification_puts_them() {
        let request = CopyChunkRequest::parse(GOLDEN).unwrap();
        assert_eq!(request.source.0[23], 24);
        let chunk = |source_offset, target_offset, length| CopyChunk {
            source_offset,
            target_offset,
            length,
        };
        assert_eq!(request.chunks, [chunk(0x1000, 0x1_0000, 512), chunk(1 << 32, 8, 1)]);
        let mut out = Vec::new();
        request.emit(&mut out);
        assert_eq!(out, GOLDEN);
        CopyChunkRequest::parse(&GOLDEN[..GOLDEN.len() - 1]).unwrap_err();
    }

    #[test]
    fn a_request_over_the_limit_is_told_from_a_malformed_one() {
        let mut bytes = GOLDEN.to_vec();
        bytes[25] = 1;
        let too_many = ParseError::PeerTooMany { field: Field::Chunks, got: 258, max: 256 };
        assert_eq!(CopyChunkRequest::parse(&bytes), Err(too_many));
    }
}
