//! CHANGE_NOTIFY: not served yet, and said so at once.
//!
//! Spec: MS-SMB2 §3.3.5.19: a store that cannot watch answers NOT_SUPPORTED.

use smb::ChangeNotifyRequest;
use smb::NtStatus;

use super::call::Call;
use super::frame::{Outcome, malformed};
use crate::access::{self, Look};

/// Refuses, after the checks every server makes first.
pub(super) fn handle(call: &mut Call) -> Outcome {
    let request = ChangeNotifyRequest::parse(call.pdu()).map_err(malformed)?;
    let open = call.open(request.file_id)?;
    if !open.entry.is_directory() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    access::admit(&open, Look::Watch)?;
    Err(NtStatus::NOT_SUPPORTED)
}
