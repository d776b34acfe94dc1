//! Renaming streams: to another stream of the same file, or to the file's unnamed one.
//!
//! ```text
//!  :other    what has the name gives way as a file would, and only where nobody has it open
//!  ::$DATA   the file's bytes are replaced: nobody may have the file open, nor anybody else the stream, and
//!            nobody gets them meanwhile; the handle of the stream, which is gone, takes nothing but CLOSE
//! ```
//!
//! Spec: MS-FSA §2.1.5.15.11.1 (stream rename).

use std::sync::Arc;

use smb::NtStatus;
use smb::info::Rename;
use smb::push::RecallReason;
use tree::{DosAttributes, InlineIo, Replace, ShareError, StreamName, StreamPart};

use super::target::{ATTEMPTS_MAX, evict, replacement};
use crate::access::{MayRemove, Remove};
use crate::dispatch::call::Call;
use crate::dispatch::flush;
use crate::state::Open;
use crate::state::caching::Intent;
use crate::state::making::Sighting;
use crate::state::node::Node;
use crate::status::OrStatus as _;

/// Gives an open stream another name; it stays with its file.
pub(super) async fn rename(
    call: &Call,
    open: &Arc<Open>,
    new: &Rename,
    leave: MayRemove,
) -> Result<(), NtStatus> {
    // What Windows answers to a name with a file in it.
    let Some(behind) = new.name.strip_prefix(':') else { return Err(NtStatus::SHARING_VIOLATION) };
    if !open.entry.is_stream() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    match StreamPart::parse(Some(behind)).or_status()? {
        StreamPart::Named(name) => to_named(call, open, new, name, leave).await,
        StreamPart::Unnamed => to_unnamed(call, open, new, leave).await,
        StreamPart::Index | StreamPart::Absent => Err(NtStatus::INVALID_PARAMETER),
    }
}

async fn to_named(
    call: &Call,
    open: &Arc<Open>,
    new: &Rename,
    name: StreamName,
    leave: MayRemove,
) -> Result<(), NtStatus> {
    let share = Arc::clone(open.tree.share().ok_or(NtStatus::INVALID_PARAMETER)?);
    let replaces = replacement(open, new, Remove::Replace)?;
    call.yield_caching(&open.node, open.owner, Intent::Unlink).await?;
    for _ in 0..ATTEMPTS_MAX {
        let (entry, share_too, wanted) =
            (Arc::clone(&open.entry), Arc::clone(&share), name.clone());
        let find = move || share_too.sibling(&entry, &wanted);
        let taken = call.blocking(InlineIo::CachedReads, find).await?.or_status()?;
        let taken = taken.filter(|key| *key != open.node.key());
        let replace = replaces.zip(taken).map(|(leave, key)| Replace::of(key, leave));
        let mut claimed = None;
        if let Some(key) = taken.filter(|_| replaces.is_some()) {
            if is_read_only(call, open).await? {
                return Err(NtStatus::ACCESS_DENIED);
            }
            let base = open.node.lock().record(open.serial).and_then(|record| record.base.clone());
            let base = base.ok_or(NtStatus::FILE_CLOSED)?.key();
            let sighting = || Sighting::of_stream(base, &name, key);
            if let Some(making) = call.core.files.nodes.makings.of(&share, sighting) {
                call.wait_for_work(making.settled(Some(key))).await?;
                continue;
            }
            claimed = evict(call, open, &call.core.files.nodes.node(key), None).await?;
            if claimed.is_none() {
                continue;
            }
        }
        let (entry, share, name) = (Arc::clone(&open.entry), Arc::clone(&share), name.clone());
        let work = move || {
            let _claimed = claimed;
            share.rename_stream(leave, &entry, &name, replace)
        };
        match call.changing(open, InlineIo::CachedReads, work).await? {
            Err(ShareError::Exists) if replaces.is_some() => {}
            renamed => {
                renamed.or_status()?;
                let is_mapped = open.node.lock().is_obstructed();
                return flush::persist_renamed(call, open, is_mapped).await;
            }
        }
    }
    Err(NtStatus::ACCESS_DENIED)
}

async fn to_unnamed(
    call: &Call,
    open: &Arc<Open>,
    new: &Rename,
    leave: MayRemove,
) -> Result<(), NtStatus> {
    let share = Arc::clone(open.tree.share().ok_or(NtStatus::INVALID_PARAMETER)?);
    // There is always an unnamed one, if only an empty one.
    let replace = replacement(open, new, Remove::ReplaceBytes)?;
    let base = open.node.lock().record(open.serial).and_then(|record| record.base.clone());
    let base = base.ok_or(NtStatus::FILE_CLOSED)?;
    if is_read_only(call, open).await? {
        return Err(NtStatus::ACCESS_DENIED);
    }
    // A persistent open of the file that could not be brought back yet keeps its bytes.
    if call.core.files.is_left_over(&share, base.key()) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    // Who only caches a handle, or maps a region, is asked to let go first.
    for node in [&open.node, &base] {
        call.yield_caching(node, open.owner, Intent::Unlink).await?;
        call.recall(node, RecallReason::RENAME_OVER, |region| region.open_serial != open.serial)
            .await?;
    }
    // What is written to the stream from now on would be lost.
    let unmapped = open.node.begin_resize();
    let alone = (Node::claim(&base, None)?, Node::claim(&open.node, Some(open.serial))?);
    let promoted = Arc::clone(open);
    let work = move || {
        let (_alone, _unmapped) = (alone, unmapped);
        promoted.supersede(|| share.promote_stream(leave, &promoted.entry, replace))
    };
    call.blocking(InlineIo::CachedReads, work).await??.or_status()
}

async fn is_read_only(call: &Call, open: &Open) -> Result<bool, NtStatus> {
    let entry = Arc::clone(&open.entry);
    let look = move || entry.metadata();
    let metadata = call.blocking(open.entry.inline_io(), look).await?.or_status()?;
    Ok(metadata.attributes.contains(DosAttributes::READONLY))
}
