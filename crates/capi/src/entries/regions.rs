//! Mapped regions.

#![allow(unsafe_code, reason = "functions for C")]

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use client::{OpenOptions, Path, RegionError};

use crate::border::{self, Place, guarded};
use crate::fault::Fault;
use crate::handles::{CLIENTS, ClientHandle, Mapped, REGIONS, RegionHandle};
use crate::status::Status;
use crate::types::{
    LANDFAST_REGION_BROKEN, LANDFAST_REGION_ORDERS_ATOMICS, LANDFAST_REGION_RECALLED, Lost,
    MapOptions, RegionInfo, path_info,
};
use crate::waiting::Held;

/// Sets each member to its default.
///
/// # Safety
/// `options` has room for the structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_map_options_init(options: *mut MapOptions) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        unsafe { Place::new("options", options) }?.set(MapOptions::default());
        Ok(())
    })
}

/// Maps `len` bytes at `offset` of a file that is that long: `landfast_set_size` first, mapping makes no file longer. The file
/// is made if it does not exist, which then is too short.
///
/// If the server does not push, the region works over SMB, and `landfast_region_state` and `landfast_region_describe` say so.
/// The server may recall a region at any time; its calls then go on over SMB, in order, without a lost byte, and the region
/// returns to push mode when the server allows that.
///
/// `options` may be null for the defaults. One thread at a time uses a region; the calls of others wait.
///
/// # Safety
/// `path` is a string that ends with a zero; `options` is null or was filled by `landfast_map_options_init`; `region` has room
/// for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_map(
    client: ClientHandle,
    path: *const c_char,
    offset: u64,
    len: u64,
    options: *const MapOptions,
    region: *mut RegionHandle,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::new("region", region) }?;
        // SAFETY: by the caller.
        let path = unsafe { border::text("path", path) }?;
        // SAFETY: by the caller.
        let options = unsafe { border::structure("options", options) }?;
        let options = options.copied().unwrap_or_default();
        options.check()?;
        let Some(end) = offset.checked_add(len) else {
            let why = "offset and length go beyond any file";
            return Err(Fault::Value { what: "len", value: len, why });
        };
        let session = CLIENTS.find(client.id)?;
        let opening = OpenOptions::read_write().with_push(options.request());
        let mapped = session.client.map(path, &opening, offset..end, options.settings());
        let mapped = mapped.map_err(Fault::client("map", path))?;
        if options.requires_push() && matches!(mapped.path(), Path::Messages { .. }) {
            return Err(Fault::NoPush { object: path.to_owned(), path: mapped.path().clone() });
        }
        let held = Mutex::new(Held::new(mapped));
        let id = REGIONS.add(Mapped { held, path: path.to_owned() })?;
        place.set(RegionHandle { id });
        Ok(())
    })
}

/// Gives a region back; after the call the server has let go of the file. It commits nothing: what no commit confirmed may or
/// may not be in the file. Submitted operations end without a word, and after the call no destination of a read is written
/// to. While another thread uses the region, all that holds when its call has returned, and what the server says is not
/// reported.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_unmap(region: RegionHandle) -> Status {
    guarded(|| match Arc::try_unwrap(REGIONS.take(region.id)?) {
        Ok(Mapped { held, path }) => {
            // Nothing of a panic in the middle of an operation is left behind its end.
            let held = held.into_inner().unwrap_or_else(PoisonError::into_inner);
            let closed = held.region.close();
            closed.map_err(|error| Fault::Region { doing: "give back", object: path, error })
        }
        Err(_) => Ok(()),
    })
}

/// Posts a write and returns. The bytes are copied. They are neither visible to others nor durable before a commit that
/// covers them; a read of this region sees them.
///
/// # Safety
/// `bytes` points to `len` bytes that do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_region_write(
    region: RegionHandle,
    offset: u64,
    bytes: *const c_void,
    len: usize,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let bytes = unsafe { border::bytes("bytes", bytes, len) }?;
        with(region, "write", |held| held.region.write(offset, bytes))
    })
}

/// Returns when everything written before within the range is durable, in the class of `landfast_region_state`.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_region_commit(region: RegionHandle, offset: u64, len: u64) -> Status {
    guarded(|| with(region, "commit", |held| held.region.commit(offset, len)))
}

/// Writes and commits the same bytes in one round trip. A crash before the call returns leaves any mixture of old and new
/// aligned words of 8 bytes.
///
/// # Safety
/// `bytes` points to `len` bytes that do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_region_write_commit(
    region: RegionHandle,
    offset: u64,
    bytes: *const c_void,
    len: usize,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let bytes = unsafe { border::bytes("bytes", bytes, len) }?;
        with(region, "write and commit", |held| held.region.write_commit(offset, bytes))
    })
}

/// Reads `len` bytes; sees every earlier write of this region.
///
/// # Safety
/// `buffer` has room for `len` bytes that only this call uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_region_read(
    region: RegionHandle,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let buffer = unsafe { border::bytes_mut("buffer", buffer, len) }?;
        with(region, "read", |held| held.region.read(offset, buffer))
    })
}

