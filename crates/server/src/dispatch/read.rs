//! READ.
//!
//! Spec: MS-SMB2 §3.3.5.12.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smb::Channel;
use smb::NtStatus;
use smb::{ReadRequest, ReadResponse};
use tree::{InlineIo, Remainder, ShareError};

use super::asker::Asker;
use super::call::Call;
use super::frame::Outcome;
use super::frame::malformed;
use crate::access::{self, Look};
use crate::limits::IO_INLINE_MAX;
use crate::state::changes::Read;
use crate::state::range::LockRange;
use crate::state::reads::{Reading, Rest, Sight};
use crate::state::{Open, Room};
use crate::status::OrStatus as _;

/// A READ that may go ahead.
struct Plan {
    open: Arc<Open>,
    offset: u64,
    len: usize,
    minimum: u32,
    read: Read,
    /// For who reads on the spot.
    sight: Sight,
}

impl Plan {
    /// For who reads later, or bit by bit: asks for the locks that there are by then.
    fn begin_read(&self) -> Result<Reading, NtStatus> {
        self.open.node.begin_read(self.read).ok_or(NtStatus::FILE_LOCK_CONFLICT)
    }

    /// Whether what was read on the spot is what the locks allowed.
    fn is_as_seen(&self) -> bool {
        self.open.node.is_as_seen(self.sight)
    }

    /// Whether copying the bytes takes so long that others would have to wait for the thread.
    fn is_long(&self) -> bool {
        self.len > IO_INLINE_MAX
    }

    fn inline_io(&self) -> InlineIo {
        if self.is_long() { InlineIo::CachedReads } else { self.open.entry.inline_io() }
    }
}

/// Answers on the spot, or `None`: it would have to wait. What is left in `rest` belongs to the
/// answer and follows it; bytes that RDMA moves keep the `room` of the answer.
pub(super) fn now(
    asker: Asker<'_>,
    pdu: &[u8],
    out: &mut Vec<u8>,
    (rest, room): (&mut Option<Rest>, &mut Option<Room>),
) -> Option<Outcome> {
    let request = match ReadRequest::parse(pdu) {
        Ok(request) => request,
        Err(error) => return Some(Err(error.status())),
    };
    asker.note_invalidation(request.channel, request.channel_info);
    let open = match asker.open(request.file_id) {
        Ok(open) => open,
        Err(_) if asker.is_on_pipes() => return None,
        Err(status) => return Some(Err(status)),
    };
    let plan = match plan(asker, &request, open) {
        Ok(plan) => plan,
        Err(status) => return Some(Err(status)),
    };
    if request.channel != Channel::NONE {
        return remote_now(asker, &plan, (request.channel_info, room), out);
    }
    if let Some(remainder) = begin(asker, &plan) {
        let begun = match plan.begin_read() {
            Ok(reading) => Rest::new(remainder, reading),
            Err(status) => return Some(Err(status)),
        };
        let len = u32::try_from(begun.left()).expect("at most the length asked for, a u32");
        ReadResponse::emit_header(out, len, 0);
        *rest = Some(begun);
        return Some(finish(Ok(len), &plan));
    }
    if plan.is_long() {
        return None;
    }
    let entry = Arc::clone(&plan.open.entry);
    let (len, offset) = (plan.len, plan.offset);
    match ReadResponse::emit_with(out, |out| entry.try_read_at(out, len, offset).map(drop)) {
        Err(ShareError::WouldBlock) => None,
        Ok(_) if !plan.is_as_seen() => None,
        got => Some(finish(got, &plan)),
    }
}

/// Answers after whatever wait it takes.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let (frame, range) = (Arc::clone(&call.frame), call.range.clone());
    let request = ReadRequest::parse(&frame[range]).map_err(malformed)?;
    call.asker().note_invalidation(request.channel, request.channel_info);
    let open = call.open(request.file_id)?;
    let plan = plan(call.asker(), &request, open)?;
    if request.channel != Channel::NONE {
        return remote(call, plan, request.channel_info, out).await;
    }
    let plan = Arc::new(plan);
    let (reads, mut frame) = (Arc::clone(&plan), std::mem::take(out));
    let (frame, got) = call
        .blocking(plan.inline_io(), move || {
            let Plan { open, len, offset, .. } = &*reads;
            let got = reads.begin_read().map(|_reading| {
                let read = |out: &mut Vec<u8>| open.entry.read_at(out, *len, *offset).map(drop);
                ReadResponse::emit_with(&mut frame, read)
            });
            (frame, got)
        })
        .await?;
    *out = frame;
    finish(got?, &plan)
}

