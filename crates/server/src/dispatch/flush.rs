//! FLUSH: everything written to the file so far becomes durable, as far as its medium can, and the
//! file's name with it.
//!
//! On tmpfs nothing can become durable and fsync(2) succeeds all the same; so does FLUSH, as with
//! every server. A client that must know asks for the durability class (push context).
//!
//! Spec: MS-SMB2 §3.3.5.11.

use std::sync::Arc;

use smb::Empty;
use smb::FlushRequest;
use smb::NtStatus;
use tree::{InlineIo, ShareError};

use super::call::{Asker, Call};
use super::frame::Outcome;
use super::malformed;
use crate::access::{self, Look};
use crate::push;
use crate::state::Open;
use crate::status::OrStatus as _;

/// Answers on the spot where there is nothing to wait for.
pub(super) fn now(asker: Asker<'_>, pdu: &[u8], out: &mut Vec<u8>) -> Option<Outcome> {
    let request = match FlushRequest::parse(pdu) {
        Ok(request) => request,
        Err(error) => return Some(Err(error.status())),
    };
    let open = match asker.open(request.file_id).and_then(check) {
        Ok(open) => open,
        Err(_) if asker.is_on_pipes() => return None,
        Err(status) => return Some(Err(status)),
    };
    if open.entry.inline_io() != InlineIo::Everything {
        return None;
    }
    Empty.emit(out);
    Some(Ok(NtStatus::SUCCESS))
}

/// Answers when the bytes are durable.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let file_id = FlushRequest::parse(call.pdu()).map_err(malformed)?.file_id;
    let open = check(call.open(file_id)?)?;
    let inline = open.entry.inline_io();
    call.blocking(inline, move || persist(&open)).await??;
    Empty.emit(out);
    Ok(NtStatus::SUCCESS)
}

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

/// The same of a file that was renamed, before the answer, where the handle writes through or the file `is_mapped`:
/// one-sided commits do not look after the name.
pub(super) async fn persist_renamed(
    call: &Call,
    open: &Arc<Open>,
    is_mapped: bool,
) -> Result<(), NtStatus> {
    if !is_mapped && !open.is_write_through() {
        return Ok(());
    }
    let (inline, open) = (open.entry.inline_io(), Arc::clone(open));
    call.blocking(inline, move || persist_name(&open)).await?
}

fn failed(_: ShareError) -> NtStatus {
    NtStatus::IO_DEVICE_ERROR
}

fn check(open: Arc<Open>) -> Result<Arc<Open>, NtStatus> {
    access::admit(&open, Look::Flush)?;
    Ok(open)
}
