//! What a client wants of a CREATE, checked as far as that goes without looking at the file.
//!
//! Spec: MS-SMB2 §3.3.5.9, MS-FSA §2.1.5.1 phase 1.

use std::sync::Arc;

use smb::NtStatus;
use smb::create::{
    AccessMask, CreateAction, CreateDisposition, CreateOptions, CreateRequest,
    CreateRequestContext, LeaseVersion, OplockLevel, ShareAccess,
};
use smb::info::FileAttributes;
use smb::info::security::SecurityDescriptor;
use smb::negotiate::Dialect;
use smb::push::PushRequest;
use tree::{DosAttributes, ExtendedAttribute, SEPARATORS, SharePath, StreamPart};

use crate::access::{Grant, MayAdd, MaySet};
use crate::access::{Identity, Tree};
use crate::connections::Agreed;
use crate::dispatch::frame::malformed;
use crate::dispatch::{extended, levels, posix};
use crate::limits::EA_NAMES_INLINE_MAX;
use crate::state::app_instance::AppInstance;
use crate::state::caching::{Caching as Bits, Flavor};
use crate::state::lease::Owner;
use crate::state::node::OpenRecord;
use crate::state::sharing::{Kinds, Sharing};
use crate::state::{Open, OpenSerial};
use crate::status::OrStatus as _;

/// A checked CREATE.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) serial: OpenSerial,
    pub(super) path: SharePath,
    pub(super) stream: StreamPart,
    /// As they came, of a file that is made or overwritten.
    extended: Box<[u8]>,
    /// Bytes of their names.
    extended_names: usize,
    pub(super) disposition: CreateDisposition,
    pub(super) attributes: DosAttributes,
    pub(super) allocation: Option<u64>,
    pub(super) owner: Owner,
    pub(super) caching: Caching,
    pub(super) wants_maximal_access: bool,
    pub(super) wants_disk_id: bool,
    pub(super) push: Option<PushWish>,
    /// Who asks for push mode.
    pushes_for: Option<Identity>,
    pub(super) instance: Option<AppInstance>,
    /// Made by the rules of POSIX.
    pub(super) is_posix: bool,
    /// Permission bits of a new file; without, those that files of others get.
    pub(super) permissions: Option<u32>,
    /// What of it is allowed.
    pub(super) grant: Grant,
    shares: ShareAccess,
    options: CreateOptions,
}

/// A push context as far as it could be read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PushWish {
    Asked(PushRequest),
    UnknownVersion,
}

/// An open by the rules of POSIX.
#[derive(Clone, Copy, Debug)]
struct PosixWish {
    permissions: Option<u32>,
}

impl PosixWish {
    fn of(request: &CreateRequest<'_>, client: &Agreed) -> Option<Self> {
        let mut contexts = request.contexts.iter().filter(|_| client.posix);
        contexts.find_map(|context| match context {
            CreateRequestContext::Posix { mode } => {
                // cifs.ko says all ones where it has no mode, and stat's kind of file where it has.
                let has_none = mode & MODE_KIND == MODE_KIND;
                let permissions = (!has_none).then_some(mode & MODE_PERMISSIONS);
                Some(Self { permissions })
            }
            _ => None,
        })
    }
}

/// What the client wants to cache.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caching {
    Nothing,
    Oplock(OplockLevel),
    Lease { key: [u8; 16], state: Bits, version: LeaseVersion },
}

impl Caching {
    pub(super) fn wanted(self) -> Option<(Bits, Flavor, u16)> {
        match self {
            Self::Nothing => None,
            Self::Oplock(level) => Some((levels::from_level(level), Flavor::Oplock, 0)),
            Self::Lease { state, version: LeaseVersion::V1, .. } => {
                Some((state, Flavor::LeaseV1, 0))
            }
            Self::Lease { state, version: LeaseVersion::V2 { epoch, .. }, .. } => {
                Some((state, Flavor::LeaseV2, epoch))
            }
        }
    }
}

