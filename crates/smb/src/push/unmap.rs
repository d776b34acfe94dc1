//! UNMAP_REMOTE_REGION: ends a registration, and says what has become of it and of its lease.
//!
//! ```text
//!  input, 24 bytes
//!  0         2      4       8                 16           24
//!  +---------+------+-------+-----------------+------------+
//!  | version | size | flags | registration id | generation |
//!  +---------+------+-------+-----------------+------------+
//!  output, 24 bytes, for a client that has room for it
//!  0         2      4       8        12      16      18         20              24
//!  +---------+------+-------+--------+-------+-------+----------+---------------+
//!  | version | size | state | reason | lease | epoch | reserved | break timeout |
//!  +---------+------+-------+--------+-------+-------+----------+---------------+
//! ```
//!
//! A break of a lease is not signed, and may be on its way for long: this answer is what a client relies on before it
//! writes anything again.
//!
//! # Durability
//! Unmapping commits nothing.
//!
//! Spec: docs/push-mode.md, "UNMAP_REMOTE_REGION".

use super::layout::{self, put_u16, put_u32, put_u64};
use super::{Generation, RecallReason, RegionState, RegistrationId};
use crate::create::LeaseState;
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

/// What the registration was when the request came, and what the lease of its open is now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnmapResponse {
    /// Where the registration was in its life.
    pub state: RegionState,
    /// Why it was recalled.
    pub reason: RecallReason,
    /// What the client holds of the lease; nothing while the lease is being broken.
    pub lease: LeaseState,
    /// Counts the changes of the lease.
    pub epoch: u16,
    /// No break that begins after this answer takes the lease sooner from a client that says nothing.
    pub break_timeout_ms: u32,
}

impl UnmapResponse {
    /// The bytes of the output.
    pub const LEN: u16 = 24;

    /// Reads the output.
    ///
    /// # Errors
    /// Malformed, or another version; the output of an older server is empty.
    pub fn parse(output: &[u8]) -> Result<Self, ParseError> {
        let mut reader = layout::open(output, Self::LEN)?;
        let (state, reason) = (RegionState(reader.u32()?), RecallReason(reader.u32()?));
        let lease = LeaseState::from_bits_retain(reader.u32()?);
        let epoch = reader.u16()?;
        reader.u16()?;
        Ok(Self { state, reason, lease, epoch, break_timeout_ms: reader.u32()? })
    }

    /// Appends the output.
    pub fn emit(&self, out: &mut Vec<u8>) {
        layout::begin(out, Self::LEN);
        put_u32(out, self.state.0);
        put_u32(out, self.reason.0);
        put_u32(out, self.lease.bits());
        put_u16(out, self.epoch);
        put_u16(out, 0);
        put_u32(out, self.break_timeout_ms);
    }
}

const REQUEST_LEN: u16 = 24;
