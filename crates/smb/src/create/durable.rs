//! Durable and persistent handles, version 2.
//!
//! ```text
//!  DH2Q  0         4       8          16            32
//!        +---------+-------+----------+-------------+
//!        | timeout | flags | 0        | create GUID |
//!        +---------+-------+----------+-------------+
//!  DH2C  0               16             32      36
//!        +---------------+--------------+-------+
//!        | file id       | create GUID  | flags |
//!        +---------------+--------------+-------+
//! ```
//!
//! Spec: MS-SMB2 §2.2.13.2.11, §2.2.13.2.12.

use crate::dtyp::Guid;
use crate::header::FileId;
use crate::parse_error::ParseError;
use crate::wire::Reader;

/// Wants a handle that survives its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DurableRequestV2 {
    /// For how long, 0 for the server's choice.
    pub timeout_ms: u32,
    /// Survives the server's restart too.
    pub persistent: bool,
    /// Recognises a replay of this request.
    pub create_guid: Guid,
}

impl DurableRequestV2 {
    pub(super) fn parse(data: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(data);
        let timeout_ms = reader.u32()?;
        let flags = reader.u32()?;
        reader.u64()?;
        let create_guid = Guid(reader.array()?);
        Ok(Self { timeout_ms, persistent: flags & PERSISTENT != 0, create_guid })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let flags = if self.persistent { PERSISTENT } else { 0 };
        out.extend_from_slice(&self.timeout_ms.to_le_bytes());
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&self.create_guid.0);
    }
}

/// Wants such a handle back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DurableReconnectV2 {
    /// The handle.
    pub file_id: FileId,
    /// What it was created with.
    pub create_guid: Guid,
    /// It was persistent.
    pub persistent: bool,
}

impl DurableReconnectV2 {
    pub(super) fn parse(data: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(data);
        let file_id = parse_file_id(&mut reader)?;
        let create_guid = Guid(reader.array()?);
        let persistent = reader.u32()? & PERSISTENT != 0;
        Ok(Self { file_id, create_guid, persistent })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let flags = if self.persistent { PERSISTENT } else { 0 };
        emit_file_id(self.file_id, out);
        out.extend_from_slice(&self.create_guid.0);
        out.extend_from_slice(&flags.to_le_bytes());
    }
}

pub(super) fn parse_file_id(reader: &mut Reader<'_>) -> Result<FileId, ParseError> {
    Ok(FileId { persistent: reader.u64()?, volatile: reader.u64()? })
}

pub(super) fn emit_file_id(id: FileId, out: &mut Vec<u8>) {
    out.extend_from_slice(&id.persistent.to_le_bytes());
    out.extend_from_slice(&id.volatile.to_le_bytes());
}

/// The persistent flag of requests, reconnects and responses.
pub(super) const PERSISTENT: u32 = 0x02;