impl Wish {
    pub(super) fn check(
        request: &CreateRequest<'_>,
        tree: &Tree,
        client: &Agreed,
        user: &Identity,
        serial: OpenSerial,
    ) -> Result<Self, NtStatus> {
        check_fields(request)?;
        let posix = PosixWish::of(request, client);
        // MS-SMB2 §3.3.5.9: names are relative to the share and begin with no separator.
        if posix.is_none() && request.name.starts_with(SEPARATORS) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let (path, stream) = match posix {
            Some(_) => (SharePath::parse_posix(&request.name).or_status()?, StreamPart::Absent),
            None => SharePath::parse_with_stream(&request.name).or_status()?,
        };
        let (desired, disposition) = (request.desired_access, request.disposition);
        let grant = Grant::decide(desired, disposition, request.options, tree)?;
        let asked = DosAttributes(request.attributes.bits());
        let mut wish = Self {
            serial,
            path,
            stream,
            extended: Box::default(),
            extended_names: 0,
            disposition,
            // A file that nobody may write is read-only by its mode, which may change again.
            attributes: match posix {
                Some(_) => asked.without(DosAttributes::READONLY),
                None => asked,
            },
            allocation: None,
            owner: Owner::Open(serial),
            caching: Caching::Nothing,
            wants_maximal_access: false,
            wants_disk_id: false,
            push: None,
            pushes_for: None,
            instance: None,
            is_posix: posix.is_some(),
            permissions: posix.and_then(|posix| posix.permissions),
            grant,
            shares: request.share_access,
            options: request.options,
        };
        check_attributes(request.attributes)?;
        wish.take_contexts(request, client, user)?;
        Ok(wish)
    }

