//! Making what is not there yet: files and directories, and the entry of what was just made.
//!
//! What was made can be found before its open is in its node: by then others may have it open, or have given
//! its name to something else.
//!
//! Spec: MS-FSA §2.1.5.1.1.

use std::sync::Arc;

use smb::NtStatus;
use smb::create::CreateAction;

use super::attempt::{Attempt, Created, new_record};
use super::wish::Wish;
use crate::service::Core;
use crate::share::{DosAttributes, Entry, Remembered, Share, ShareError, SharePath, StreamPart};
use crate::state::node::{Node, OpenRecord};
use crate::state::taking::Seen;

/// Tries once to make what `path` names, which was not there. May block.
pub(super) fn create(
    core: &Core,
    share: &Arc<Share>,
    wish: &Wish,
    path: SharePath,
    seen: Seen,
) -> Result<Attempt, NtStatus> {
    let leave = wish.may_add()?;
    if wish.stream == StreamPart::Unnamed && wish.wants_directory() {
        return Err(NtStatus::NOT_A_DIRECTORY);
    }
    // MS-FSA §2.1.5.1.1: it would never go away again.
    if wish.deletes_on_close() && wish.attributes.contains(DosAttributes::READONLY) {
        return Err(NtStatus::CANNOT_DELETE);
    }
    if core.lease_keys.names_another(wish.owner, None) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let remembered = if wish.wants_directory() { None } else { share.remembered(&path) };
    let (path, creation) = match remembered {
        Some(Remembered { path, creation }) => (path, Some(creation)),
        None => (path, None),
    };
    if core.nodes.takings.is_moving(share, &path) {
        return Ok(Attempt::Moving(path));
    }
    let created = if wish.wants_directory() {
        share.create_directory(leave, &path, wish.attributes)
    } else {
        share.create_file(leave, &path, wish.attributes)
    };
    let entry = match created {
        Ok(entry) => entry,
        Err(ShareError::Exists) => return Ok(Attempt::Again),
        Err(error) => return Err(error.into()),
    };
    if let Some(creation) = creation {
        // Where it cannot be kept the file was created now.
        let _ = entry.inherit_creation(creation);
    }
    if let Err(error) = furnish(share, &entry, wish) {
        // What the client did not get in full it does not get at all.
        let _ = share.unmake(leave, &path, &entry);
        return Err(error);
    }
    let node = core.nodes.node(entry.key());
    let sharing = wish.sharing(wish.grant.of_new());
    let record = new_record(core, wish, share, sharing, path.clone(), entry.key())?;
    // Nothing fails once it is entered.
    let metadata = entry.metadata()?;
    let is_named = || {
        let found = share.locate(&path)?.found;
        Ok(found.is_some_and(|found| found.key == entry.key()))
    };
    if let Some(wait) = enter(core, &node, record, seen, is_named)? {
        wish.note_made(entry.key());
        // Only looked at by us, it goes again.
        if let Attempt::Moving(_) = wait
            && let Ok(_alone) = Node::claim(&node, None)
        {
            let _ = share.unmake(leave, &path, &entry);
        }
        return Ok(wait);
    }
    let action = CreateAction::CREATED;
    Ok(Attempt::Done(Box::new(Created { entry, node, metadata, action })))
}

/// Enters the open of what was just made, which others may have found: they may exclude us, or have taken its
/// name already.
pub(super) fn enter(
    core: &Core,
    node: &Arc<Node>,
    record: OpenRecord,
    mut seen: Seen,
    is_named: impl Fn() -> Result<bool, ShareError>,
) -> Result<Option<Attempt>, NtStatus> {
    for _ in 0..LOOKS_MAX {
        {
            let mut state = node.lock();
            if state.removing {
                return Ok(Some(Attempt::Going(Arc::clone(node))));
            }
            if core.nodes.takings.is_moving(&record.share, &record.path) {
                return Ok(Some(Attempt::Moving(record.path)));
            }
            if state.delete_pending.is_some() {
                return Err(NtStatus::DELETE_PENDING);
            }
            if !state.admits(record.sharing) {
                return Err(NtStatus::SHARING_VIOLATION);
            }
            if node.has_kept_names_since(&seen) {
                state.opens.push(record);
                return Ok(None);
            }
        }
        seen = core.nodes.takings.seen();
        if !is_named()? {
            return Ok(Some(Attempt::Again));
        }
    }
    Ok(Some(Attempt::Again))
}

// What a new file has beside its name.
fn furnish(share: &Share, entry: &Entry, wish: &Wish) -> Result<(), NtStatus> {
    let leave = wish.grant.may_furnish()?;
    if let Some(permissions) = wish.permissions {
        share.set_first_permissions(leave, entry, permissions)?;
    }
    if let Some(allocation) = wish.allocation.filter(|_| !entry.is_directory()) {
        entry.set_allocation(allocation)?;
    }
    Ok(entry.set_extended_attributes(leave, &wish.extended)?)
}

/// How often the name of a new file is looked up that others take meanwhile.
const LOOKS_MAX: usize = 64;
