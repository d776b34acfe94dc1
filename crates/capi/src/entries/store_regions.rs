//! Mapped regions of a striped store: reads, writes, words, completions.

#![allow(unsafe_code, reason = "functions for C")]

use std::ffi::c_void;
use std::time::Duration;

use crate::border::{self, Destination, Place, guarded};
use crate::fault::Fault;
use crate::handles::{STORE_REGIONS, StoreRegionHandle};
use crate::status::Status;
use crate::store_types::{StoreSpan, check_apart};
use crate::types::Completion;

/// Gives a mapping back. Submitted operations end without a word, and after the call no destination of a read is written to;
/// while another thread uses the region, that holds when its call has returned.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_store_unmap(region: StoreRegionHandle) -> Status {
    guarded(|| STORE_REGIONS.take(region.id).map(drop))
}

/// The length of a region in bytes.
///
/// # Safety
/// `size` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_size(region: StoreRegionHandle, size: *mut u64) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let out = unsafe { Place::new("size", size) }?;
        out.set(STORE_REGIONS.find(region.id)?.region.len());
        Ok(())
    })
}

/// Reads `len` bytes of one copy in sync.
///
/// # Safety
/// `buffer` has room for `len` bytes that only this call uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_read(
    region: StoreRegionHandle,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let buffer = unsafe { border::bytes_mut("buffer", buffer, len) }?;
        STORE_REGIONS.find(region.id)?.run("read", |region| region.read(offset, buffer))
    })
}

/// Writes; on return the bytes are visible to every client, at every copy in sync. They are durable only by
/// `landfast_store_write_durable` or `landfast_store_commit`.
///
/// # Safety
/// `bytes` points to `len` bytes that do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_write(
    region: StoreRegionHandle,
    offset: u64,
    bytes: *const c_void,
    len: usize,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let bytes = unsafe { border::bytes("bytes", bytes, len) }?;
        STORE_REGIONS.find(region.id)?.run("write", |region| region.write(offset, bytes))
    })
}

/// Writes; on return the bytes are durable in the region's class, at every copy in sync.
///
/// # Safety
/// As of `landfast_store_write`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_write_durable(
    region: StoreRegionHandle,
    offset: u64,
    bytes: *const c_void,
    len: usize,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let bytes = unsafe { border::bytes("bytes", bytes, len) }?;
        let region = STORE_REGIONS.find(region.id)?;
        region.run("write durably", |region| region.write_durable(offset, bytes))
    })
}

/// Makes durable what this client wrote to the range before.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_store_commit(
    region: StoreRegionHandle,
    offset: u64,
    len: u64,
) -> Status {
    guarded(|| STORE_REGIONS.find(region.id)?.run("commit", |region| region.commit(offset, len)))
}

/// Reads several ranges at once, each into the memory of its span. The memories must not overlap.
///
/// # Safety
/// `spans` points to `count` spans, each with room for as many bytes as it says that only this call uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_read_many(
    region: StoreRegionHandle,
    spans: *const StoreSpan,
    count: usize,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let spans = unsafe { border::array("spans", spans, count) }?;
        check_apart(spans)?;
        let mut reads = Vec::with_capacity(spans.len());
        for span in spans {
            // SAFETY: by the caller; no two overlap.
            let buffer = unsafe { border::bytes_mut("spans.bytes", span.bytes, span.len) }?;
            reads.push((span.offset, buffer));
        }
        let region = STORE_REGIONS.find(region.id)?;
        region.run("read", |region| region.read_many(&mut reads))
    })
}

/// Writes several ranges at once, in no order among themselves, each from the memory of its span; on return all are visible.
///
/// # Safety
/// `spans` points to `count` spans, each with as many bytes as it says, which do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_write_many(
    region: StoreRegionHandle,
    spans: *const StoreSpan,
    count: usize,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let spans = unsafe { border::array("spans", spans, count) }?;
        let mut writes = Vec::with_capacity(spans.len());
        for span in spans {
            // SAFETY: by the caller.
            let bytes = unsafe { border::bytes("spans.bytes", span.bytes.cast_const(), span.len) }?;
            writes.push((span.offset, bytes));
        }
        STORE_REGIONS.find(region.id)?.run("write", |region| region.write_many(&writes))
    })
}

/// Adds to the little-endian word of 8 bytes at a multiple of 8, atomically, and says what it was. After
/// `LANDFAST_STATUS_IN_DOUBT` nobody knows whether it was added.
///
/// # Safety
/// `before` has room for a number, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_fetch_add(
    region: StoreRegionHandle,
    offset: u64,
    add: u64,
    before: *mut u64,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let out = unsafe { Place::optional("before", before) }?;
        let region = STORE_REGIONS.find(region.id)?;
        let word = region.run("add to a word of", |region| region.fetch_add(offset, add))?;
        if let Some(out) = out {
            out.set(word);
        }
        Ok(())
    })
}

