//! WRITE_UNDER_LEASE: bytes that a client had pushed and not committed come again, by a message.
//!
//! Spec: docs/push-mode.md, "WRITE_UNDER_LEASE".

use std::sync::Arc;

use smb::push::WriteUnderLease;
use smb::{IoctlRequest, NtStatus};
use tree::InlineIo;

use crate::access;
use crate::dispatch::call::Call;
use crate::dispatch::persist;
use crate::limits::IO_INLINE_MAX;
use crate::state::Open;
use crate::state::locks::LockTable;
use crate::state::range::LockRange;
use crate::status::OrStatus as _;

pub(super) async fn write(
    call: &Call,
    open: &Arc<Open>,
    asked: WriteUnderLease<'_>,
) -> Result<Vec<u8>, NtStatus> {
    let WriteUnderLease { file_offset: offset, epoch, data } = asked;
    let length = u32::try_from(data.len()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    if length > call.core.connections.limits.io_size_max {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    call.asker().check_charge(length)?;
    access::admit(open, access::Write::Bytes)?;
    let end = offset.checked_add(u64::from(length));
    if end.is_none_or(|end| end > i64::MAX.unsigned_abs()) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let range = LockRange::new(offset, u64::from(length)).ok_or(NtStatus::INVALID_PARAMETER)?;
    let is_long = data.len() > IO_INLINE_MAX || open.is_write_through();
    let inline = if is_long { InlineIo::CachedReads } else { open.entry.inline_io() };
    let (frame, pdu) = (Arc::clone(&call.frame), call.range.clone());
    let changed = Arc::clone(open);
    let write = move || {
        // The last step before the bytes are written: from here on nobody else opens the file.
        let is_free =
            |locks: &LockTable| locks.allows_write(changed.serial, range.offset, range.length);
        let admitted = changed.node.begin_change_under(changed.change(range), epoch, is_free);
        let admitted = admitted.ok_or(NtStatus::INVALID_OPLOCK_PROTOCOL)?;
        let _until_done = admitted.ok_or(NtStatus::FILE_LOCK_CONFLICT)?;
        let data = data_of(&frame[pdu]).ok_or(NtStatus::INVALID_PARAMETER)?;
        changed.entry.write_at(data, offset).or_status()?;
        if changed.is_write_through() { persist::persist(&changed) } else { Ok(()) }
    };
    call.changing(open, inline, write).await??;
    Ok(Vec::new())
}

// The bytes stay in the frame of their request.
fn data_of(pdu: &[u8]) -> Option<&[u8]> {
    let input = IoctlRequest::parse(pdu).ok()?.input;
    WriteUnderLease::parse(input).ok().map(|asked| asked.data)
}