// An answer whose length is known and whose bytes may follow piece by piece.
fn begin(asker: Asker<'_>, plan: &Plan) -> Option<Remainder> {
    if !asker.streams || plan.len < STREAM_MIN || asker.is_protected() {
        return None;
    }
    let entry = &plan.open.entry;
    let behind = entry.metadata().ok()?.size.checked_sub(plan.offset)?;
    let len = usize::try_from(behind).map_or(plan.len, |behind| behind.min(plan.len));
    let is_long = len >= STREAM_MIN && len >= usize::try_from(plan.minimum).ok()?;
    if is_long { Remainder::in_memory(entry, plan.offset, len) } else { None }
}

// As `remote`, where nothing has to wait: not for the file, not for room among the transfers.
fn remote_now(
    asker: Asker<'_>,
    plan: &Plan,
    (descriptors, room): (&[u8], &mut Option<Room>),
    out: &mut Vec<u8>,
) -> Option<Outcome> {
    let memory = asker.link.remote_memory().filter(|_| !plan.is_long())?;
    let mut data = memory.buffer(plan.len);
    let read = match plan.open.entry.try_read_at(&mut data, plan.len, plan.offset) {
        Err(ShareError::WouldBlock) => {
            memory.recycle(data);
            return None;
        }
        Ok(_) if !plan.is_as_seen() => {
            memory.recycle(data);
            return None;
        }
        read => read.map(|got| u32::try_from(got).expect("at most the length asked for, a u32")),
    };
    let count = match read.or_status().and_then(|got| finish(Ok(got), plan).map(|_| got)) {
        Ok(count) => count,
        Err(status) => {
            memory.recycle(data);
            return Some(Err(status));
        }
    };
    let pushed = memory.try_push(data, descriptors, room.take())?;
    Some(pushed.map(|()| {
        ReadResponse::emit_header(out, 0, count);
        NtStatus::SUCCESS
    }))
}

// MS-SMB2 §3.3.5.12: the bytes go straight into the client's memory, the answer only says how
// many.
async fn remote(call: &Call, plan: Plan, descriptors: &[u8], out: &mut Vec<u8>) -> Outcome {
    let memory = call.link.remote_memory().ok_or(NtStatus::INVALID_PARAMETER)?;
    let plan = Arc::new(plan);
    let (reads, mut data) = (Arc::clone(&plan), memory.buffer(plan.len));
    let read = call.blocking(plan.inline_io(), move || {
        let Plan { open, len, offset, .. } = &*reads;
        let _reading = reads.begin_read()?;
        open.entry.read_at(&mut data, *len, *offset).or_status()?;
        Ok::<_, NtStatus>(data)
    });
    let data = read.await??;
    let count = u32::try_from(data.len()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    finish(Ok(count), &plan)?;
    // The answer is short: the room that was taken for it is that of the bytes.
    let room = call.frame.take_answers(data.len());
    memory.push(data, descriptors, room).await?;
    ReadResponse::emit_header(out, 0, count);
    Ok(NtStatus::SUCCESS)
}

fn plan(asker: Asker<'_>, request: &ReadRequest<'_>, open: Arc<Open>) -> Result<Plan, NtStatus> {
    if request.length > asker.core.connections.limits.io_size_max {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    asker.check_charge(request.length)?;
    asker.check_channel(request.channel)?;
    if !open.entry.has_bytes() {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    access::admit(&open, Look::Read)?;
    let beyond = request.offset.checked_add(u64::from(request.length));
    if beyond.is_none_or(|end| end > i64::MAX.unsigned_abs()) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let range = LockRange::new(request.offset, u64::from(request.length));
    let read = open.read(range.ok_or(NtStatus::INVALID_PARAMETER)?);
    let sight = open.node.look_at_locks(read).ok_or(NtStatus::FILE_LOCK_CONFLICT)?;
    let len = usize::try_from(request.length).expect("32 bits fit usize");
    let (offset, minimum) = (request.offset, request.minimum_count);
    Ok(Plan { open, offset, len, minimum, read, sight })
}

fn finish(got: Result<u32, ShareError>, plan: &Plan) -> Outcome {
    let got = got.or_status()?;
    // MS-SMB2 §3.3.5.12: fewer bytes than the client needs count as the end of the file.
    if (got == 0 && plan.len > 0) || got < plan.minimum {
        return Err(NtStatus::END_OF_FILE);
    }
    plan.open.marks.position.store(plan.offset.saturating_add(u64::from(got)), Ordering::Relaxed);
    Ok(NtStatus::SUCCESS)
}

/// Shorter answers are read whole and sent at once.
const STREAM_MIN: usize = 1 << 20;
