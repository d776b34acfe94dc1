//! VALIDATE_NEGOTIATE_INFO: what each side believes was negotiated, signed.
//!
//! ```text
//!  input                                               output
//!  0              4      20     22      24             0              4      20     22       24
//!  +--------------+------+------+-------+----------    +--------------+------+------+--------+
//!  | capabilities | GUID | mode | count | dialects     | capabilities | GUID | mode | dialect|
//!  +--------------+------+------+-------+----------    +--------------+------+------+--------+
//! ```
//!
//! Spec: MS-SMB2 §2.2.31.4, §2.2.32.6.

use crate::dtyp::Guid;
use crate::negotiate::{Capabilities, DIALECTS_MAX, Dialect, SecurityMode};
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// What the client sent in its NEGOTIATE.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ValidateNegotiateRequest {
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// Its GUID.
    pub client_guid: Guid,
    /// Its signing policy.
    pub security_mode: SecurityMode,
    /// Its dialects.
    pub dialects: Vec<Dialect>,
}

impl ValidateNegotiateRequest {
    /// Reads the input.
    ///
    /// # Errors
    /// Malformed, or more than [`DIALECTS_MAX`] dialects.
    pub fn parse(input: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(input);
        let capabilities = Capabilities::from_bits_retain(reader.u32()?);
        let client_guid = Guid(reader.array()?);
        let security_mode = SecurityMode::from_bits_retain(reader.u16()?);
        let count = reader.u16()?;
        wire::limit(Field::Dialects, usize::from(count), DIALECTS_MAX)?;
        let dialects = (0..count).map(|_| reader.u16().map(Dialect)).collect::<Result<_, _>>()?;
        Ok(Self { capabilities, client_guid, security_mode, dialects })
    }

    /// Appends the input.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.capabilities.bits().to_le_bytes());
        out.extend_from_slice(&self.client_guid.0);
        out.extend_from_slice(&self.security_mode.bits().to_le_bytes());
        out.extend_from_slice(&wire::length16(self.dialects.len()).to_le_bytes());
        for dialect in &self.dialects {
            out.extend_from_slice(&dialect.0.to_le_bytes());
        }
    }
}

/// What the server answered to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ValidateNegotiateResponse {
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// Its GUID.
    pub server_guid: Guid,
    /// Its signing policy.
    pub security_mode: SecurityMode,
    /// The dialect it chose.
    pub dialect: Dialect,
}

impl ValidateNegotiateResponse {
    /// Reads the output.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(output: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(output);
        Ok(Self {
            capabilities: Capabilities::from_bits_retain(reader.u32()?),
            server_guid: Guid(reader.array()?),
            security_mode: SecurityMode::from_bits_retain(reader.u16()?),
            dialect: Dialect(reader.u16()?),
        })
    }

    /// Appends the output.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.capabilities.bits().to_le_bytes());
        out.extend_from_slice(&self.server_guid.0);
        out.extend_from_slice(&self.security_mode.bits().to_le_bytes());
        out.extend_from_slice(&self.dialect.0.to_le_bytes());
    }
}