    fn take_contexts(
        &mut self,
        request: &CreateRequest<'_>,
        client: &Agreed,
        user: &Identity,
    ) -> Result<(), NtStatus> {
        if matches!(
            request.oplock_level,
            OplockLevel::II | OplockLevel::EXCLUSIVE | OplockLevel::BATCH
        ) {
            self.caching = Caching::Oplock(request.oplock_level);
        }
        for context in &request.contexts {
            match context {
                CreateRequestContext::Lease(lease)
                    if request.oplock_level == OplockLevel::LEASE
                        && client.dialect >= Dialect::SMB_2_1 =>
                {
                    let (key, state) = (lease.key.0, Bits(lease.state.bits()).sanitized());
                    let version = lease.version;
                    let (client, user) = (client.client_guid, user.mark());
                    self.owner = Owner::Lease { client, key, user };
                    self.caching = Caching::Lease { key, state, version };
                }
                CreateRequestContext::MaximalAccess(_) => self.wants_maximal_access = true,
                CreateRequestContext::QueryOnDiskId => self.wants_disk_id = true,
                CreateRequestContext::AllocationSize(size) => self.allocation = Some(*size),
                CreateRequestContext::Push(asked) => {
                    self.push = Some(PushWish::Asked(*asked));
                    self.pushes_for = Some(user.clone());
                }
                CreateRequestContext::PushUnknownVersion(_) => {
                    self.push = Some(PushWish::UnknownVersion);
                }
                // MS-SMB2 §3.3.5.9.13: means nothing without a handle that can be told apart.
                CreateRequestContext::AppInstanceId(id)
                    if client.dialect >= Dialect::SMB_3_0 && has_create_guid(request) =>
                {
                    let (client, version) = (client.client_guid, version_of(request));
                    self.instance =
                        Some(AppInstance { id: id.0, client, user: user.clone(), version });
                }
                // No previous versions: MS-SMB2 §3.3.5.9.
                CreateRequestContext::Timewarp(_) => return Err(NtStatus::OBJECT_NAME_NOT_FOUND),
                // What Linux says with `modefromsid`. Access lists are not kept.
                CreateRequestContext::SecurityDescriptor(given)
                    if client.posix && !self.is_posix =>
                {
                    let given = SecurityDescriptor::parse(given).map_err(malformed)?;
                    // All bits: it has no mode.
                    self.permissions =
                        posix::mode_of(&given).filter(|mode| *mode != MODE_PERMISSIONS);
                }
                CreateRequestContext::ExtendedAttributes(list) => {
                    let named = extended::parse(list)?;
                    if self.creates() || self.overwrites() {
                        self.extended = (*list).into();
                        self.extended_names = extended::names(&named);
                    }
                }
                // Durability is looked at before: see the module of that name.
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn wants_directory(&self) -> bool {
        self.options.contains(CreateOptions::DIRECTORY_FILE)
    }

    /// Means a symbolic link itself.
    pub(super) fn opens_links(&self) -> bool {
        self.options.contains(CreateOptions::OPEN_REPARSE_POINT)
    }

    pub(super) fn refuses_directory(&self) -> bool {
        self.options.contains(CreateOptions::NON_DIRECTORY_FILE)
    }

    pub(super) fn deletes_on_close(&self) -> bool {
        self.grant.deletes_on_close().is_some()
    }

    /// The options FileModeInformation (MS-FSCC §2.4) reports.
    pub(super) fn mode(&self) -> u32 {
        self.options.bits() & 0x0000_103e
    }

    /// Opens a file or directory that exists, and changes nothing of it or of other opens.
    pub(super) fn takes_what_is_there(&self) -> bool {
        matches!(self.disposition, CreateDisposition::OPEN | CreateDisposition::OPEN_IF)
            && !matches!(self.stream, StreamPart::Named(_))
            && self.instance.is_none()
    }

    /// Descriptors that the open will have.
    pub(super) fn descriptors(&self) -> usize {
        if matches!(self.stream, StreamPart::Named(_)) { tree::STREAM_DESCRIPTORS } else { 1 }
    }

    /// Whether it is much work to carry out, whatever it finds.
    pub(super) fn is_much(&self) -> bool {
        self.allocation.is_some_and(tree::is_much) || self.extended_names > EA_NAMES_INLINE_MAX
    }

    /// Extended attributes of a file that is made or overwritten.
    pub(super) fn extended(&self) -> Result<Vec<ExtendedAttribute>, NtStatus> {
        Ok(extended::own(&extended::parse(&self.extended)?))
    }

    /// Makes what is not there.
    pub(super) fn creates(&self) -> bool {
        !matches!(self.disposition, CreateDisposition::OPEN | CreateDisposition::OVERWRITE)
    }

    /// Replaces what the file holds.
    pub(super) fn overwrites(&self) -> bool {
        self.grant.overwrites()
    }

    /// Leave to replace it.
    pub(super) fn may_overwrite(&self) -> Result<MaySet, NtStatus> {
        self.grant.may_overwrite(self.disposition)
    }

    /// Leave to make a file.
    pub(super) fn may_add(&self) -> Result<MayAdd, NtStatus> {
        self.grant.may_add()
    }

    /// What overwriting is called in the answer.
    pub(super) fn overwriting_action(&self) -> CreateAction {
        match self.disposition {
            CreateDisposition::SUPERSEDE => CreateAction::SUPERSEDED,
            _ => CreateAction::OVERWRITTEN,
        }
    }

    /// MS-FSA §2.1.5.1.2.2: what the open uses and leaves to others.
    pub(super) fn sharing(&self, access: AccessMask) -> Sharing {
        let reads = AccessMask::READ_DATA | AccessMask::EXECUTE;
        let writes = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
        Sharing {
            uses: Kinds {
                read: access.intersects(reads),
                write: access.intersects(writes),
                delete: access.contains(AccessMask::DELETE),
            },
            shares: Kinds {
                read: self.shares.contains(ShareAccess::READ),
                write: self.shares.contains(ShareAccess::WRITE),
                delete: self.shares.contains(ShareAccess::DELETE),
            },
        }
    }

    /// The same while the open is entered beside others: an overwrite writes once, whatever the open may do later.
    pub(super) fn sharing_to_enter(&self, sharing: Sharing) -> Sharing {
        let uses = Kinds { write: sharing.uses.write || self.overwrites(), ..sharing.uses };
        Sharing { uses, ..sharing }
    }

    /// Whether it is of an application that has moved here from where it opened that.
    pub(super) fn succeeds(&self, other: &OpenRecord) -> bool {
        let both = self.instance.as_ref().zip(other.instance.as_ref());
        both.is_some_and(|(here, there)| here.succeeds(there))
    }

    /// docs/push-mode.md, "Create context": whether it opens the file once more for push mode, under the lease of `other`, for the
    /// same user and no more access. Then the share modes of the two, which keep others out, do not exclude each other.
    pub(super) fn pushes_beside(&self, other: &OpenRecord, sharing: Sharing) -> bool {
        let is_same_user = |open: Arc<Open>| self.pushes_for.as_ref() == Some(&open.origin.user);
        self.disposition == CreateDisposition::OPEN
            && matches!(self.owner, Owner::Lease { .. })
            && other.owner == self.owner
            && sharing.uses.within(other.sharing.uses)
            && other.open.upgrade().is_some_and(is_same_user)
    }

    /// Whether it is more than a look for who holds an oplock.
    pub(super) fn looks_at_security(&self) -> bool {
        self.grant.desired().contains(AccessMask::READ_CONTROL)
    }

    /// MS-FSA §2.1.5.1.2: opens that only look at attributes break no oplock.
    pub(super) fn only_looks(&self) -> bool {
        let looks = AccessMask::READ_ATTRIBUTES
            | AccessMask::WRITE_ATTRIBUTES
            | AccessMask::READ_CONTROL
            | AccessMask::SYNCHRONIZE;
        looks.contains(self.grant.desired()) && !self.overwrites() && !self.deletes_on_close()
    }
}

fn has_create_guid(request: &CreateRequest<'_>) -> bool {
    request.contexts.iter().any(|context| matches!(context, CreateRequestContext::DurableV2(_)))
}

fn version_of(request: &CreateRequest<'_>) -> Option<(u64, u64)> {
    request.contexts.iter().find_map(|context| match context {
        CreateRequestContext::AppInstanceVersion { high, low } => Some((*high, *low)),
        _ => None,
    })
}
const MODE_KIND: u32 = 0o170_000;
const MODE_PERMISSIONS: u32 = 0o7777;
const OPTIONS_UNKNOWN: u32 = 0xff00_0000;
// Tree connection, open by file id, filter oplock.
const OPTIONS_NOT_SERVED: u32 = 0x0010_2080;
// Volume label, device, and all from the integrity bit up.
const ATTRIBUTES_UNKNOWN: u32 = 0xffff_8048;

// MS-FSCC §2.6: attributes that no file has, and one that no file has here.
fn check_attributes(attributes: FileAttributes) -> Result<(), NtStatus> {
    if attributes.bits() & ATTRIBUTES_UNKNOWN != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // Nothing is encrypted at rest on behalf of a client.
    if attributes.contains(FileAttributes::ENCRYPTED) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(())
}

fn check_fields(request: &CreateRequest<'_>) -> Result<(), NtStatus> {
    if request.impersonation.0 > 3 {
        return Err(NtStatus::BAD_IMPERSONATION_LEVEL);
    }
    let both = CreateOptions::DIRECTORY_FILE | CreateOptions::NON_DIRECTORY_FILE;
    let is_overwrite = matches!(
        request.disposition,
        CreateDisposition::SUPERSEDE
            | CreateDisposition::OVERWRITE
            | CreateDisposition::OVERWRITE_IF
    );
    if request.disposition.0 > CreateDisposition::OVERWRITE_IF.0
        || request.share_access.bits() > 7
        || request.options.contains(both)
        || (is_overwrite && request.options.contains(CreateOptions::DIRECTORY_FILE))
    {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // MS-SMB2 §2.2.13: bits without a meaning.
    if request.options.bits() & OPTIONS_UNKNOWN != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if request.options.bits() & OPTIONS_NOT_SERVED != 0 {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
