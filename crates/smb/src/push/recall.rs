//! WAIT_REGION_RECALL: stays pending until the server wants registrations of the open back.
//!
//! ```text
//!  input, 8 bytes              output, 16 bytes and entries
//!  0         2      4   8      0         2      4       8       12           14          16
//!  +---------+------+---+      +---------+------+-------+-------+------------+-----------+
//!  | version | size | 0 |      | version | size | flags | count | entry offs.| entry size|
//!  +---------+------+---+      +---------+------+-------+-------+------------+-----------+
//!  each entry, 24 bytes
//!  0                 8            16       20         24
//!  +-----------------+------------+--------+----------+
//!  | registration id | generation | reason | grace ms |
//!  +-----------------+------------+--------+----------+
//! ```
//!
//! Spec: docs/push-mode.md, "WAIT_REGION_RECALL".

use super::layout::{self, put_u16, put_u32, put_u64};
use super::{Generation, RecallReason, RegistrationId};
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// Waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RecallRequest;

impl RecallRequest {
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

/// The server wants these back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecallResponse {
    /// Which, and why.
    pub recalls: Vec<Recall>,
}

/// One registration to be given back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Recall {
    /// Which.
    pub registration: RegistrationId,
    /// Which life of it.
    pub generation: Generation,
    /// Why.
    pub reason: RecallReason,
    /// Time until it is revoked; 0 when it is already.
    pub grace_ms: u32,
}

impl RecallResponse {
    /// Reads the output.
    ///
    /// # Errors
    /// Malformed, another version, or more than [`RECALLS_MAX`].
    pub fn parse(output: &[u8]) -> Result<Self, ParseError> {
        let mut reader = layout::open(output, RESPONSE_LEN)?;
        reader.u32()?;
        let count = layout::count(Field::Entries, reader.u32()?, RECALLS_MAX)?;
        let (offset, size) = (reader.u16()?, usize::from(reader.u16()?));
        let recalls = layout::entries(output, offset, count, size, ENTRY_LEN)?
            .map(|bytes| {
                let mut reader = Reader::new(bytes);
                Ok(Recall {
                    registration: RegistrationId(reader.u64()?),
                    generation: Generation(reader.u64()?),
                    reason: RecallReason(reader.u32()?),
                    grace_ms: reader.u32()?,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { recalls })
    }

    /// Appends the output.
    pub fn emit(&self, out: &mut Vec<u8>) {
        layout::begin(out, RESPONSE_LEN);
        put_u32(out, 0);
        put_u32(out, wire::length32(self.recalls.len()));
        put_u16(out, RESPONSE_LEN);
        put_u16(out, wire::length16(ENTRY_LEN));
        for recall in &self.recalls {
            put_u64(out, recall.registration.0);
            put_u64(out, recall.generation.0);
            put_u32(out, recall.reason.0);
            put_u32(out, recall.grace_ms);
        }
    }
}

/// Recalls of one answer.
pub const RECALLS_MAX: usize = 4096;

const REQUEST_LEN: u16 = 8;
const RESPONSE_LEN: u16 = 16;
const ENTRY_LEN: usize = 24;
