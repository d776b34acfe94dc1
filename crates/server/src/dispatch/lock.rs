//! LOCK: byte ranges, taken and given back.
//!
//! Spec: MS-SMB2 §3.3.5.14.

use smb::Empty;
use smb::NtStatus;
use smb::negotiate::Dialect;
use smb::{LockElement, LockFlags, LockRequest};

use super::call::Call;
use super::frame::Outcome;
use super::malformed;
use crate::state::Open;
use crate::state::caching::Intent;
use crate::state::locks::{LockRange, LockRefused};

/// Takes or gives back ranges, all or none of those to be taken.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let request = LockRequest::parse(call.pdu()).map_err(malformed)?;
    let open = call.open(request.file_id)?;
    if open.entry.is_directory() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // MS-SMB2 §3.3.5.14: what has succeeded is not done twice.
    let counts = call.link.dialect() >= Dialect::SMB_3_0 || open.durable.get().is_some();
    if counts && open.lock_sequences().is_replay(request.lock_sequence) {
        Empty.emit(out);
        return Ok(NtStatus::SUCCESS);
    }
    let first = request.locks.first().ok_or(NtStatus::INVALID_PARAMETER)?;
    if first.flags.contains(LockFlags::UNLOCK) {
        unlock(&open, &request.locks)?;
    } else {
        open.node.yield_caching(open.owner, Intent::Modify).await;
        lock(call, &open, &request.locks).await?;
    }
    if counts {
        open.lock_sequences().set_done(request.lock_sequence);
    }
    Empty.emit(out);
    Ok(NtStatus::SUCCESS)
}

fn unlock(open: &Open, locks: &[LockElement]) -> Result<(), NtStatus> {
    // MS-SMB2 §3.3.5.14.1: those before a wrong one stay unlocked.
    for element in locks {
        if element.flags != LockFlags::UNLOCK {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let range = range(element)?;
        if !open.node.lock().locks.unlock(open.serial, range) {
            return Err(NtStatus::RANGE_NOT_LOCKED);
        }
        open.node.changed.notify_waiters();
    }
    Ok(())
}

async fn lock(call: &Call, open: &Open, locks: &[LockElement]) -> Result<(), NtStatus> {
    let waits = |element: &LockElement| !element.flags.contains(LockFlags::FAIL_IMMEDIATELY);
    // MS-SMB2 §3.3.5.14.2: only a single range may be waited for.
    if locks.len() > 1 && locks.iter().any(waits) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let mut taken = Vec::with_capacity(locks.len());
    for element in locks {
        let exclusive = match element.flags - LockFlags::FAIL_IMMEDIATELY {
            LockFlags::SHARED => false,
            LockFlags::EXCLUSIVE => true,
            _ => {
                open.node.release_locks(open.serial, &taken);
                return Err(NtStatus::INVALID_PARAMETER);
            }
        };
        let outcome = match range(element) {
            Ok(range) => take(call, open, range, exclusive, waits(element)).await.map(|()| range),
            Err(status) => Err(status),
        };
        match outcome {
            Ok(range) => taken.push(range),
            Err(status) => {
                open.node.release_locks(open.serial, &taken);
                return Err(status);
            }
        }
    }
    Ok(())
}

async fn take(
    call: &Call,
    open: &Open,
    range: LockRange,
    exclusive: bool,
    waits: bool,
) -> Result<(), NtStatus> {
    loop {
        let changed = open.node.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let refused = match open.node.lock().locks.lock(open.serial, range, exclusive) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        match refused {
            LockRefused::TableFull => return Err(NtStatus::INSUFFICIENT_RESOURCES),
            LockRefused::Conflict if !waits => return Err(NtStatus::LOCK_NOT_GRANTED),
            LockRefused::Conflict => {}
        }
        call.go_pending();
        tokio::select! {
            () = changed => {}
            () = call.pending.cancelled() => return Err(NtStatus::CANCELLED),
        }
        if open.is_closed() {
            return Err(NtStatus::RANGE_NOT_LOCKED);
        }
    }
}

fn range(element: &LockElement) -> Result<LockRange, NtStatus> {
    LockRange::new(element.offset, element.length).ok_or(NtStatus::INVALID_LOCK_RANGE)
}
