//! WAIT_REGION_RECALL: pending until a region is recalled.
//!
//! Spec: docs/push-mode.md, "Recall".

use std::sync::Arc;

use smb::NtStatus;
use smb::push::{RECALLS_MAX, RecallRequest, RecallResponse};

use crate::dispatch::call::{Call, Lasting};
use crate::push::recall::take_reports;
use crate::state::Open;

/// WAIT_REGION_RECALL: pending until a region is recalled.
pub(super) async fn wait(
    call: &Call,
    open: &Arc<Open>,
    request: RecallRequest,
    output_max: u32,
) -> Result<Vec<u8>, NtStatus> {
    let RecallRequest = request;
    let granted = open.push.get().ok_or(NtStatus::NOT_SUPPORTED)?;
    // A recall is reported once, so the reports that are taken must fit the output. None has been
    // taken yet.
    let room = usize::try_from(output_max).unwrap_or(usize::MAX).saturating_sub(RECALL_FIXED);
    let count_max = (room / RECALL_LEN).min(RECALLS_MAX);
    if count_max == 0 {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let ticket = granted.begin_wait();
    let look = || {
        if open.is_closed() {
            return Some(Err(NtStatus::FILE_CLOSED));
        }
        if !granted.is_latest(ticket) {
            return Some(Err(NtStatus::CANCELLED));
        }
        // Reports that do not fit wait for the next request.
        let recalls = take_reports(call.push(), open, count_max);
        (!recalls.is_empty()).then_some(Ok(recalls))
    };
    let reported = basics::found(&granted.events, look);
    let recalls = call.wait_unless_ready(Lasting::Unbounded, reported).await??;
    let mut output = Vec::new();
    RecallResponse { recalls }.emit(&mut output);
    Ok(output)
}

/// Bytes of a WAIT_REGION_RECALL output before its entries, and of each entry.
const RECALL_FIXED: usize = 16;
const RECALL_LEN: usize = 24;
