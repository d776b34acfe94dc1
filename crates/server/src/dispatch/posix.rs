//! The SMB3 POSIX extensions: what is said of files to clients that know owners, modes and links.
//!
//! ```text
//!  NEGOTIATE   context 0x100 with the version's GUID, answered with the same
//!  CREATE      context of that GUID: names as they are written, separated by slashes, links not followed
//!  QUERY_INFO  class 100 of files and of file systems; QUERY_DIRECTORY class 100
//!  security    descriptors with the mode as S-1-5-88-3-mode, owners as S-1-22: read and set
//! ```
//!
//! Which CREATEs were of this kind is seen by the open's path ([`Naming`]).
//!
//! Spec: SMB3 POSIX extensions; what cifs.ko of Linux 6.12 sends.

use std::sync::Arc;

use smb::create::{AccessMask, PosixResponse};
use smb::fsctl::{ReparsePoint, SYMLINK_TAG, SymlinkReparse};
use smb::info::security::{Ace, Control, Dacl, SecurityDescriptor, Sid};
use smb::info::{FileAttributes, FsPosix, PosixInfo, PosixKind, SecurityInformation};
use smb::push::RecallReason;
use smb::{ErrorContext, ErrorResponse, FileTime, Name, NtStatus, SymlinkError};
use tracing::debug;
use tree::{Entry, InlineIo, Metadata, Naming, Share, ShareError, SharePath};

use super::call::Call;
use super::frame::malformed;
use crate::access::deletion::holds_a_share;
use crate::access::{self, Set};
use crate::limits::TRANSACT_SIZE_MAX;
use crate::state::Open;
use crate::state::caching::Intent;
use crate::state::node::Node;
use crate::status::OrStatus as _;

/// Whether an open was made by the rules of POSIX.
pub(super) fn is_posix(open: &Open) -> bool {
    open.path().naming() == Naming::Posix
}

/// What the answer to CREATE says of a file.
pub(super) fn facts(found: &Metadata) -> PosixResponse {
    let posix = found.posix;
    let kind = match (posix.is_link, found.is_directory) {
        (true, _) => PosixKind::Symlink,
        (false, true) => PosixKind::Directory,
        (false, false) => PosixKind::Regular,
    };
    PosixResponse {
        links: found.links,
        reparse_tag: if posix.is_link { SYMLINK_TAG } else { 0 },
        mode: kind.mode(posix.permissions),
        owner: Sid::unix_user(posix.uid),
        group: Sid::unix_group(posix.gid),
    }
}

/// Class 100 of files.
pub(super) fn info(file_id: u64, found: &Metadata) -> PosixInfo {
    // Major and minor number as they were before there were more than 256 of each: it only has to differ.
    let device = (found.key.device >> 32 << 8) | (found.key.device & 0xff);
    PosixInfo {
        creation_time: FileTime(found.creation),
        last_access_time: FileTime(found.access),
        last_write_time: FileTime(found.write),
        change_time: FileTime(found.change),
        end_of_file: found.size,
        allocation_size: found.allocation,
        attributes: FileAttributes::from_bits_retain(found.attributes.0),
        inode: file_id,
        device: u32::try_from(device).unwrap_or(u32::MAX),
        facts: facts(found),
    }
}

/// Class 100 of file systems.
pub(super) fn file_system(share: &Share, entry: &Entry) -> Result<FsPosix, ShareError> {
    let size = share.volume_size(entry)?;
    Ok(FsPosix {
        optimal_transfer_size: TRANSACT_SIZE_MAX,
        block_size: size.unit_bytes,
        total_blocks: size.total_units,
        available_blocks: size.free_units,
        user_available_blocks: size.available_units,
        total_file_nodes: size.total_nodes,
        free_file_nodes: size.free_nodes,
        id: entry.key().device,
    })
}

/// Owner, group and mode as a descriptor; whoever reads the share may do what it allows.
pub(super) fn descriptor(open: &Open, parts: SecurityInformation) -> Result<Vec<u8>, NtStatus> {
    let posix = open.entry.metadata().or_status()?.posix;
    let wants = |part| parts.contains(part);
    let mode = Ace::allow(AccessMask::empty(), Sid::unix_mode(posix.permissions));
    let everyone = Ace::allow(open.tree.rights.mask(), Sid::everyone());
    let dacl = if wants(SecurityInformation::DACL) {
        Dacl::Aces(vec![mode, everyone])
    } else {
        Dacl::Absent
    };
    let descriptor = SecurityDescriptor {
        control: Control::empty(),
        owner: wants(SecurityInformation::OWNER).then(|| Sid::unix_user(posix.uid)),
        group: wants(SecurityInformation::GROUP).then(|| Sid::unix_group(posix.gid)),
        dacl,
    };
    let mut bytes = Vec::new();
    descriptor.emit(&mut bytes);
    Ok(bytes)
}

/// chmod and chown. What else a descriptor says cannot be kept, and is refused.
pub(super) async fn set_security(
    call: &Call,
    open: &Arc<Open>,
    parts: SecurityInformation,
    buffer: &[u8],
) -> Result<(), NtStatus> {
    let settable =
        SecurityInformation::OWNER | SecurityInformation::GROUP | SecurityInformation::DACL;
    if parts.contains(SecurityInformation::SACL) || !parts.intersects(settable) {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let leave = access::admit(open, Set::Security(parts))?;
    let wish = SecurityWish::of(&SecurityDescriptor::parse(buffer).map_err(malformed)?, parts)?;
    let share = Arc::clone(open.tree.share().ok_or(NtStatus::INVALID_PARAMETER)?);
    let (entry, inline) = (Arc::clone(&open.entry), open.entry.inline_io());
    let work = move || {
        // The owner first: chown(2) takes set-ID bits away.
        share.set_owner(leave, &entry, wish.uid, wish.gid)?;
        wish.mode.map_or(Ok(()), |mode| share.set_permissions(leave, &entry, mode))
    };
    let outcome = call.changing(open, inline, work).await?;
    if let Err(error) = &outcome {
        debug!(path = open.path().to_wire(), %error, ?wish, "owner or mode not set");
    }
    outcome.or_status()
}

/// What a descriptor asks for, as far as files here can have it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct SecurityWish {
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
}

