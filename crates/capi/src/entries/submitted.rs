//! Many operations at once: submitted without waiting, waited for or polled for in their order.

#![allow(unsafe_code, reason = "functions for C")]

use std::ffi::c_void;
use std::time::Duration;

use super::regions::{fault, lock, with};
use crate::border::{self, Destination, Place, guarded};
use crate::fault::Fault;
use crate::handles::{REGIONS, RegionHandle};
use crate::status::Status;
use crate::types::Completion;
use crate::waiting::Ended;

/// Posts a write and its commit. `landfast_region_wait` reports when the bytes are durable, with `user_data`. The bytes are
/// copied. `ticket`, if not null, is the number of the operation.
///
/// # Safety
/// `bytes` points to `len` bytes that do not change during the call; `ticket` is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_region_submit_write_commit(
    region: RegionHandle,
    offset: u64,
    bytes: *const c_void,
    len: usize,
    user_data: u64,
    ticket: *mut u64,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::optional("ticket", ticket) }?;
        // SAFETY: by the caller.
        let bytes = unsafe { border::bytes("bytes", bytes, len) }?;
        let number = with(region, "write and commit", |held| {
            held.submit(user_data, None, |region| region.submit_write_commit(offset, bytes))
        })?;
        set(place, number);
        Ok(())
    })
}

/// Posts a commit of what was written before within the range.
///
/// # Safety
/// `ticket` is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_region_submit_commit(
    region: RegionHandle,
    offset: u64,
    len: u64,
    user_data: u64,
    ticket: *mut u64,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::optional("ticket", ticket) }?;
        let number = with(region, "commit", |held| {
            held.submit(user_data, None, |region| region.submit_commit(offset, len))
        })?;
        set(place, number);
        Ok(())
    })
}

/// Posts a read of at most 1 MiB. The bytes are in `buffer` when `landfast_region_wait` or `landfast_region_poll` reports the
/// operation: until then, or until the region is unmapped, the buffer is this library's.
///
/// # Safety
/// `buffer` has room for `len` bytes, which nobody else uses and which are not freed before the operation is reported or the
/// region is unmapped; `ticket` is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_region_submit_read(
    region: RegionHandle,
    offset: u64,
    buffer: *mut c_void,
    len: u32,
    user_data: u64,
    ticket: *mut u64,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::optional("ticket", ticket) }?;
        let wide = usize::try_from(len).unwrap_or(usize::MAX);
        // SAFETY: by the caller.
        let destination = unsafe { Destination::new("buffer", buffer, wide) }?;
        let number = with(region, "read", |held| {
            held.submit(user_data, Some(destination), |region| region.submit_read(offset, len))
        })?;
        set(place, number);
        Ok(())
    })
}

/// Waits for the oldest submitted operation, `timeout_ms` at most; -1 waits for ever. The operation's own outcome is in
/// `completion->status`; the call itself returns `LANDFAST_STATUS_NOT_YET` when the time is over, and
/// `LANDFAST_STATUS_NOTHING_OUTSTANDING` without a submitted operation.
///
/// # Safety
/// `completion` has room for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_region_wait(
    region: RegionHandle,
    timeout_ms: i32,
    completion: *mut Completion,
) -> Status {
    let patience = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::new("completion", completion) }?;
        await_oldest(region, patience, place)
    })
}

/// `landfast_region_wait` that returns at once.
///
/// # Safety
/// `completion` has room for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_region_poll(
    region: RegionHandle,
    completion: *mut Completion,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::new("completion", completion) }?;
        await_oldest(region, Some(Duration::ZERO), place)
    })
}

fn await_oldest(
    region: RegionHandle,
    patience: Option<Duration>,
    place: Place<Completion>,
) -> Result<(), Fault> {
    let mapped = REGIONS.find(region.id)?;
    let ended = lock(&mapped)?.wait(patience).map_err(|error| fault("wait for", &mapped, error))?;
    let Ended { ticket, user_data, outcome } = ended.ok_or(Fault::NotYet)?;
    let (value, status) = match outcome {
        Ok(value) => (value, Status::Ok),
        Err(error) => (0, fault("finish an operation on", &mapped, error).keep()),
    };
    place.set(Completion { ticket, user_data, value, status, reserved: 0 });
    Ok(())
}

fn set(place: Option<Place<u64>>, number: u64) {
    if let Some(place) = place {
        place.set(number);
    }
}
