//! Renaming and linking, with everything that may stand in the way.
//!
//! Spec: MS-FSA §2.1.5.15.11 (rename), §2.1.5.15.6 (link).

use std::sync::Arc;

use smb::NtStatus;
use smb::create::AccessMask;
use smb::info::{Rename, RenameFlags};
use smb::push::RecallReason;

use super::Call;
use crate::dispatch::flush;
use crate::share::{DosAttributes, Located, Share, ShareError, SharePath};
use crate::state::Open;
use crate::state::lease::Intent;
use crate::state::node::Node;

/// Gives an open file another name.
pub(super) async fn rename(call: &Call, open: &Arc<Open>, new: &Rename) -> Result<(), NtStatus> {
    if !open.may(AccessMask::DELETE) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let target = Target::new(open, new)?;
    open.node.yield_caching(open.owner, Intent::Unlink).await;
    let core = Arc::clone(&call.link.core);
    if open.entry.is_directory() && core.nodes.is_open_below(&target.share, &target.from) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let to = target.clear(call, open, new).await?;
    let (share, from, key) = (Arc::clone(&target.share), target.from.clone(), open.node.key());
    let replace = target.replace;
    let inline = open.entry.inline_io();
    let renamed_to = to.clone();
    call.blocking(inline, move || share.rename(&from, &renamed_to, key, replace)).await??;
    if target.note_renamed(open, &to) {
        // One-sided commits do not look after the name, so it is made durable before they go on.
        let open = Arc::clone(open);
        let inline = open.entry.inline_io();
        call.blocking(inline, move || flush::persist_name(&open)).await??;
    }
    Ok(())
}

/// Gives an open file one more name.
pub(super) async fn link(call: &Call, open: &Arc<Open>, new: &Rename) -> Result<(), NtStatus> {
    if open.entry.is_directory() {
        return Err(NtStatus::FILE_IS_A_DIRECTORY);
    }
    let target = Target::new(open, new)?;
    let to = target.clear(call, open, new).await?;
    let (share, entry, replace) =
        (Arc::clone(&target.share), Arc::clone(&open.entry), target.replace);
    let inline = open.entry.inline_io();
    Ok(call.blocking(inline, move || share.link(&entry, &to, replace)).await??)
}

/// Where a name is to go.
struct Target {
    share: Arc<Share>,
    from: SharePath,
    wanted: SharePath,
    replace: bool,
}

impl Target {
    fn new(open: &Open, new: &Rename) -> Result<Self, NtStatus> {
        let share = Arc::clone(open.tree.share().ok_or(NtStatus::INVALID_PARAMETER)?);
        if share.is_read_only() {
            return Err(NtStatus::MEDIA_WRITE_PROTECTED);
        }
        let name = new.name.strip_prefix('\\').unwrap_or(&new.name);
        let wanted = SharePath::parse(name)?;
        let from = open.path();
        if wanted.is_root() || from.is_root() {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let replace = new.flags.contains(RenameFlags::REPLACE_IF_EXISTS);
        Ok(Self { share, from, wanted, replace })
    }

    // Says whether the file is mapped for push.
    fn note_renamed(&self, open: &Open, to: &SharePath) -> bool {
        let mut state = open.node.lock();
        for record in &mut state.opens {
            if record.path == self.from && Arc::ptr_eq(&record.share, &self.share) {
                record.path = to.clone();
            }
        }
        !state.regions.is_empty()
    }

    // Makes sure that the new name is free or may be taken; returns its spelling.
    async fn clear(
        &self,
        call: &Call,
        open: &Arc<Open>,
        new: &Rename,
    ) -> Result<SharePath, NtStatus> {
        let (share, wanted) = (Arc::clone(&self.share), self.wanted.clone());
        let inline = open.entry.inline_io();
        let work = move || -> Result<(Located, bool), ShareError> {
            let located = share.locate(&wanted)?;
            let read_only = match &located.found {
                Some(found) => {
                    let attributes = share.metadata_of(found)?.attributes;
                    attributes.contains(DosAttributes::READONLY)
                }
                None => false,
            };
            Ok((located, read_only))
        };
        let (located, read_only) = call.blocking(inline, work).await??;
        let Some(found) = located.found else { return Ok(located.path) };
        if found.key == open.node.key() {
            // The same file under another spelling: the client's spelling wins.
            return Ok(located.path.parent_with_leaf_of(&self.wanted));
        }
        let ignores = new.flags.contains(RenameFlags::IGNORE_READONLY_ATTRIBUTE);
        if !self.replace {
            return Err(NtStatus::OBJECT_NAME_COLLISION);
        }
        if found.is_directory || (read_only && !ignores) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        if let Some(victim) = call.link.core.nodes.existing(found.key) {
            evict(call, open, &victim).await?;
        }
        Ok(located.path)
    }
}

// MS-FSA §2.1.5.15.11: a name somebody has open is not taken from them, but whoever only caches
// a handle or maps a region is asked to let go first.
async fn evict(call: &Call, open: &Open, victim: &Arc<Node>) -> Result<(), NtStatus> {
    victim.yield_caching(open.owner, Intent::Unlink).await;
    crate::push::recall(&call.link.core, victim, RecallReason::RENAME_OVER, |_| true).await;
    if victim.lock().opens.is_empty() { Ok(()) } else { Err(NtStatus::ACCESS_DENIED) }
}