/// Stores `swap` in the word at a multiple of 8 if it is `compare`, atomically, and says what it was: the swap was made if that
/// is `compare`. For regions of one copy (`LANDFAST_STATUS_NOT_SUPPORTED`).
///
/// # Safety
/// `before` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_compare_swap(
    region: StoreRegionHandle,
    offset: u64,
    compare: u64,
    swap: u64,
    before: *mut u64,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let out = unsafe { Place::new("before", before) }?;
        let region = STORE_REGIONS.find(region.id)?;
        let swapped = |region: &store::Region| region.compare_swap(offset, compare, swap);
        out.set(region.run("swap a word of", swapped)?);
        Ok(())
    })
}

/// Adds to a counter of the region by which clients wake each other, and says its new value. A counter begins at 0 and lives as
/// long as the daemon that keeps it.
///
/// # Safety
/// `count` has room for a number, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_notify(
    region: StoreRegionHandle,
    channel: u32,
    add: u64,
    count: *mut u64,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let out = unsafe { Place::optional("count", count) }?;
        let region = STORE_REGIONS.find(region.id)?;
        let value = region.run("notify by", |region| region.notify(channel, add))?;
        if let Some(out) = out {
            out.set(value);
        }
        Ok(())
    })
}

/// Waits until a counter is above `seen`, and says its value; `LANDFAST_STATUS_NOT_YET` after `timeout_ms`.
///
/// # Safety
/// `count` has room for a number, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_wait_above(
    region: StoreRegionHandle,
    channel: u32,
    seen: u64,
    timeout_ms: u32,
    count: *mut u64,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let out = unsafe { Place::optional("count", count) }?;
        let region = STORE_REGIONS.find(region.id)?;
        let patience = Duration::from_millis(timeout_ms.into());
        let wait = |region: &store::Region| region.wait_above(channel, seen, patience);
        let value = region.run("wait for", wait)?;
        if let Some(out) = out {
            out.set(value);
        }
        Ok(())
    })
}

/// Submits a read. The memory belongs to the library until `landfast_store_wait` reports the read or the region is unmapped.
/// `ticket` may be null.
///
/// # Safety
/// `buffer` has room for `len` bytes that only the library uses until then; `ticket` has room for a number, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_submit_read(
    region: StoreRegionHandle,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
    user_data: u64,
    ticket: *mut u64,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let out = unsafe { Place::optional("ticket", ticket) }?;
        // SAFETY: by the caller.
        let destination = unsafe { Destination::new("buffer", buffer, len) }?;
        let region = STORE_REGIONS.find(region.id)?;
        let post = |region: &store::Region| region.submit_read(offset, len);
        let submitted = region.submit(user_data, Some(destination), post);
        set(out, submitted.map_err(Fault::store("submit a read of", region.region.name()))?);
        Ok(())
    })
}

/// Submits a write, whose bytes are copied; with `durable` other than 0 it ends when they are durable. Operations that are on
/// their way together have no order.
///
/// # Safety
/// `bytes` points to `len` bytes that do not change during the call; `ticket` has room for a number, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_submit_write(
    region: StoreRegionHandle,
    offset: u64,
    bytes: *const c_void,
    len: usize,
    durable: u32,
    user_data: u64,
    ticket: *mut u64,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let out = unsafe { Place::optional("ticket", ticket) }?;
        // SAFETY: by the caller.
        let bytes = unsafe { border::bytes("bytes", bytes, len) }?;
        let region = STORE_REGIONS.find(region.id)?;
        let post = |region: &store::Region| region.submit_write(offset, bytes, durable != 0);
        let submitted = region.submit(user_data, None, post);
        set(out, submitted.map_err(Fault::store("submit a write to", region.region.name()))?);
        Ok(())
    })
}

/// The next submitted operation that has ended, in the order of their ends; waits for `timeout_ms` at most, and then
/// returns `LANDFAST_STATUS_NOT_YET`. How the operation ended is `completion->status`.
///
/// # Safety
/// `completion` has room for the structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_wait(
    region: StoreRegionHandle,
    timeout_ms: u32,
    completion: *mut Completion,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let out = unsafe { Place::new("completion", completion) }?;
        let region = STORE_REGIONS.find(region.id)?;
        let name = region.region.name();
        let ended = region.wait(Duration::from_millis(timeout_ms.into()));
        let ended = ended.map_err(Fault::store("wait for", name))?;
        let (value, status) = match ended.outcome {
            Ok(value) => (value, Status::Ok),
            Err(error) => (0, Fault::store("carry out an operation of", name)(error).keep()),
        };
        let (ticket, user_data) = (ended.ticket, ended.user_data);
        out.set(Completion { ticket, user_data, value, status, reserved: 0 });
        Ok(())
    })
}

fn set(out: Option<Place<u64>>, ticket: u64) {
    if let Some(out) = out {
        out.set(ticket);
    }
}
