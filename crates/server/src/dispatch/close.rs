//! CLOSE.
//!
//! Spec: MS-SMB2 §3.3.5.10.

use std::sync::Arc;

use smb::FileTime;
use smb::NtStatus;
use smb::info::FileAttributes;
use smb::{CloseAttributes, CloseRequest, CloseResponse};
use tracing::warn;

use super::call::Call;
use super::frame::Outcome;
use super::malformed;

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
    let core = Arc::clone(&call.link.core);
    if open.push.get().is_some() {
        crate::push::end_of_open(&core, &open).await;
    }
    let inline = open.closing_io();
    let wants = request.query_attributes;
    let work = move || {
        crate::push::settle_times(&open.node);
        let metadata = wants.then(|| open.entry.metadata().ok()).flatten();
        if let Err(error) = open.close(&core) {
            // The open is gone all the same: MS-SMB2 §3.3.5.10 has no status for this.
            warn!(serial = open.serial.0, %error, "a file to be deleted on close stays");
        }
        metadata
    };
    let metadata = call.blocking(inline, work).await?;
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
