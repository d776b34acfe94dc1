//! QUERY_REMOTE_REGIONS: the registrations of an open.
//!
//! ```text
//!  input, 8 bytes              output, 16 bytes and entries
//!  0         2      4   8      0         2      4       8       12           14          16
//!  +---------+------+---+      +---------+------+-------+-------+------------+-----------+
//!  | version | size | 0 |      | version | size | flags | count | entry offs.| entry size|
//!  +---------+------+---+      +---------+------+-------+-------+------------+-----------+
//!  each entry, 56 bytes
//!  0              8            16            24       32       36      40       44     48    56
//!  +--------------+------------+-------------+--------+--------+-------+--------+------+-----+
//!  | registration | generation | file offset | length | rights | state | durab. |reason| push|
//!  |              |            |             |        |        |       |        |      | conn|
//!  +--------------+------------+-------------+--------+--------+-------+--------+------+-----+
//! ```
//!
//! Spec: docs/push-mode.md, "QUERY_REMOTE_REGIONS".

use super::layout::{self, put_u16, put_u32, put_u64};
use super::{
    Durability, Generation, PushConnectionId, RecallReason, RegionState, RegistrationId, Rights,
};
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// Asks what there is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QueryRequest;

impl QueryRequest {
    /// Reads the input.
    ///
    /// # Errors
    /// Malformed, or another version.
    pub fn parse(input: &[u8]) -> Result<Self, ParseError> {
        layout::open(input, REQUEST_LEN)?;
        Ok(Self)
    }

    /// Appends the input.
    pub fn emit(&self, out: &mut Vec<u8>) {
        layout::begin(out, REQUEST_LEN);
        put_u32(out, 0);
    }
}

/// What there is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QueryResponse {
    /// The registrations.
    pub regions: Vec<RegionEntry>,
}

/// One registration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RegionEntry {
    /// Its name.
    pub registration: RegistrationId,
    /// Its life.
    pub generation: Generation,
    /// First byte.
    pub file_offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// What it may be used for.
    pub rights: Rights,
    /// Where it is in its life.
    pub state: RegionState,
    /// What a commit promises.
    pub durability: Durability,
    /// Why it is recalled, if it is.
    pub reason: RecallReason,
    /// Where it can be reached from.
    pub push_connection_id: PushConnectionId,
}

impl QueryResponse {
    /// Reads the output.
    ///
    /// # Errors
    /// Malformed, another version, or more than [`QUERY_ENTRIES_MAX`].
    pub fn parse(output: &[u8]) -> Result<Self, ParseError> {
        let mut reader = layout::open(output, RESPONSE_LEN)?;
        reader.u32()?;
        let count = layout::count(Field::Entries, reader.u32()?, QUERY_ENTRIES_MAX)?;
        let (offset, size) = (reader.u16()?, usize::from(reader.u16()?));
        let regions = layout::entries(output, offset, count, size, ENTRY_LEN)?
            .map(RegionEntry::parse)
            .collect::<Result<_, _>>()?;
        Ok(Self { regions })
    }

    /// Appends the output.
    pub fn emit(&self, out: &mut Vec<u8>) {
        layout::begin(out, RESPONSE_LEN);
        put_u32(out, 0);
        put_u32(out, wire::length32(self.regions.len()));
        put_u16(out, RESPONSE_LEN);
        put_u16(out, wire::length16(ENTRY_LEN));
        for region in &self.regions {
            region.emit(out);
        }
    }
}

impl RegionEntry {
    fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        Ok(Self {
            registration: RegistrationId(reader.u64()?),
            generation: Generation(reader.u64()?),
            file_offset: reader.u64()?,
            length: reader.u64()?,
            rights: Rights::from_bits_retain(reader.u32()?),
            state: RegionState(reader.u32()?),
            durability: Durability(reader.u32()?),
            reason: RecallReason(reader.u32()?),
            push_connection_id: PushConnectionId(reader.u64()?),
        })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        put_u64(out, self.registration.0);
        put_u64(out, self.generation.0);
        put_u64(out, self.file_offset);
        put_u64(out, self.length);
        put_u32(out, self.rights.bits());
        put_u32(out, self.state.0);
        put_u32(out, self.durability.0);
        put_u32(out, self.reason.0);
        put_u64(out, self.push_connection_id.0);
    }
}

/// Entries of one answer.
pub const QUERY_ENTRIES_MAX: usize = 4096;

const REQUEST_LEN: u16 = 8;
const RESPONSE_LEN: u16 = 16;
const ENTRY_LEN: usize = 56;
