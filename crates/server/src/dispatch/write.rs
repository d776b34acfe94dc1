//! WRITE.
//!
//! Spec: MS-SMB2 §3.3.5.13.

use std::sync::Arc;

use smb::Channel;
use smb::NtStatus;
use smb::{WriteFlags, WriteRequest, WriteResponse};
use tree::{InlineIo, ShareError};

use super::asker::Asker;
use super::call::Call;
use super::frame::{Outcome, malformed};
use super::prepared::{Plan, Prepared, Source};
use crate::access;
use crate::limits::IO_INLINE_MAX;
use crate::state::Open;
use crate::state::locks::LockTable;
use crate::state::open::Ended;
use crate::state::range::LockRange;
use crate::status::OrStatus as _;

/// Answers on the spot, or `None`: it would have to wait. What is in `prepared` then is for [`handle`].
pub(super) fn now(
    asker: Asker<'_>,
    pdu: &[u8],
    out: &mut Vec<u8>,
    prepared: &mut Option<Prepared>,
) -> Option<Outcome> {
    let request = match WriteRequest::parse(pdu) {
        Ok(request) => request,
        Err(error) => return Some(Err(error.status())),
    };
    asker.note_invalidation(request.channel, request.channel_info);
    let mut source = Source::of(&request, pdu);
    if let (Source::Client(place), Some(memory)) = (&source, asker.link.remote_memory())
        && let Some(data) = memory.try_pull(request.remaining_bytes, &pdu[place.clone()])
    {
        source = Source::Fetched(data);
    }
    let planned = asker
        .open_counted(request.file_id)
        .and_then(|(open, under_way)| Ok((plan(asker, &request, open)?, under_way)));
    // Under way until the bytes are there: a copy of the request over another channel waits for that.
    let (plan, under_way) = match planned {
        Ok(planned) => planned,
        Err(status) => {
            source.recycle(asker.link);
            return if asker.is_on_pipes() { None } else { Some(Err(status)) };
        }
    };
    let data = source.data(pdu);
    let Some(written) = data.and_then(|data| Some((write_now(&plan, data)?, data.len()))) else {
        *prepared = Some(Prepared { plan, source, under_way });
        return None;
    };
    source.recycle(asker.link);
    let (written, len) = written;
    Some(written.and_then(|()| finish(len, out)))
}

/// Writes, unless that would have to wait.
fn write_now(plan: &Plan, data: &[u8]) -> Option<Result<(), NtStatus>> {
    if plan.durable || data.len() > IO_INLINE_MAX {
        return None;
    }
    let Plan { open, range: LockRange { offset, length }, .. } = plan;
    let is_free = |locks: &LockTable| locks.allows_write(open.serial, *offset, *length);
    let admitted = open.node.try_begin_change(open.change(plan.range), is_free)?;
    let Some(_admitted) = admitted else {
        return Some(Err(NtStatus::FILE_LOCK_CONFLICT));
    };
    let _held = match open.try_begin_change()? {
        Ok(held) => held,
        Err(ended) => return Some(Err(ended.into())),
    };
    match open.entry.try_write_at(data, *offset) {
        Err(ShareError::WouldBlock) => None,
        written => Some(written.or_status()),
    }
}

/// Answers after whatever wait it takes.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let Prepared { plan, source, under_way: _under_way } = match call.prepared.take() {
        Some(prepared) => prepared,
        None => prepare(call)?,
    };
    let Plan { open, range: LockRange { offset, length }, durable } = plan;
    let source = match source {
        Source::Client(place) => {
            let memory = call.link.remote_memory().ok_or(NtStatus::INVALID_PARAMETER)?;
            let len = u32::try_from(length).map_err(|_| NtStatus::INVALID_PARAMETER)?;
            // The connection takes no other request while this one waits: it is counted as short of room.
            let whose = (&call.link.account, &call.session().account);
            call.wait_for_work(call.frame.room_to_fetch(whose)).await?;
            let transfer = memory.pull(len, &call.pdu()[place]);
            Source::Fetched(call.wait_for_work(transfer).await??)
        }
        here => here,
    };
    let admitted = call.begin_write(&open, offset, length).await?;
    let (frame, range) = (Arc::clone(&call.frame), call.range.clone());
    let writes = Arc::clone(&open.node.writes);
    let len = usize::try_from(length).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let is_long = durable || len > IO_INLINE_MAX;
    let inline = if is_long { InlineIo::CachedReads } else { open.entry.inline_io() };
    let changed = Arc::clone(&open);
    let place = move |begun: Result<(), Ended>| {
        let data = source.data(&frame[range]).expect("fetched above");
        let written = begun
            .map_err(NtStatus::from)
            .and_then(|()| changed.entry.write_at(data, offset).or_status());
        drop(admitted);
        (written.map(|()| data.len()), source)
    };
    let placed = match inline {
        InlineIo::Everything => open.change_now(place),
        _ => Err(place),
    };
    let (written, source) = match placed {
        Ok(placed) => placed,
        Err(place) if durable => {
            let work = move || {
                let (written, source) = open.change_blocking(place);
                let persist = |len| super::persist::persist(&open).map(|()| len);
                (written.and_then(persist), source)
            };
            call.blocking(InlineIo::CachedReads, work).await?
        }
        Err(place) => {
            let allowed = call.turn().await;
            let work = move || {
                let _allowed = allowed;
                open.change_blocking(place)
            };
            let turn = writes.take(&call.core.runtime, work);
            if len >= LONG {
                // Where both share a core the worker goes first: the data is in its cache, and what is
                // read next would drive it out.
                std::thread::yield_now();
            }
            turn.await.map_err(|_| NtStatus::UNSUCCESSFUL)?
        }
    };
    source.recycle(&call.link);
    finish(written?, out)
}

// Of a compound, or where there was no room for looking at it on the spot.
fn prepare(call: &mut Call) -> Result<Prepared, NtStatus> {
    let (frame, range) = (Arc::clone(&call.frame), call.range.clone());
    let pdu = &frame[range];
    let request = WriteRequest::parse(pdu).map_err(malformed)?;
    call.asker().note_invalidation(request.channel, request.channel_info);
    let (open, under_way) = call.open_counted(request.file_id)?;
    let plan = plan(call.asker(), &request, open)?;
    Ok(Prepared { plan, source: Source::of(&request, pdu), under_way })
}

fn plan(asker: Asker<'_>, request: &WriteRequest<'_>, open: Arc<Open>) -> Result<Plan, NtStatus> {
    let is_remote = request.channel != Channel::NONE;
    let inline_len = u32::try_from(request.data.len()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let len = if is_remote { request.remaining_bytes } else { inline_len };
    if len > asker.core.connections.limits.io_size_max {
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
