//! CLOSE.
//!
//! Spec: MS-SMB2 §3.3.5.10.

use std::ops::ControlFlow;
use std::sync::Arc;

use smb::FileTime;
use smb::NtStatus;
use smb::info::FileAttributes;
use smb::{CloseAttributes, CloseRequest, CloseResponse};

use super::call::Call;
use super::frame::{Outcome, malformed};
use crate::connections::session::log_close;
use crate::state::closing::Ending;
use crate::state::ends::Over;

/// Ends an open.
pub(super) async fn handle(call: &Call, out: &mut Vec<u8>) -> Outcome {
    let request = CloseRequest::parse(call.pdu()).map_err(malformed)?;
    let id = call.resolve(request.file_id)?;
    let open = call.asker().open(id)?;
    let session = call.session();
    let open_again = session.remove_open(id.persistent, id.volatile);
    if open_again.is_none() {
        return Err(NtStatus::FILE_CLOSED);
    }
    let files = Arc::clone(&call.core.files);
    if open.push.get().is_some() {
        crate::push::end_of_open(call.push(), &open).await;
    }
    let (wants, over) = (request.query_attributes, Over::one(&open));
    let (closed, files_too) = (Arc::clone(&open), Arc::clone(&files));
    let work = move |may_wait| {
        crate::push::settle_times(&closed.node);
        let metadata = wants.then(|| closed.entry.metadata().ok()).flatten();
        let done = match may_wait {
            None => closed.close_on_the_spot(&files_too),
            Some(may_wait) => ControlFlow::Break(closed.close_for_client(&files_too, may_wait)),
        };
        (metadata, done.map_break(|ended| log_close(&closed, ended)))
    };
    if let Some(log) = over.log() {
        let noted = Arc::clone(&open);
        let forget = move |may_wait| {
            noted.settle_note();
            noted.forget_note(Ending::ByItsClient, may_wait);
        };
        // Closed all the same where it panics.
        let _ = call.ending_on_a_thread(log, forget).await;
    }
    // MS-SMB2 §3.3.5.10 has no status for a file that stays: the open is gone all the same.
    let (metadata, rest) = call.ending(over, open.closing_io(), work).await?;
    if let ControlFlow::Continue(rest) = rest {
        let finish = move |may_wait| log_close(&open, open.finish_close(&files, rest, may_wait));
        call.ending_on_a_thread(over, finish).await?;
    }
    let attributes = metadata.map(|found| CloseAttributes {
        creation_time: FileTime(found.creation),
        last_access_time: FileTime(found.access),
        last_write_time: FileTime(found.write),
        change_time: FileTime(found.change),
        allocation_size: found.allocation,
        end_of_file: found.size,
        attributes: FileAttributes::from_bits_retain(found.attributes.0),
    });
    CloseResponse { attributes }.emit(out);
    Ok(NtStatus::SUCCESS)
}
