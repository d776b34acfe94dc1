//! Placement for any CPU: word-wise copies that other parties may race with.
//!
//! # Safety rules of this module
//!
//! Every access to shared memory is a relaxed atomic of a byte or an aligned word, so that a
//! racing party makes the bytes unpredictable and nothing worse, and an aligned word is never
//! torn. The cells exist for one access each; no reference to plain data is made.
//!
//! There is no portable way to write a cache line back, so `has_write_back` is false, and
//! `map_file` opens DAX files as storage and refuses devdax devices.
#![allow(unsafe_code)]
#![cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    allow(
        dead_code,
        reason = "compiled everywhere so that it cannot rot; called where there is no better"
    )
)]

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

/// Whether the CPU can write cache lines back.
pub(crate) fn has_write_back() -> bool {
    false
}

/// Copies ordinary memory into shared memory, from low addresses to high.
///
/// # Safety
///
/// `source` must be readable and `target` writable for `len` bytes; they must not overlap; only
/// `target` may be shared.
pub(crate) unsafe fn copy_in(target: *mut u8, source: *const u8, len: usize) {
    let (head, words) = split(target.addr(), len);
    let store_bytes = |range: Range<usize>| {
        for at in range {
            // SAFETY: at < len, and `source` is readable.
            let byte = unsafe { source.wrapping_add(at).read() };
            // SAFETY: at < len, `target` is writable, and the cell is gone after this statement.
            unsafe { AtomicU8::from_ptr(target.wrapping_add(at)) }.store(byte, Ordering::Relaxed);
        }
    };
    store_bytes(0..head);
    for at in (head..head + words).step_by(8) {
        // SAFETY: at + 8 <= len readable bytes, at any alignment.
        let word = unsafe { source.wrapping_add(at).cast::<u64>().read_unaligned() };
        let cell = target.wrapping_add(at).cast::<u64>();
        // SAFETY: at + 8 <= len, and split() put `cell` on an 8-byte boundary; gone at once.
        unsafe { AtomicU64::from_ptr(cell) }.store(word, Ordering::Relaxed);
    }
    store_bytes(head + words..len);
}

/// Copies shared memory into ordinary memory, from low addresses to high.
///
/// # Safety
///
/// `source` must be readable and `target` writable for `len` bytes; they must not overlap; only
/// `source` may be shared.
pub(crate) unsafe fn copy_out(target: *mut u8, source: *const u8, len: usize) {
    let (head, words) = split(source.addr(), len);
    let load_bytes = |range: Range<usize>| {
        for at in range {
            let cell = source.wrapping_add(at).cast_mut();
            // SAFETY: at < len, `source` is readable, only loaded from, and gone at once.
            let byte = unsafe { AtomicU8::from_ptr(cell) }.load(Ordering::Relaxed);
            // SAFETY: at < len, and `target` is writable.
            unsafe { target.wrapping_add(at).write(byte) };
        }
    };
    load_bytes(0..head);
    for at in (head..head + words).step_by(8) {
        let cell = source.wrapping_add(at).cast::<u64>().cast_mut();
        // SAFETY: at + 8 <= len, split() put `cell` on an 8-byte boundary; only loaded from.
        let word = unsafe { AtomicU64::from_ptr(cell) }.load(Ordering::Relaxed);
        // SAFETY: at + 8 <= len writable bytes, at any alignment.
        unsafe { target.wrapping_add(at).cast::<u64>().write_unaligned(word) };
    }
    load_bytes(head + words..len);
}

/// Copies whole lines past the caches; here a plain copy.
///
/// # Safety
///
/// As [`copy_in`]; `target` and `len` must be multiples of a cache line.
pub(crate) unsafe fn stream(target: *mut u8, source: *const u8, len: usize) {
    // SAFETY: the caller promises what copy_in asks for.
    unsafe { copy_in(target, source, len) };
}

/// Starts writing back the lines that hold the range; here nothing, see [`has_write_back`].
///
/// # Safety
///
/// The range must be readable.
pub(crate) unsafe fn write_back(_start: *const u8, _len: usize) {}

/// Waits until what this CPU streamed and wrote back is out of its buffers.
pub(crate) fn drain() {
    fence(Ordering::SeqCst);
}

/// Bytes before the first aligned word, and bytes in whole aligned words after them.
fn split(address: usize, len: usize) -> (usize, usize) {
    let head = (address.wrapping_neg() & 7).min(len);
    (head, (len - head) & !7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_begin_at_the_first_boundary_and_end_at_the_last() {
        for ((address, len), parts) in
            [((8, 20), (0, 16)), ((9, 20), (7, 8)), ((15, 20), (1, 16)), ((9, 3), (3, 0))]
        {
            assert_eq!(split(address, len), parts, "{address} {len}");
        }
    }

    #[test]
    fn every_alignment_and_length_copies_exactly_its_bytes() {
        let pattern: Vec<u8> = (1..=40).collect();
        for (offset, len) in (0..16).flat_map(|offset| (0..=24).map(move |len| (offset, len))) {
            let mut shared = [0_u8; 48];
            let mut out = [0_u8; 24];
            let cell = shared.as_mut_ptr();
            // SAFETY: offset + len <= 40 < 48.
            let target = unsafe { cell.add(offset) };
            // SAFETY: len <= 40 readable, and 48 - offset writable bytes.
            unsafe { copy_in(target, pattern.as_ptr(), len) };
            // SAFETY: len <= 24 writable, and 48 - offset readable bytes.
            unsafe { copy_out(out.as_mut_ptr(), target, len) };
            assert_eq!(out[..len], pattern[..len]);
            assert_eq!(shared[offset..offset + len], pattern[..len]);
            assert!(shared[..offset].iter().chain(&shared[offset + len..]).all(|b| *b == 0));
        }
    }
}
