//! LOGOFF.
//!
//! Spec: MS-SMB2 §3.3.5.6.

use std::sync::Arc;

use smb::Empty;
use smb::NtStatus;
use tokio::sync::mpsc;

use super::call::Call;
use super::frame::{Outcome, malformed};

/// Ends a session and everything in it.
pub(super) async fn handle(call: &Call, out: &mut Vec<u8>) -> Outcome {
    Empty::parse(call.pdu()).map_err(malformed)?;
    let id = call.session().id;
    call.link.remove_channel(id);
    let (kept, mut ends) = mpsc::channel::<()>(1);
    call.core.dissolve(id, Arc::new(kept));
    // Nothing is sent: it is over when nobody could.
    let _ = ends.recv().await;
    Empty.emit(out);
    Ok(NtStatus::SUCCESS)
}
