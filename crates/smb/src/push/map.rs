//! MAP_REMOTE_REGION: registers a region of an open for one-sided access.
//!
//! ```text
//!  input, 40 bytes
//!  0         2      4        8                    16            24       32      36         40
//!  +---------+------+--------+--------------------+-------------+--------+-------+----------+
//!  | version | size | rights | push connection id | file offset | length | flags | reserved |
//!  +---------+------+--------+--------------------+-------------+--------+-------+----------+
//!  output, 56 bytes and descriptors
//!  0         2      4        8                 16           24            32       40
//!  +---------+------+--------+-----------------+------------+-------------+--------+
//!  | version | size | rights | registration id | generation | file offset | length |
//!  +---------+------+--------+-----------------+------------+-------------+--------+
//!  40           44            48             52           54           56
//!  +------------+-------------+--------------+------------+------------+
//!  | durability | granularity | capabilities | descriptor | descriptor |
//!  |            |             |              | count      | offset     |
//!  +------------+-------------+--------------+------------+------------+
//!  each descriptor, 16 bytes (SMB_DIRECT_BUFFER_DESCRIPTOR_V1): offset u64, token u32, length u32
//! ```
//!
//! Descriptors cover the region in order, without gaps; there are several when the length does
//! not fit 32 bits.
//!
//! Spec: docs/push-mode.md, "MAP_REMOTE_REGION"; MS-SMBD §2.2.3.1.

use smbdirect::{BufferDescriptor, Descriptors};

use super::layout::{self, put_u16, put_u32, put_u64};
use super::{Capabilities, Durability, Generation, PushConnectionId, RegistrationId, Rights};
use crate::parse_error::{Field, ParseError};
use crate::wire;

/// Asks for a registration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MapRequest {
    /// What the region is for.
    pub rights: Rights,
    /// The connection it shall be reachable from.
    pub push_connection_id: PushConnectionId,
    /// First byte.
    pub file_offset: u64,
    /// Number of bytes, all of them below the end of file.
    pub length: u64,
}

impl MapRequest {
    /// Reads the input.
    ///
    /// # Errors
    /// Malformed, or another version.
    pub fn parse(input: &[u8]) -> Result<Self, ParseError> {
        let mut reader = layout::open(input, REQUEST_LEN)?;
        let rights = Rights::from_bits_retain(reader.u32()?);
        let push_connection_id = PushConnectionId(reader.u64()?);
        let (file_offset, length) = (reader.u64()?, reader.u64()?);
        reader.u64()?;
        Ok(Self { rights, push_connection_id, file_offset, length })
    }

    /// Appends the input.
    pub fn emit(&self, out: &mut Vec<u8>) {
        layout::begin(out, REQUEST_LEN);
        put_u32(out, self.rights.bits());
        put_u64(out, self.push_connection_id.0);
        put_u64(out, self.file_offset);
        put_u64(out, self.length);
        put_u64(out, 0);
    }
}

/// A registration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MapResponse {
    /// What the region may be used for.
    pub rights: Rights,
    /// Its name.
    pub registration: RegistrationId,
    /// Its life.
    pub generation: Generation,
    /// First byte.
    pub file_offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// What a commit promises.
    pub durability: Durability,
    /// Smallest unit the medium keeps whole when power fails, in bytes.
    pub store_granularity: u32,
    /// What the push connection can do.
    pub capabilities: Capabilities,
    /// Where it is, in order.
    pub descriptors: Vec<BufferDescriptor>,
}

impl MapResponse {
    /// Reads the output.
    ///
    /// # Errors
    /// Malformed, another version, or descriptors that do not add up to the length.
    pub fn parse(output: &[u8]) -> Result<Self, ParseError> {
        let mut reader = layout::open(output, RESPONSE_LEN)?;
        let rights = Rights::from_bits_retain(reader.u32()?);
        let registration = RegistrationId(reader.u64()?);
        let generation = Generation(reader.u64()?);
        let (file_offset, length) = (reader.u64()?, reader.u64()?);
        let durability = Durability(reader.u32()?);
        let store_granularity = reader.u32()?;
        let capabilities = Capabilities::from_bits_retain(reader.u32()?);
        let count = u32::from(reader.u16()?);
        let count = layout::count(Field::Descriptors, count, MAP_DESCRIPTORS_MAX)?;
        let list = layout::list(output, reader.u16()?, count, BufferDescriptor::LEN)?;
        let malformed = |value| ParseError::PeerValue { field: Field::Descriptors, value };
        let list = Descriptors::parse(list).map_err(|_| malformed(0))?;
        if list.total_length() != length {
            return Err(malformed(list.total_length()));
        }
        let descriptors = list.iter().collect();
        Ok(Self {
            rights,
            registration,
            generation,
            file_offset,
            length,
            durability,
            store_granularity,
            capabilities,
            descriptors,
        })
    }

    /// Appends the output.
    ///
    /// # Panics
    /// With more descriptors than 16 bits count; the limit is [`MAP_DESCRIPTORS_MAX`].
    pub fn emit(&self, out: &mut Vec<u8>) {
        layout::begin(out, RESPONSE_LEN);
        put_u32(out, self.rights.bits());
        put_u64(out, self.registration.0);
        put_u64(out, self.generation.0);
        put_u64(out, self.file_offset);
        put_u64(out, self.length);
        put_u32(out, self.durability.0);
        put_u32(out, self.store_granularity);
        put_u32(out, self.capabilities.bits());
        put_u16(out, wire::length16(self.descriptors.len()));
        put_u16(out, RESPONSE_LEN);
        for descriptor in &self.descriptors {
            let mut bytes = [0; BufferDescriptor::LEN];
            descriptor.emit(&mut bytes);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Descriptors of one region: 1 TiB in pieces of 4 GiB.
pub const MAP_DESCRIPTORS_MAX: usize = smbdirect::DESCRIPTORS_MAX;

const REQUEST_LEN: u16 = 40;
const RESPONSE_LEN: u16 = 56;
