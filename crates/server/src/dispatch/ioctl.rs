//! IOCTL: file system controls, and push mode's own.
//!
//! Spec: MS-SMB2 §3.3.5.15; docs/push-mode.md.

use smb::negotiate::Dialect;
use smb::{ControlCode, FileId, HeaderFlags, IoctlRequest, IoctlResponse, NtStatus};
use tracing::{debug, warn};

use super::call::Call;
use super::frame::Outcome;
use super::{interfaces, malformed, negotiate, pipe};
use crate::limits::TRANSACT_SIZE_MAX;

/// Carries out a control.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let request = IoctlRequest::parse(call.pdu()).map_err(malformed)?;
    if !request.is_fsctl {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let (code, file_id, input) = (request.code, request.file_id, request.input.to_vec());
    let len_max = request.output_response_max;
    if len_max > TRANSACT_SIZE_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    call.asker().check_charge(len_max)?;
    let mut status = NtStatus::SUCCESS;
    let output = match code {
        ControlCode::PIPE_TRANSCEIVE => {
            let (output, how) = pipe::transceive(call, file_id, &input, len_max)?;
            status = how;
            output
        }
        ControlCode::PIPE_WAIT => pipe::wait(call, &input)?,
        ControlCode::VALIDATE_NEGOTIATE_INFO => validate_negotiate(call, &input)?,
        ControlCode::QUERY_NETWORK_INTERFACE_INFO => interfaces::query(call)?,
        ControlCode::MAP_REMOTE_REGION
        | ControlCode::UNMAP_REMOTE_REGION
        | ControlCode::COMMIT_REMOTE_REGION
        | ControlCode::QUERY_REMOTE_REGIONS
        | ControlCode::WAIT_REGION_RECALL => {
            let open = call.open(file_id)?;
            crate::push::control(call, &open, code, &input, len_max).await?
        }
        // MS-SMB2 §3.3.5.15.2: a server without DFS.
        ControlCode::DFS_GET_REFERRALS | ControlCode::DFS_GET_REFERRALS_EX => {
            return Err(NtStatus::FS_DRIVER_REQUIRED);
        }
        _ => return unknown(call, code, file_id),
    };
    let fits = u32::try_from(output.len()).is_ok_and(|len| len <= len_max);
    if !fits {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    IoctlResponse { code, file_id, output: &output }.emit(out);
    Ok(status)
}

// MS-SMB2 §3.3.5.15: on an open that exists, the store says that it cannot.
fn unknown(call: &mut Call, code: ControlCode, file_id: FileId) -> Outcome {
    debug!(%code, "control not served");
    if file_id != FileId::RELATED || call.header.flags.contains(HeaderFlags::RELATED) {
        call.open(file_id)?;
    }
    Err(NtStatus::INVALID_DEVICE_REQUEST)
}

// MS-SMB2 §2.2.31.4, §3.3.5.15.12. A mismatch means that somebody changed the negotiation on its
// way: the connection ends without an answer.
fn validate_negotiate(call: &Call, input: &[u8]) -> Result<Vec<u8>, NtStatus> {
    // Input: capabilities u32, client guid, security mode u16, count u16, dialects u16 each.
    let (Some(fixed), Some(tail)) = (input.first_chunk::<24>(), input.get(24..)) else {
        return Err(NtStatus::INVALID_PARAMETER);
    };
    let u16_at = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
    let count = usize::from(u16_at(22));
    let (pairs, _) = tail.as_chunks::<2>();
    let dialects: Vec<_> = pairs
        .get(..count)
        .ok_or(NtStatus::INVALID_PARAMETER)?
        .iter()
        .map(|pair| Dialect(u16::from_le_bytes(*pair)))
        .collect();
    let agreed = call.link.agreed.get().ok_or(NtStatus::INVALID_PARAMETER)?;
    let same = fixed[..4] == agreed.client_capabilities.bits().to_le_bytes()
        && fixed[4..20] == agreed.client_guid
        && u16_at(20) == agreed.client_security_mode.bits()
        && negotiate::choose_dialect(&dialects) == Some(agreed.dialect);
    if !same {
        warn!(peer = %call.link.peer, "connection closed: the negotiation was tampered with");
        call.link.close();
        return Err(NtStatus::ACCESS_DENIED);
    }
    // Output: capabilities u32, server guid, security mode u16, dialect u16.
    let mut output = Vec::with_capacity(24);
    output.extend_from_slice(&agreed.server_capabilities.bits().to_le_bytes());
    output.extend_from_slice(&call.link.core.guid.0);
    output.extend_from_slice(&agreed.server_security_mode.bits().to_le_bytes());
    output.extend_from_slice(&agreed.dialect.0.to_le_bytes());
    Ok(output)
}
