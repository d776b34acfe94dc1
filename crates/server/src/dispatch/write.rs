//! WRITE.
//!
//! Spec: MS-SMB2 §3.3.5.13.

use std::sync::Arc;

use smb::Channel;
use smb::NtStatus;
use smb::{WriteFlags, WriteRequest, WriteResponse};

use super::call::{Asker, Call};
use super::frame::Outcome;
use super::malformed;
use crate::access;
use crate::limits::IO_INLINE_MAX;
use crate::share::{InlineIo, ShareError};
use crate::state::Open;
use crate::state::locks::{LockRange, LockTable};
use crate::state::open::Ended;

/// A WRITE that may go ahead.
struct Plan {
    open: Arc<Open>,
    range: LockRange,
    durable: bool,
}

/// Answers on the spot, or `None`: it would have to wait.
pub(super) fn now(asker: Asker<'_>, pdu: &[u8], out: &mut Vec<u8>) -> Option<Outcome> {
    let request = match WriteRequest::parse(pdu) {
        Ok(request) => request,
        Err(error) => return Some(Err(error.status())),
    };
    asker.note_invalidation(request.channel, request.channel_info);
    if request.channel == Channel::NONE {
        let written = write_now(asker, &request, request.data)?;
        return Some(written.and_then(|()| finish(request.data.len(), out)));
    }
    let memory = asker.link.remote_memory()?;
    let data = memory.try_pull(request.remaining_bytes, request.channel_info)?;
    let Some(written) = write_now(asker, &request, &data) else {
        memory.unpull(data, request.channel_info);
        return None;
    };
    let outcome = written.and_then(|()| finish(data.len(), out));
    memory.recycle(data);
    Some(outcome)
}

/// Writes, unless that would have to wait.
fn write_now(
    asker: Asker<'_>,
    request: &WriteRequest<'_>,
    data: &[u8],
) -> Option<Result<(), NtStatus>> {
    let planned = asker
        .open_counted(request.file_id)
        .and_then(|(open, under_way)| Ok((plan(asker, request, open)?, under_way)));
    // Under way until the bytes are there: a copy of the request over another channel waits for that.
    let (plan, _under_way) = match planned {
        Ok(plan) => plan,
        Err(_) if asker.is_on_pipes() => return None,
        Err(status) => return Some(Err(status)),
    };
    if plan.durable || data.len() > IO_INLINE_MAX {
        return None;
    }
    let Plan { ref open, range: LockRange { offset, length }, .. } = plan;
    let is_free = |locks: &LockTable| locks.allows_write(open.serial, offset, length);
    let admitted = open.node.try_begin_change(open.change(plan.range), is_free)?;
    let Some(_admitted) = admitted else {
        return Some(Err(NtStatus::FILE_LOCK_CONFLICT));
    };
    let _held = match open.try_begin_change()? {
        Ok(held) => held,
        Err(ended) => return Some(Err(ended.into())),
    };
    match open.entry.try_write_at(data, offset) {
        Err(ShareError::WouldBlock) => None,
        written => Some(written.map_err(NtStatus::from)),
    }
}

/// Answers after whatever wait it takes.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let request = WriteRequest::parse(call.pdu()).map_err(malformed)?;
    call.asker().note_invalidation(request.channel, request.channel_info);
    let file_id = request.file_id;
    let open = call.open(file_id)?;
    let request = WriteRequest::parse(call.pdu()).map_err(malformed)?;
    let plan = plan(call.asker(), &request, open)?;
    let pulled = if request.channel == Channel::NONE {
        None
    } else {
        let memory = call.link.remote_memory().ok_or(NtStatus::INVALID_PARAMETER)?;
        Some(memory.pull(request.remaining_bytes, request.channel_info))
    };
    // Where the data lies in the frame, which outlives the request.
    let data_at = if request.data.is_empty() {
        // Nothing, which need not lie in the frame.
        0..0
    } else {
        let start = request.data.as_ptr().addr() - call.frame.as_ptr().addr();
        start..start + request.data.len()
    };
    let pulled = match pulled {
        Some(transfer) => Some(call.wait_for_work(transfer).await??),
        None => None,
    };
    let Plan { open, range: LockRange { offset, length }, durable } = plan;
    let admitted = call.begin_write(&open, offset, length).await?;
    let frame = Arc::clone(&call.frame);
    let writes = Arc::clone(&open.node.writes);
    let len = pulled.as_ref().map_or_else(|| data_at.len(), Vec::len);
    let is_long = durable || len > IO_INLINE_MAX;
    let inline = if is_long { InlineIo::CachedReads } else { open.entry.inline_io() };
    let changed = Arc::clone(&open);
    let place = move |begun: Result<(), Ended>| {
        let data = pulled.as_deref().unwrap_or_else(|| &frame[data_at]);
        let written = begun
            .map_err(NtStatus::from)
            .and_then(|()| changed.entry.write_at(data, offset).map_err(NtStatus::from));
        drop(admitted);
        (written.map(|()| data.len()), pulled)
    };
    let placed = match inline {
        InlineIo::Everything => open.change_now(place),
        _ => Err(place),
    };
    let (written, pulled) = match placed {
        Ok(placed) => placed,
        Err(place) if durable => {
            let work = move || {
                let (written, pulled) = open.change_blocking(place);
                let persist = |len| super::flush::persist(&open).map(|()| len);
                (written.and_then(persist), pulled)
            };
            call.blocking(InlineIo::CachedReads, work).await?
        }
        Err(place) => {
            let allowed = call.turn().await;
            let work = move || {
                let _allowed = allowed;
                open.change_blocking(place)
            };
            let turn = writes.take(&call.link.core.runtime, work);
            if len >= LONG {
                // Where both share a core the worker goes first: the data is in its cache, and what is
                // read next would drive it out.
                std::thread::yield_now();
            }
            turn.await.map_err(|_| NtStatus::UNSUCCESSFUL)?
        }
    };
    if let (Some(data), Some(memory)) = (pulled, call.link.remote_memory()) {
        memory.recycle(data);
    }
    finish(written?, out)
}

fn plan(asker: Asker<'_>, request: &WriteRequest<'_>, open: Arc<Open>) -> Result<Plan, NtStatus> {
    let is_remote = request.channel != Channel::NONE;
    let inline_len = u32::try_from(request.data.len()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let len = if is_remote { request.remaining_bytes } else { inline_len };
    if len > asker.link.core.limits.io_size_max {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    asker.check_channel(request.channel)?;
    asker.check_charge(len)?;
    if !open.entry.has_bytes() {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    access::admit(&open, access::Write::Bytes)?;
    let offset = request.offset;
    let end = offset.checked_add(u64::from(len));
    if end.is_none_or(|end| end > i64::MAX.unsigned_abs()) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let range = LockRange::new(offset, u64::from(len)).ok_or(NtStatus::INVALID_PARAMETER)?;
    let durable = open.is_write_through() || request.flags.contains(WriteFlags::WRITE_THROUGH);
    Ok(Plan { open, range, durable })
}

fn finish(written: usize, out: &mut Vec<u8>) -> Outcome {
    let count = u32::try_from(written).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    WriteResponse { count }.emit(out);
    Ok(NtStatus::SUCCESS)
}

/// Bytes of a WRITE, from the frame, of which a few fill the cache of a core.
const LONG: usize = 256 * 1024;
