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
use tree::InlineIo;

use super::asker::Asker;
use super::call::Call;
use super::frame::{Outcome, malformed};
use super::persist::{persist, persist_name};
use crate::access::{self, Look};
use crate::state::Open;

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

/// [`persist_name`] of a file that was renamed, before the answer, where the handle writes through or the file `is_mapped`:
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

fn check(open: Arc<Open>) -> Result<Arc<Open>, NtStatus> {
    access::admit(&open, Look::Flush)?;
    Ok(open)
}
