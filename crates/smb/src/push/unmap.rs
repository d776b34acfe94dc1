//! UNMAP_REMOTE_REGION: ends a registration.
//!
//! ```text
//!  input, 24 bytes
//!  0         2      4       8                 16           24
//!  +---------+------+-------+-----------------+------------+
//!  | version | size | flags | registration id | generation |
//!  +---------+------+-------+-----------------+------------+
//!  no output
//! ```
//!
//! # Durability
//! Unmapping commits nothing.
//!
//! Spec: docs/push-mode.md, "UNMAP_REMOTE_REGION".

use super::layout::{self, put_u32, put_u64};
use super::{Generation, RegistrationId};
use crate::parse_error::ParseError;

/// Gives a registration back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnmapRequest {
    /// Which.
    pub registration: RegistrationId,
    /// Which life of it.
    pub generation: Generation,
}

impl UnmapRequest {
    /// Reads the input.
    ///
    /// # Errors
    /// Malformed, or another version.
    pub fn parse(input: &[u8]) -> Result<Self, ParseError> {
        let mut reader = layout::open(input, REQUEST_LEN)?;
        reader.u32()?;
        let registration = RegistrationId(reader.u64()?);
        Ok(Self { registration, generation: Generation(reader.u64()?) })
    }

    /// Appends the input.
    pub fn emit(&self, out: &mut Vec<u8>) {
        layout::begin(out, REQUEST_LEN);
        put_u32(out, 0);
        put_u64(out, self.registration.0);
        put_u64(out, self.generation.0);
    }
}

const REQUEST_LEN: u16 = 24;
