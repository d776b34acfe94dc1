//! COMMIT_REMOTE_REGION: the server makes ranges of a registration durable.
//!
//! ```text
//!  input, 32 bytes and ranges
//!  0         2      4       8                 16           24            26            28   32
//!  +---------+------+-------+-----------------+------------+-------------+-------------+----+
//!  | version | size | flags | registration id | generation | range count | range offs. | 0  |
//!  +---------+------+-------+-----------------+------------+-------------+-------------+----+
//!  each range, 16 bytes: file offset u64, length u64; no range means the whole registration
//!  output, 16 bytes
//!  0         2      4            8       12  16
//!  +---------+------+------------+-------+---+
//!  | version | size | durability | flags | 0 |      flags: 1 emulated persistence
//!  +---------+------+------------+-------+---+
//! ```
//!
//! # Durability
//! A success covers every byte placed by RDMA Writes that the client had posted on the push
//! connection before it sent this and whose placement it has seen confirmed, by an RDMA Read
//! behind them for instance: the two connections are not ordered with each other.
//!
//! Spec: docs/push-mode.md, "COMMIT_REMOTE_REGION".

use super::layout::{self, put_u16, put_u32, put_u64};
use super::{Durability, Generation, RegistrationId};
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// Asks for durability.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CommitRequest {
    /// Which registration.
    pub registration: RegistrationId,
    /// Which life of it.
    pub generation: Generation,
    /// Which bytes; empty for all.
    pub ranges: Vec<CommitRange>,
}

/// Bytes of the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CommitRange {
    /// First byte, counted in the file.
    pub file_offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl CommitRequest {
    /// Reads the input.
    ///
    /// # Errors
    /// Malformed, another version, or more than [`RANGES_MAX`]. Whether the ranges lie in the
    /// registration is the server's to check.
    pub fn parse(input: &[u8]) -> Result<Self, ParseError> {
        let mut reader = layout::open(input, REQUEST_LEN)?;
        reader.u32()?;
        let registration = RegistrationId(reader.u64()?);
        let generation = Generation(reader.u64()?);
        let count = layout::count(Field::Ranges, u32::from(reader.u16()?), RANGES_MAX)?;
        let offset = reader.u16()?;
        let ranges = layout::entries(input, offset, count, RANGE_LEN, RANGE_LEN)?
            .map(|bytes| {
                let mut reader = Reader::new(bytes);
                Ok(CommitRange { file_offset: reader.u64()?, length: reader.u64()? })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { registration, generation, ranges })
    }

    /// Appends the input.
    ///
    /// # Panics
    /// With more ranges than 16 bits count; the limit is [`RANGES_MAX`].
    pub fn emit(&self, out: &mut Vec<u8>) {
        layout::begin(out, REQUEST_LEN);
        put_u32(out, 0);
        put_u64(out, self.registration.0);
        put_u64(out, self.generation.0);
        put_u16(out, wire::length16(self.ranges.len()));
        put_u16(out, REQUEST_LEN);
        put_u32(out, 0);
        for range in &self.ranges {
            put_u64(out, range.file_offset);
            put_u64(out, range.length);
        }
    }
}

/// All of it is durable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CommitResponse {
    /// In this class.
    pub durability: Durability,
    /// The class is volatile and persistence is only emulated.
    pub emulated: bool,
}

impl CommitResponse {
    /// Reads the output.
    ///
    /// # Errors
    /// Malformed, or another version.
    pub fn parse(output: &[u8]) -> Result<Self, ParseError> {
        let mut reader = layout::open(output, RESPONSE_LEN)?;
        let durability = Durability(reader.u32()?);
        Ok(Self { durability, emulated: reader.u32()? & EMULATED != 0 })
    }

    /// Appends the output.
    pub fn emit(&self, out: &mut Vec<u8>) {
        layout::begin(out, RESPONSE_LEN);
        put_u32(out, self.durability.0);
        put_u32(out, if self.emulated { EMULATED } else { 0 });
        put_u32(out, 0);
    }
}

/// Ranges of one commit.
pub const RANGES_MAX: usize = 256;

const REQUEST_LEN: u16 = 32;
const RESPONSE_LEN: u16 = 16;
const RANGE_LEN: usize = 16;
const EMULATED: u32 = 1;