impl SecurityWish {
    fn of(given: &SecurityDescriptor, parts: SecurityInformation) -> Result<Self, NtStatus> {
        let mut wish = Self::default();
        if parts.contains(SecurityInformation::OWNER) {
            let owner = given.owner.as_ref().and_then(Sid::to_unix_user);
            wish.uid = Some(owner.ok_or(NtStatus::INVALID_OWNER)?);
        }
        if parts.contains(SecurityInformation::GROUP) {
            let group = given.group.as_ref().and_then(Sid::to_unix_group);
            wish.gid = Some(group.ok_or(NtStatus::INVALID_PRIMARY_GROUP)?);
        }
        if parts.contains(SecurityInformation::DACL) {
            // An access list without a mode says what a mode cannot.
            wish.mode = Some(mode_of(given).ok_or(NtStatus::NOT_SUPPORTED)?);
        }
        Ok(wish)
    }
}

/// The permission bits among the entries of an access list.
pub(super) fn mode_of(given: &SecurityDescriptor) -> Option<u32> {
    let Dacl::Aces(aces) = &given.dacl else { return None };
    aces.iter().find_map(|ace| match ace {
        Ace::Basic { sid, .. } => sid.to_unix_mode(),
        Ace::Opaque { .. } => None,
    })
}

/// The answer to a CREATE whose name ends in a symbolic link: where it points to. MS-SMB2 §2.2.2.2.1.
pub(super) fn stopped(
    share: &Share,
    path: &SharePath,
    out: &mut Vec<u8>,
) -> Result<NtStatus, NtStatus> {
    let found = share.locate(path).or_status()?.found.filter(|found| found.is_link);
    // Replaced since: the client may try again.
    let found = found.ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let target = Name::new(share.link_target(&found, path).or_status()?)
        .map_err(|_| NtStatus::ACCESS_DENIED)?;
    let error = SymlinkError {
        unparsed_length: 0,
        relative: true,
        substitute: target.clone(),
        print: target,
    };
    let mut data = Vec::new();
    error.emit(&mut data);
    ErrorResponse::Contexts(vec![ErrorContext { id: 0, data: &data }]).emit(out);
    Ok(NtStatus::STOPPED_ON_SYMLINK)
}

/// FSCTL_GET_REPARSE_POINT.
pub(super) async fn reparse_point(call: &Call, open: &Arc<Open>) -> Result<Vec<u8>, NtStatus> {
    let share = Arc::clone(open.tree.share().ok_or(NtStatus::INVALID_PARAMETER)?);
    let path = open.path();
    if path.naming() != Naming::Posix {
        return Err(NtStatus::NOT_A_REPARSE_POINT);
    }
    let work = move || {
        let found = share.locate(&path)?.found.filter(|found| found.is_link);
        found.map(|found| share.link_target(&found, &path)).transpose()
    };
    let target = call
        .blocking(InlineIo::CachedReads, work)
        .await?
        .or_status()?
        .ok_or(NtStatus::NOT_A_REPARSE_POINT)?;
    let name = Name::new(target).map_err(|_| NtStatus::ACCESS_DENIED)?;
    let mut output = Vec::new();
    SymlinkReparse { relative: true, substitute: name.clone(), print: name }.emit(&mut output);
    Ok(output)
}

/// FSCTL_SET_REPARSE_POINT: a new file becomes a symbolic link, if nobody else has it open.
pub(super) async fn set_reparse_point(
    call: &Call,
    open: &Arc<Open>,
    input: &[u8],
) -> Result<(), NtStatus> {
    if !is_posix(open) {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let leave = access::admit(open, Set::ReparsePoint)?;
    let ReparsePoint::Symlink(link) = ReparsePoint::parse(input).map_err(malformed)? else {
        return Err(NtStatus::NOT_SUPPORTED);
    };
    // cifs.ko takes the first slash away from what it calls absolute.
    if !link.relative {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let share = Arc::clone(open.tree.share().ok_or(NtStatus::INVALID_PARAMETER)?);
    // A persistent open of the file that could not be brought back yet keeps it.
    if call.core.files.is_left_over(&share, open.node.key()) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    // Other clients that only cache a handle, or map a region, are asked to let go first.
    call.yield_caching(&open.node, open.owner, Intent::Unlink).await?;
    call.recall(&open.node, RecallReason::RENAME_OVER, |_| true).await?;
    // What others write to the file from now on would be lost.
    let unmapped = open.node.begin_resize();
    let alone = Node::claim(&open.node, Some(open.serial))?;
    if !open.node.lock().streams.is_empty() {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let (files, open_too) = (Arc::clone(&call.core.files), Arc::clone(open));
    // Of the link, beside that of the file.
    let place = open.another_place().or_status()?;
    let work = move || {
        let (_alone, _unmapped) = (alone, unmapped);
        let (entry, path) = (&open_too.entry, open_too.path());
        if entry.is_directory() && holds_a_share(&files.shares(), &share, entry.key()) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        // What is written through this handle meanwhile makes a file that is not empty.
        let turn = || share.turn_into_link(leave, entry, &path, &link.substitute);
        let turned = open_too.supersede(turn)?;
        turned.map(|()| open_too.keep_place(place)).or_status()
    };
    call.blocking(InlineIo::CachedReads, work).await?
}