/// Stores eight bytes, little-endian, at a multiple of 8, only if every earlier commit succeeded: for example a pointer to what
/// they committed. The store is not durable by itself: commit it.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_region_atomic_write(
    region: RegionHandle,
    offset: u64,
    value: u64,
) -> Status {
    guarded(|| with(region, "store a word in", |held| held.region.atomic_write(offset, value)))
}

/// The CRC-32C of bytes of the region, which the server computes if it can.
///
/// # Safety
/// `crc` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_region_verify(
    region: RegionHandle,
    offset: u64,
    len: u32,
    crc: *mut u32,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::new("crc", crc) }?;
        place.set(with(region, "verify", |held| held.region.verify(offset, len))?);
        Ok(())
    })
}

/// Gives the region back if the server has recalled it, for a program that makes no other call for longer than half of the
/// server's grace: without it this library gives the region back in the program's name when that half is over.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_region_attend(region: RegionHandle) -> Status {
    guarded(|| with(region, "give back", |held| held.region.attend()))
}

/// What the region is now: push mode or SMB, what a commit is worth, recalled or not.
///
/// # Safety
/// `info` has room for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_region_state(
    region: RegionHandle,
    info: *mut RegionInfo,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::new("info", info) }?;
        let found = with(region, "look at", |Held { region, .. }| {
            let (mode, class, mut flags) = path_info(region.path());
            let more = [
                (region.is_recalled(), LANDFAST_REGION_RECALLED),
                (region.is_broken(), LANDFAST_REGION_BROKEN),
                (region.orders_atomic_writes(), LANDFAST_REGION_ORDERS_ATOMICS),
            ];
            flags |= more.iter().filter(|(is_so, _)| *is_so).map(|(_, flag)| flag).sum::<u32>();
            let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
            let (outstanding, lost) = (count(region.outstanding()), count(region.lost().len()));
            Ok(RegionInfo {
                size: region.len(),
                mode,
                durability: class,
                flags,
                outstanding,
                lost,
                reserved: 0,
            })
        });
        place.set(found?);
        Ok(())
    })
}

/// The same as a sentence, such as "push by provider soft, class pmem, commit by RDMA Flush", or why the region is not in push
/// mode. Writes at most `len` bytes with the zero at the end; `needed`, if not null, is the length without it.
///
/// # Safety
/// `buffer` has room for `len` bytes that only this call uses; `needed` is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_region_describe(
    region: RegionHandle,
    buffer: *mut c_char,
    len: usize,
    needed: *mut usize,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::optional("needed", needed) }?;
        // SAFETY: by the caller.
        let buffer = unsafe { border::bytes_mut("buffer", buffer.cast(), len) }?;
        let text = with(region, "look at", |held| Ok(held.region.path().to_string()))?;
        if let Some(room) = buffer.len().checked_sub(1) {
            // A letter of several bytes is not cut.
            let end = (0..=room.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
            let end = end.unwrap_or(0);
            buffer[..end].copy_from_slice(&text.as_bytes()[..end]);
            buffer[end] = 0;
        }
        if let Some(place) = place {
            place.set(text.len());
        }
        Ok(())
    })
}

/// The bytes that were written and that no commit had confirmed when the region broke: they may be durable, in the file, or
/// gone. Writes at most `count_max` ranges; `count` is how many there are.
///
/// # Safety
/// `ranges` has room for `count_max` structures, or is null with a `count_max` of 0; `count` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_region_lost(
    region: RegionHandle,
    ranges: *mut Lost,
    count_max: usize,
    count: *mut usize,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::new("count", count) }?;
        if count_max > 0 && ranges.is_null() {
            return Err(Fault::Null("ranges"));
        }
        let lost = with(region, "look at", |held| Ok(held.region.lost().to_vec()))?;
        for (index, range) in lost.iter().take(count_max).enumerate() {
            // SAFETY: by the caller there is room for `count_max` of them.
            let slot = unsafe { ranges.add(index) };
            let found = Lost { offset: range.start, len: range.end - range.start };
            // SAFETY: as above.
            unsafe { Place::new("ranges", slot) }?.set(found);
        }
        place.set(lost.len());
        Ok(())
    })
}

/// Calls `act` with the region, whose other callers wait.
pub(super) fn with<T>(
    region: RegionHandle,
    doing: &'static str,
    act: impl FnOnce(&mut Held) -> Result<T, RegionError>,
) -> Result<T, Fault> {
    let mapped = REGIONS.find(region.id)?;
    let mut held = lock(&mapped)?;
    act(&mut held).map_err(|error| fault(doing, &mapped, error))
}

pub(super) fn lock(mapped: &Arc<Mapped>) -> Result<MutexGuard<'_, Held>, Fault> {
    // A panic in the middle of an operation says nothing about what was done.
    mapped.held.lock().map_err(|_| Fault::Unknown)
}

pub(super) fn fault(doing: &'static str, mapped: &Mapped, error: RegionError) -> Fault {
    Fault::Region { doing, object: mapped.path.clone(), error }
}
