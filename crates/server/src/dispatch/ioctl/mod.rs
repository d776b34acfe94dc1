//! IOCTL: file system controls, and push mode's own.
//!
//! Spec: MS-SMB2 §3.3.5.15; docs/push-mode.md.

mod copy_chunk;
mod ranges;

use std::sync::Arc;

use smb::fsctl::{DuplicateExtents, ValidateNegotiateRequest, ValidateNegotiateResponse};
use smb::negotiate::Dialect;
use smb::{ControlCode, FileId, HeaderFlags, IoctlRequest, IoctlResponse, NtStatus};
use tracing::{debug, warn};

use super::call::Call;
use super::frame::{Outcome, malformed};
use super::{interfaces, negotiate, pipe, posix, push};
use crate::access::{self, Look, Set};
use crate::limits::CONTROL_INPUT_MAX;
use crate::state::Open;

/// Carries out a control.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let (frame, range) = (Arc::clone(&call.frame), call.range.clone());
    let request = IoctlRequest::parse(&frame[range]).map_err(malformed)?;
    if !request.is_fsctl {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let (code, file_id, len_max) = (request.code, request.file_id, request.output_response_max);
    // Bytes of a file stay in the frame, as those of a WRITE do.
    let copied;
    let input = match code {
        ControlCode::WRITE_UNDER_LEASE => request.input,
        _ if request.input.len() > CONTROL_INPUT_MAX => return Err(NtStatus::INVALID_PARAMETER),
        _ => {
            copied = request.input.to_vec();
            &copied[..]
        }
    };
    if len_max > call.link.transact_size_max() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    call.asker().check_charge(len_max)?;
    let (status, output) = serve(call, code, file_id, input, len_max).await?;
    let fits = u32::try_from(output.len()).is_ok_and(|len| len <= len_max);
    if !fits {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    IoctlResponse { code, file_id, output: &output }.emit(out);
    Ok(status)
}

// The answer of a control that is served, and its status.
async fn serve(
    call: &mut Call,
    code: ControlCode,
    file_id: FileId,
    input: &[u8],
    len_max: u32,
) -> Served {
    let output = match code {
        ControlCode::PIPE_TRANSCEIVE => {
            let (output, how) = pipe::transceive(call, file_id, input, len_max).await?;
            return Ok((how, output));
        }
        ControlCode::PIPE_WAIT => pipe::wait(call, input)?,
        ControlCode::VALIDATE_NEGOTIATE_INFO => validate_negotiate(call, input, len_max)?,
        // MS-SMB2 §3.3.5.15.11: it is asked of the server, not of a file.
        ControlCode::QUERY_NETWORK_INTERFACE_INFO if file_id != FileId::RELATED => {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        ControlCode::QUERY_NETWORK_INTERFACE_INFO => interfaces::query(call).await?,
        // MS-SMB2 §3.3.5.15.2: a server without DFS.
        ControlCode::DFS_GET_REFERRALS | ControlCode::DFS_GET_REFERRALS_EX => {
            return Err(NtStatus::FS_DRIVER_REQUIRED);
        }
        ControlCode::MAP_REMOTE_REGION
        | ControlCode::UNMAP_REMOTE_REGION
        | ControlCode::COMMIT_REMOTE_REGION
        | ControlCode::QUERY_REMOTE_REGIONS
        | ControlCode::WAIT_REGION_RECALL
        | ControlCode::WRITE_UNDER_LEASE => {
            let open = call.open(file_id)?;
            push::control(call, &open, code, input, len_max).await?
        }
        ControlCode::SRV_REQUEST_RESUME_KEY => {
            let open = call.open(file_id)?;
            access::admit(&open, Look::ResumeKey)?;
            copy_chunk::resume_key(call, &open, call.resolve(file_id)?.volatile)
        }
        ControlCode::SRV_COPYCHUNK | ControlCode::SRV_COPYCHUNK_WRITE => {
            let open = call.open(file_id)?;
            return copy_chunk::copy(call, open, code, input, len_max).await;
        }
        ControlCode::SET_SPARSE
        | ControlCode::SET_ZERO_DATA
        | ControlCode::QUERY_ALLOCATED_RANGES
        | ControlCode::FILE_LEVEL_TRIM
        | ControlCode::DUPLICATE_EXTENTS_TO_FILE
        | ControlCode::DUPLICATE_EXTENTS_TO_FILE_EX => {
            return of_ranges(call, code, file_id, input, len_max).await;
        }
        _ => return of_the_file(call, code, file_id, input).await,
    };
    Ok((NtStatus::SUCCESS, output))
}

async fn of_ranges(
    call: &mut Call,
    code: ControlCode,
    file_id: FileId,
    input: &[u8],
    len_max: u32,
) -> Served {
    let open = call.open(file_id)?;
    let mut output = Vec::new();
    match code {
        ControlCode::SET_SPARSE => ranges::set_sparse(call, open, input).await?,
        ControlCode::SET_ZERO_DATA => ranges::zero(call, open, input).await?,
        ControlCode::QUERY_ALLOCATED_RANGES => {
            return ranges::allocated(call, open, input, len_max).await;
        }
        ControlCode::FILE_LEVEL_TRIM => output = ranges::trim(call, open, input).await?,
        ControlCode::DUPLICATE_EXTENTS_TO_FILE => {
            let asked = DuplicateExtents::parse(input).map_err(malformed)?;
            ranges::duplicate(call, open, asked).await?;
        }
        _ => {
            let asked = DuplicateExtents::parse_ex(input).map_err(malformed)?;
            ranges::duplicate(call, open, asked).await?;
        }
    }
    Ok((NtStatus::SUCCESS, output))
}

async fn of_the_file(call: &mut Call, code: ControlCode, file_id: FileId, input: &[u8]) -> Served {
    let output = match code {
        // Nothing is compressed here, and may stay so.
        ControlCode::GET_COMPRESSION => {
            access::admit(&*call.open(file_id)?, Look::Controls)?;
            COMPRESSION_NONE.to_vec()
        }
        ControlCode::SET_COMPRESSION => {
            access::admit(&*call.open(file_id)?, Set::Compression)?;
            match input.get(..2) {
                None => return Err(NtStatus::INVALID_PARAMETER),
                Some(format) if format == COMPRESSION_NONE => Vec::new(),
                Some(_) => return Err(NtStatus::NOT_SUPPORTED),
            }
        }
        ControlCode::CREATE_OR_GET_OBJECT_ID | ControlCode::GET_OBJECT_ID => {
            let open = call.open(file_id)?;
            access::admit(&open, Look::Controls)?;
            object_id(call, &open)
        }
        ControlCode::GET_REPARSE_POINT => {
            let open = call.open(file_id)?;
            access::admit(&open, Look::Controls)?;
            posix::reparse_point(call, &open).await?
        }
        ControlCode::SET_REPARSE_POINT => {
            let open = call.open(file_id)?;
            posix::set_reparse_point(call, &open, input).await?;
            Vec::new()
        }
        // No previous versions are kept.
        ControlCode::SRV_ENUMERATE_SNAPSHOTS => {
            access::admit(&*call.open(file_id)?, Look::Controls)?;
            return Err(NtStatus::NOT_SUPPORTED);
        }
        _ => return unknown(call, code, file_id),
    };
    Ok((NtStatus::SUCCESS, output))
}

/// What a control answers: its status, and its output.
type Served = Result<(NtStatus, Vec<u8>), NtStatus>;

// MS-SMB2 §3.3.5.15: on an open that exists, the store says that it cannot.
fn unknown(call: &mut Call, code: ControlCode, file_id: FileId) -> Served {
    debug!(%code, "control not served");
    if file_id != FileId::RELATED || call.header.flags.contains(HeaderFlags::RELATED) {
        call.open(file_id)?;
    }
    Err(NtStatus::INVALID_DEVICE_REQUEST)
}

// MS-FSCC §2.1.3: every file has one by birth, made of its numbers; nobody sets another.
fn object_id(call: &Call, open: &Open) -> Vec<u8> {
    let key = open.entry.file_key();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&key.inode.to_le_bytes());
    id[8..].copy_from_slice(&key.device.to_le_bytes());
    let mut output = Vec::with_capacity(64);
    output.extend_from_slice(&id);
    output.extend_from_slice(&call.core.identity.guid.0);
    output.extend_from_slice(&id);
    output.extend_from_slice(&[0; 16]);
    output
}

// MS-SMB2 §3.3.5.15.12: a mismatch means that somebody changed the negotiation on its way, and the
// connection ends without an answer. So it does where nobody has a reason to ask (3.1.1 protects
// its negotiation otherwise) and where the answer would not be taken.
fn validate_negotiate(call: &Call, input: &[u8], len_max: u32) -> Result<Vec<u8>, NtStatus> {
    let agreed = call.link.agreed.get().ok_or(NtStatus::INVALID_PARAMETER)?;
    let asked = ValidateNegotiateRequest::parse(input).map_err(malformed)?;
    let same = asked.capabilities == agreed.client_capabilities
        && asked.client_guid.0 == agreed.client_guid
        && asked.security_mode == agreed.client_security_mode
        && negotiate::choose_dialect(&asked.dialects) == Some(agreed.dialect);
    let mut output = Vec::with_capacity(24);
    let answer = ValidateNegotiateResponse {
        capabilities: agreed.server_capabilities,
        server_guid: call.core.identity.guid,
        security_mode: agreed.server_security_mode,
        dialect: agreed.dialect,
    };
    answer.emit(&mut output);
    let fits = u32::try_from(output.len()).is_ok_and(|len| len <= len_max);
    if !same || !fits || agreed.dialect == Dialect::SMB_3_1_1 {
        warn!(peer = %call.link.peer, "connection closed: its negotiation is not confirmed");
        call.link.close();
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(output)
}

// COMPRESSION_FORMAT_NONE, MS-FSCC §2.3: FSCTL_GET_COMPRESSION.
const COMPRESSION_NONE: [u8; 2] = [0; 2];

#[cfg(test)]
mod tests {
    use smb::create::CreateRequestContext;
    use smb::{ControlCode, NtStatus};

    use crate::limits::CONTROL_INPUT_MAX;
    use crate::push::tests::rig::Rig;

    #[tokio::test]
    async fn an_input_longer_than_any_control_needs_is_refused_before_it_is_copied() {
        let rig = Rig::new();
        let open = rig.open_with("f", 1, CreateRequestContext::QueryOnDiskId).await.unwrap();
        let of = async |len| {
            let fill = |out: &mut Vec<u8>| out.resize(len, 0);
            rig.control(open, ControlCode::SET_SPARSE, fill, 0).await.err()
        };
        assert_eq!(of(CONTROL_INPUT_MAX).await, None);
        assert_eq!(of(CONTROL_INPUT_MAX + 1).await, Some(NtStatus::INVALID_PARAMETER));
    }
}
