//! Making a file and its name durable.

use smb::NtStatus;
use tree::ShareError;

use crate::push;
use crate::state::Open;
use crate::status::OrStatus as _;

/// Makes the file's data durable, sharing the flush with everyone who waits for one, and then its
/// name. Blocks.
///
/// # Durability
///
/// After `Ok`, everything written through this server or any other way before the call survives
/// a crash, if the file's medium is not volatile, and the file is found by the name it has; a crash
/// before that leaves each of the two as it may.
pub(crate) fn persist(open: &Open) -> Result<(), NtStatus> {
    let share = open.tree.share().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    if open.entry.is_directory() {
        share.persist_entries(&open.entry).map_err(failed)?;
        return persist_name(open);
    }
    if open.entry.is_link() {
        return persist_name(open);
    }
    // What a device has placed in the file's memory may lie in caches that no system call knows.
    push::persist_unseen(&open.node).map_err(|_| NtStatus::DATA_ERROR)?;
    // MS-SMB2 §3.3.5.11: what the store says. Nothing is retried into success.
    open.entry.persist(&open.node.flushes_for(open)).or_status()?;
    persist_name(open)
}

/// Makes the name of an open file durable, and of a stream what binds it to its file. Blocks.
///
/// # Durability
///
/// As [`tree::Share::persist_name`] and [`tree::Share::persist_binding`].
pub(crate) fn persist_name(open: &Open) -> Result<(), NtStatus> {
    let Some(share) = open.tree.share() else { return Ok(()) };
    // What binds a stream to its file is in the file.
    share.persist_binding(&open.entry).map_err(failed)?;
    share.persist_name(&open.entry).map_err(failed)
}

fn failed(_: ShareError) -> NtStatus {
    NtStatus::IO_DEVICE_ERROR
}
