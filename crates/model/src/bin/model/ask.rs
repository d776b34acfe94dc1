//! The requests of the model in their wire form.

use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
    DurableReconnectV2, DurableRequestV2, ImpersonationLevel, Lease, LeaseKey, LeaseState,
    LeaseVersion, OplockLevel, ShareAccess,
};
use smb::info::{FileAttributes, FileInfoClass, InfoType, SecurityInformation};
use smb::{
    Channel, FileId, Guid, Header, LockElement, LockFlags, LockRequest, Name, ReadFlags,
    ReadRequest, SetInfoRequest, WriteFlags, WriteRequest,
};

use crate::public::Range;

/// Whether and how an open outlives its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Plain,
    Durable,
    Persistent,
}

/// A CREATE that may have to be sent twice.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) path: String,
    pub(crate) disposition: CreateDisposition,
    pub(crate) kind: Kind,
    pub(crate) guid: [u8; 16],
    /// Key and state.
    pub(crate) lease: Option<([u8; 16], LeaseState)>,
    pub(crate) oplock: OplockLevel,
}

impl Wish {
    pub(crate) fn request(&self) -> CreateRequest<'static> {
        let mut request = create(&self.path, OWNER_ACCESS, SHARES_ALL, self.disposition);
        request.oplock_level = self.oplock;
        if let Some((key, state)) = self.lease {
            request.oplock_level = OplockLevel::LEASE;
            request.contexts.push(CreateRequestContext::Lease(lease(key, state)));
        }
        if self.kind != Kind::Plain {
            let persistent = self.kind == Kind::Persistent;
            let create_guid = Guid(self.guid);
            let asked = DurableRequestV2 { timeout_ms: TIMEOUT_MS, persistent, create_guid };
            request.contexts.push(CreateRequestContext::DurableV2(asked));
        }
        request
    }

    /// Whether the CREATE leaves the file without content and without streams.
    pub(crate) fn empties(&self) -> bool {
        use CreateDisposition as D;
        matches!(self.disposition, D::OVERWRITE | D::OVERWRITE_IF | D::SUPERSEDE)
    }

    /// The CREATE that reclaims the open after the loss of its connection.
    pub(crate) fn back(&self, file_id: FileId, path: &str) -> CreateRequest<'static> {
        let mut request = create(path, OWNER_ACCESS, SHARES_ALL, CreateDisposition::OPEN);
        request.oplock_level = self.oplock;
        if let Some((key, state)) = self.lease {
            request.oplock_level = OplockLevel::LEASE;
            request.contexts.push(CreateRequestContext::Lease(lease(key, state)));
        }
        let persistent = self.kind == Kind::Persistent;
        let back = DurableReconnectV2 { file_id, create_guid: Guid(self.guid), persistent };
        request.contexts.push(CreateRequestContext::DurableReconnectV2(back));
        request
    }
}

pub(crate) fn create(
    path: &str,
    desired_access: AccessMask,
    share_access: ShareAccess,
    disposition: CreateDisposition,
) -> CreateRequest<'static> {
    CreateRequest {
        oplock_level: OplockLevel::NONE,
        impersonation: ImpersonationLevel::IMPERSONATION,
        desired_access,
        attributes: FileAttributes::empty(),
        share_access,
        disposition,
        options: CreateOptions::empty(),
        name: Name::new(on_the_wire(path)).unwrap_or_default(),
        contexts: Vec::new(),
    }
}

/// A path with the separators of SMB.
pub(crate) fn on_the_wire(path: &str) -> String {
    path.trim_end_matches('/').replace('/', "\\")
}

pub(crate) fn lease(key: [u8; 16], state: LeaseState) -> Lease {
    let version = LeaseVersion::V2 { parent: None, epoch: 0 };
    Lease { key: LeaseKey(key), state, break_in_progress: false, version }
}

/// The body of a request. The data of READ and WRITE travels in the message or by RDMA, depending
/// on the connection.
#[derive(Debug)]
pub(crate) enum Body<'a> {
    Plain(Vec<u8>),
    /// Reads as much as a file of the model can have.
    Read(FileId),
    Write {
        id: FileId,
        offset: usize,
        data: &'a [u8],
    },
}

impl Body<'_> {
    pub(crate) fn of(emit: impl FnOnce(&mut Vec<u8>)) -> Self {
        // Offsets in a body count from the header.
        let mut bytes = vec![0; Header::LEN];
        emit(&mut bytes);
        Self::Plain(bytes.split_off(Header::LEN))
    }

    /// How much memory the request needs to move its data by RDMA.
    pub(crate) fn data_len(&self) -> Option<u32> {
        match self {
            Self::Plain(_) => None,
            Self::Read(_) => Some(LENGTH_MAX),
            Self::Write { data, .. } => u32::try_from(data.len()).ok(),
        }
    }

    /// Appends the body. `memory` describes where the data is or goes; without it the data is in the
    /// message.
    pub(crate) fn emit(&self, memory: Option<&[u8]>, out: &mut Vec<u8>) {
        let channel = if memory.is_some() { Channel::RDMA_V1 } else { Channel::NONE };
        let channel_info = memory.unwrap_or_default();
        match self {
            Self::Plain(bytes) => out.extend_from_slice(bytes),
            Self::Read(file_id) => ReadRequest {
                flags: ReadFlags::empty(),
                length: LENGTH_MAX,
                offset: 0,
                file_id: *file_id,
                minimum_count: 0,
                channel,
                remaining_bytes: 0,
                channel_info,
            }
            .emit(out),
            Self::Write { id, offset, data } => WriteRequest {
                offset: wide(*offset),
                file_id: *id,
                channel,
                remaining_bytes: memory.and_then(|_| self.data_len()).unwrap_or_default(),
                flags: WriteFlags::empty(),
                data: if memory.is_some() { &[] } else { data },
                channel_info,
            }
            .emit(out),
        }
    }
}

/// Takes a lock on a range at once or fails; `take` false releases the range.
pub(crate) fn lock(id: FileId, sequence: u32, range: Range, take: bool) -> LockRequest {
    let kind = if range.exclusive { LockFlags::EXCLUSIVE } else { LockFlags::SHARED };
    let flags = if take { kind | LockFlags::FAIL_IMMEDIATELY } else { LockFlags::UNLOCK };
    let locks = vec![LockElement { offset: range.offset, length: range.length, flags }];
    LockRequest { lock_sequence: sequence, file_id: id, locks }
}

pub(crate) fn set(id: FileId, class: FileInfoClass, buffer: &[u8]) -> SetInfoRequest<'_> {
    SetInfoRequest {
        info_type: InfoType::FILE,
        class: class.0,
        additional: SecurityInformation::empty(),
        file_id: id,
        buffer,
    }
}

pub(crate) fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// The rights that owners ask for: none of them excludes visitors.
pub(crate) const OWNER_ACCESS: AccessMask =
    AccessMask::FILE_GENERIC_READ.union(AccessMask::FILE_GENERIC_WRITE);
pub(crate) const SHARES_ALL: ShareAccess =
    ShareAccess::READ.union(ShareAccess::WRITE).union(ShareAccess::DELETE);
/// Length of the longest file, and the bytes that one credit pays for.
pub(crate) const LENGTH_MAX: u32 = 64 * 1024;
/// Longer than any series of kills keeps a client away.
const TIMEOUT_MS: u32 = 120_000;
