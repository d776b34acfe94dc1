//! What a client may add to CREATE.
//!
//! ```text
//!  RqLs lease            32 or 52 bytes, see lease.rs
//!  DHnQ durable          16 bytes reserved
//!  DHnC reconnect        file id
//!  DH2Q, DH2C            see durable.rs
//!  MxAc maximal access   nothing, or a FILETIME
//!  QFid file id on disk  nothing
//!  AlSi allocation size  u64
//!  TWrp previous version FILETIME
//!  ExtA, SecD            EA list, security descriptor: kept as bytes
//!  GUID AppInstanceId    size 20 u16, 0 u16, GUID
//!  GUID POSIX            mode u32
//!  GUID push             see crate::push
//! ```
//!
//! A context we do not know survives as opaque bytes and is ignored, as MS-SMB2 §3.3.5.9 says.
//!
//! Spec: MS-SMB2 §2.2.13.2.

use super::durable::{emit_file_id, parse_file_id};
use super::{DurableReconnectV2, DurableRequestV2, Lease, chain};
use crate::dtyp::{FileTime, Guid};
use crate::header::FileId;
use crate::parse_error::ParseError;
use crate::push::{self, PushRequest};
use crate::wire::Reader;

/// One context of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CreateRequestContext<'a> {
    /// Wants a lease.
    Lease(Lease),
    /// Wants a durable handle (2.1).
    Durable,
    /// Wants one back.
    DurableReconnect(FileId),
    /// Wants a durable or persistent handle (3.0).
    DurableV2(DurableRequestV2),
    /// Wants one back.
    DurableReconnectV2(DurableReconnectV2),
    /// Wants to know the most it could be granted; with a time only if the file changed since.
    MaximalAccess(Option<FileTime>),
    /// Wants the 64-bit file id and the volume's.
    QueryOnDiskId,
    /// Wants space reserved.
    AllocationSize(u64),
    /// Wants the file as it was then.
    Timewarp(FileTime),
    /// Extended attributes of a new file: see [`crate::info::FullEa`].
    ExtendedAttributes(&'a [u8]),
    /// Security descriptor of a new file.
    SecurityDescriptor(&'a [u8]),
    /// Which instance of a clustered application opens.
    AppInstanceId(Guid),
    /// Its version, higher wins.
    AppInstanceVersion {
        /// Major.
        high: u64,
        /// Minor.
        low: u64,
    },
    /// SMB3 POSIX extensions: mode of a new file.
    Posix {
        /// Permission bits.
        mode: u32,
    },
    /// Wants push mode.
    Push(PushRequest),
    /// A push request of a layout version this side does not speak: to be refused with VERSION.
    PushUnknownVersion(u16),
    /// Anything else.
    Unknown {
        /// Its name.
        name: &'a [u8],
        /// Its bytes.
        data: &'a [u8],
    },
}

impl<'a> CreateRequestContext<'a> {
    pub(super) fn parse(name: &'a [u8], data: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(data);
        Ok(match name {
            b"RqLs" => Self::Lease(Lease::parse(data)?),
            b"DHnQ" => Self::Durable,
            b"DHnC" => Self::DurableReconnect(parse_file_id(&mut reader)?),
            b"DH2Q" => Self::DurableV2(DurableRequestV2::parse(data)?),
            b"DH2C" => Self::DurableReconnectV2(DurableReconnectV2::parse(data)?),
            b"MxAc" if data.is_empty() => Self::MaximalAccess(None),
            b"MxAc" => Self::MaximalAccess(Some(FileTime(reader.u64()?))),
            b"QFid" => Self::QueryOnDiskId,
            b"AlSi" => Self::AllocationSize(reader.u64()?),
            b"TWrp" => Self::Timewarp(FileTime(reader.u64()?)),
            b"ExtA" => Self::ExtendedAttributes(data),
            b"SecD" => Self::SecurityDescriptor(data),
            name if name == APP_INSTANCE_ID => {
                structure_size(&mut reader, 20)?;
                Self::AppInstanceId(Guid(reader.array()?))
            }
            name if name == APP_INSTANCE_VERSION => {
                structure_size(&mut reader, 24)?;
                reader.u32()?;
                Self::AppInstanceVersion { high: reader.u64()?, low: reader.u64()? }
            }
            name if name == POSIX_NAME => Self::Posix { mode: reader.u32()? },
            name if name == push::CREATE_CONTEXT_NAME.0 => match PushRequest::parse(data) {
                Err(ParseError::PeerPushVersion(version)) => Self::PushUnknownVersion(version),
                parsed => Self::Push(parsed?),
            },
            name => Self::Unknown { name, data },
        })
    }

    /// The name on the wire.
    pub fn name(&self) -> &'a [u8] {
        match self {
            Self::Lease(_) => b"RqLs",
            Self::Durable => b"DHnQ",
            Self::DurableReconnect(_) => b"DHnC",
            Self::DurableV2(_) => b"DH2Q",
            Self::DurableReconnectV2(_) => b"DH2C",
            Self::MaximalAccess(_) => b"MxAc",
            Self::QueryOnDiskId => b"QFid",
            Self::AllocationSize(_) => b"AlSi",
            Self::Timewarp(_) => b"TWrp",
            Self::ExtendedAttributes(_) => b"ExtA",
            Self::SecurityDescriptor(_) => b"SecD",
            Self::AppInstanceId(_) => &APP_INSTANCE_ID,
            Self::AppInstanceVersion { .. } => &APP_INSTANCE_VERSION,
            Self::Posix { .. } => &POSIX_NAME,
            Self::Push(_) | Self::PushUnknownVersion(_) => &push::CREATE_CONTEXT_NAME.0,
            Self::Unknown { name, .. } => name,
        }
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>, start: usize, previous: &mut Option<usize>) {
        chain::emit(out, start, previous, self.name(), |out| self.emit_data(out));
    }

    fn emit_data(&self, out: &mut Vec<u8>) {
        match self {
            Self::Lease(lease) => lease.emit(out),
            Self::Durable => out.extend_from_slice(&[0; 16]),
            Self::DurableReconnect(id) => emit_file_id(*id, out),
            Self::DurableV2(durable) => durable.emit(out),
            Self::DurableReconnectV2(durable) => durable.emit(out),
            Self::MaximalAccess(Some(time)) | Self::Timewarp(time) => {
                out.extend_from_slice(&time.0.to_le_bytes());
            }
            Self::MaximalAccess(None) | Self::QueryOnDiskId => {}
            Self::AllocationSize(size) => out.extend_from_slice(&size.to_le_bytes()),
            Self::ExtendedAttributes(data)
            | Self::SecurityDescriptor(data)
            | Self::Unknown { data, .. } => out.extend_from_slice(data),
            Self::AppInstanceId(id) => {
                out.extend_from_slice(&[20, 0, 0, 0]);
                out.extend_from_slice(&id.0);
            }
            Self::AppInstanceVersion { high, low } => {
                out.extend_from_slice(&[24, 0, 0, 0, 0, 0, 0, 0]);
                out.extend_from_slice(&high.to_le_bytes());
                out.extend_from_slice(&low.to_le_bytes());
            }
            Self::Posix { mode } => out.extend_from_slice(&mode.to_le_bytes()),
            Self::Push(request) => request.emit(out),
            Self::PushUnknownVersion(version) => {
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&[4, 0]);
            }
        }
    }
}

fn structure_size(reader: &mut Reader<'_>, expected: u16) -> Result<(), ParseError> {
    let got = reader.u16()?;
    reader.u16()?;
    if got != expected {
        return Err(ParseError::PeerStructureSize { expected, got });
    }
    Ok(())
}

/// Name of the POSIX context.
pub const POSIX_NAME: [u8; 16] = [
    0x93, 0xad, 0x25, 0x50, 0x9c, 0xb4, 0x11, 0xe7, 0xb4, 0x23, 0x83, 0xde, 0x96, 0x8b, 0xcd, 0x7c,
];
// MS-SMB2 §2.2.13.2.
const APP_INSTANCE_ID: [u8; 16] = [
    0x45, 0xbc, 0xa6, 0x6a, 0xef, 0xa7, 0xf7, 0x4a, 0x90, 0x08, 0xfa, 0x46, 0x2e, 0x14, 0x4d, 0x74,
];
const APP_INSTANCE_VERSION: [u8; 16] = [
    0xb9, 0x82, 0xd0, 0xb7, 0x3b, 0x56, 0x07, 0x4f, 0xa0, 0x7b, 0x52, 0x4a, 0x81, 0x16, 0xa0, 0x10,
];
