//! What a server adds to its answer to CREATE.
//!
//! ```text
//!  RqLs lease            as in the request
//!  DHnQ durable          8 bytes reserved
//!  DH2Q durable v2       timeout u32, flags u32
//!  MxAc maximal access   status u32, access u32
//!  QFid file id on disk  file id u64, volume id u64, 16 bytes reserved
//!  GUID POSIX            links u32, reparse tag u32, mode u32, owner SID, group SID
//!  GUID push             see crate::push
//! ```
//!
//! Spec: MS-SMB2 §2.2.14.2; SMB3 POSIX extensions §2.1.3.

use super::durable::PERSISTENT;
use super::{AccessMask, Lease, POSIX_NAME, chain};
use crate::info::security::Sid;
use crate::parse_error::ParseError;
use crate::push::{self, PushResponse};
use crate::status::NtStatus;
use crate::wire::Reader;

/// One context of a response.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CreateResponseContext<'a> {
    /// The lease granted.
    Lease(Lease),
    /// The handle is durable (2.1).
    Durable,
    /// The handle is durable or persistent (3.0).
    DurableV2 {
        /// For how long.
        timeout_ms: u32,
        /// Survives the server's restart.
        persistent: bool,
    },
    /// The most this user could be granted.
    MaximalAccess {
        /// Whether it could be found out.
        status: NtStatus,
        /// The rights.
        access: AccessMask,
    },
    /// The file's and the volume's number.
    OnDiskId {
        /// File.
        file_id: u64,
        /// Volume.
        volume_id: u64,
    },
    /// SMB3 POSIX extensions.
    Posix(PosixResponse),
    /// Push mode: granted or refused.
    Push(PushResponse),
    /// A push response of a layout version this side does not speak: not granted.
    PushUnknownVersion(u16),
    /// Anything else.
    Unknown {
        /// Its name.
        name: &'a [u8],
        /// Its bytes.
        data: &'a [u8],
    },
}

/// What POSIX clients want to know of an open, and of each file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PosixResponse {
    /// Hard links.
    pub links: u32,
    /// Reparse tag, 0 for none.
    pub reparse_tag: u32,
    /// Permission bits, and the kind of the file: [`crate::info::PosixKind`].
    pub mode: u32,
    /// Owner.
    pub owner: Sid,
    /// Group.
    pub group: Sid,
}

impl PosixResponse {
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut reader = Reader::new(bytes);
        let (links, reparse_tag, mode) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (owner, rest) = Sid::parse(reader.rest())?;
        let (group, rest) = Sid::parse(rest)?;
        Ok((Self { links, reparse_tag, mode, owner, group }, rest))
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        for value in [self.links, self.reparse_tag, self.mode] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        self.owner.emit(out);
        self.group.emit(out);
    }
}

impl<'a> CreateResponseContext<'a> {
    pub(super) fn parse(name: &'a [u8], data: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(data);
        Ok(match name {
            b"RqLs" => Self::Lease(Lease::parse(data)?),
            b"DHnQ" => Self::Durable,
            b"DH2Q" => Self::DurableV2 {
                timeout_ms: reader.u32()?,
                persistent: reader.u32()? & PERSISTENT != 0,
            },
            b"MxAc" => Self::MaximalAccess {
                status: NtStatus(reader.u32()?),
                access: AccessMask::from_bits_retain(reader.u32()?),
            },
            b"QFid" => Self::OnDiskId { file_id: reader.u64()?, volume_id: reader.u64()? },
            name if name == POSIX_NAME => Self::Posix(PosixResponse::parse(data)?.0),
            name if name == push::CREATE_CONTEXT_NAME.0 => match PushResponse::parse(data) {
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
            Self::DurableV2 { .. } => b"DH2Q",
            Self::MaximalAccess { .. } => b"MxAc",
            Self::OnDiskId { .. } => b"QFid",
            Self::Posix(_) => &POSIX_NAME,
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
            Self::Durable => out.extend_from_slice(&[0; 8]),
            Self::DurableV2 { timeout_ms, persistent } => {
                let flags = if *persistent { PERSISTENT } else { 0 };
                out.extend_from_slice(&timeout_ms.to_le_bytes());
                out.extend_from_slice(&flags.to_le_bytes());
            }
            Self::MaximalAccess { status, access } => {
                out.extend_from_slice(&status.0.to_le_bytes());
                out.extend_from_slice(&access.bits().to_le_bytes());
            }
            Self::OnDiskId { file_id, volume_id } => {
                out.extend_from_slice(&file_id.to_le_bytes());
                out.extend_from_slice(&volume_id.to_le_bytes());
                out.extend_from_slice(&[0; 16]);
            }
            Self::Posix(posix) => posix.emit(out),
            Self::Push(response) => response.emit(out),
            Self::PushUnknownVersion(version) => {
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&[4, 0]);
            }
            Self::Unknown { data, .. } => out.extend_from_slice(data),
        }
    }
}
