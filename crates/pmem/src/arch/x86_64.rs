//! Placement on x86-64: streaming stores, cache-line write-back, store fence.
//!
//! # Safety rules of this module
//!
//! Shared memory is reached by assembly or by the atomic cells of the portable path, never by a
//! Rust reference or a plain Rust access, so a racing party makes the bytes unpredictable and
//! nothing worse. Stores to shared memory are aligned to their own size, so no aligned 8-byte
//! word is ever torn (Intel SDM vol. 3 §10.1.1).
//!
//! Order of stores (Intel SDM vol. 1 §10.4.6.2, vol. 2 CLWB, vol. 3 §10.2.2): cached stores of
//! one CPU become visible in order. Streamed stores and write-backs are ordered only by a fence
//! of **the CPU that issued them**; a release store or a mutex does not order them.
#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::LazyLock;

use super::{CACHE_LINE, portable};

/// Copies a positive multiple of 64 bytes, 64 at a time.
macro_rules! copy_lines {
    ($to:expr, $from:expr, $len:expr, load $load:literal, store $store:literal) => {
        asm!(
            "2:",
            concat!($load, " {a}, [{from}]"),
            concat!($load, " {b}, [{from} + 16]"),
            concat!($load, " {c}, [{from} + 32]"),
            concat!($load, " {d}, [{from} + 48]"),
            concat!($store, " [{to}], {a}"),
            concat!($store, " [{to} + 16], {b}"),
            concat!($store, " [{to} + 32], {c}"),
            concat!($store, " [{to} + 48], {d}"),
            "add {from}, 64",
            "add {to}, 64",
            "sub {left}, 64",
            "jnz 2b",
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            from = inout(reg) $from => _, to = inout(reg) $to => _, left = inout(reg) $len => _,
            options(nostack),
        )
    };
}

/// Whether the CPU can write cache lines back.
pub(crate) fn has_write_back() -> bool {
    *WRITE_BACK != WriteBack::None
}

/// Copies ordinary memory into shared memory through the caches, from low addresses to high.
///
/// # Safety
///
/// `source` must be readable and `target` writable for `len` bytes; they must not overlap; only
/// `target` may be shared.
pub(crate) unsafe fn copy_in(target: *mut u8, source: *const u8, len: usize) {
    let (head, bulk) = split(target.addr(), len);
    // SAFETY: head <= len.
    unsafe { portable::copy_in(target, source, head) };
    if bulk > 0 {
        let (to, from) = (target.wrapping_add(head), source.wrapping_add(head));
        // SAFETY: head + bulk <= len; split() put `to` on a 16-byte boundary; bulk is a positive
        // multiple of 64.
        unsafe { copy_lines!(to, from, bulk, load "movdqu", store "movdqa") };
    }
    let done = head + bulk;
    let (to, from) = (target.wrapping_add(done), source.wrapping_add(done));
    // SAFETY: done <= len: what is left of the caller's ranges.
    unsafe { portable::copy_in(to, from, len - done) };
}

/// Copies shared memory into ordinary memory, from low addresses to high.
///
/// # Safety
///
/// `source` must be readable and `target` writable for `len` bytes; they must not overlap; only
/// `source` may be shared.
pub(crate) unsafe fn copy_out(target: *mut u8, source: *const u8, len: usize) {
    let (head, bulk) = split(source.addr(), len);
    // SAFETY: head <= len.
    unsafe { portable::copy_out(target, source, head) };
    if bulk > 0 {
        let (to, from) = (target.wrapping_add(head), source.wrapping_add(head));
        // SAFETY: head + bulk <= len; split() put `from` on a 16-byte boundary; bulk is a positive
        // multiple of 64.
        unsafe { copy_lines!(to, from, bulk, load "movdqa", store "movdqu") };
    }
    let done = head + bulk;
    let (to, from) = (target.wrapping_add(done), source.wrapping_add(done));
    // SAFETY: done <= len: what is left of the caller's ranges.
    unsafe { portable::copy_out(to, from, len - done) };
}

/// Copies whole lines past the caches. The stores are ordered, and have left the CPU, only
/// after [`drain`].
///
/// # Safety
///
/// As [`copy_in`]; `target` and `len` must be multiples of a cache line.
pub(crate) unsafe fn stream(target: *mut u8, source: *const u8, len: usize) {
    if len > 0 {
        // SAFETY: every store is aligned and inside; len is a positive multiple of 64.
        unsafe { copy_lines!(target, source, len, load "movdqu", store "movntdq") };
    }
}

/// Bytes before the first 16-byte boundary, and bytes in whole lines after them.
fn split(address: usize, len: usize) -> (usize, usize) {
    let head = (address.wrapping_neg() & 15).min(len);
    (head, (len - head) & !(CACHE_LINE - 1))
}

/// Starts writing back the lines that hold the range. The write-back ends with [`drain`].
///
/// # Safety
///
/// The range must be readable.
pub(crate) unsafe fn write_back(start: *const u8, len: usize) {
    if len == 0 {
        return;
    }
    let first = start.map_addr(|address| address & !(CACHE_LINE - 1));
    let lines = (start.addr() - first.addr() + len).div_ceil(CACHE_LINE);
    let kind = *WRITE_BACK;
    for line in 0..lines {
        // The first line may begin below the range, the last one end above it; both hold a byte
        // of it, and an instruction takes a line whole, so nothing else is ever reached.
        let line = first.wrapping_add(line * CACHE_LINE);
        match kind {
            // SAFETY: the line holds a byte of the range, and cpuid announced the instruction.
            WriteBack::Clwb => unsafe { asm!("clwb [{}]", in(reg) line, options(nostack)) },
            // SAFETY: as above.
            WriteBack::Clflushopt => unsafe {
                asm!("clflushopt [{}]", in(reg) line, options(nostack));
            },
            // SAFETY: as above.
            WriteBack::Clflush => unsafe { asm!("clflush [{}]", in(reg) line, options(nostack)) },
            WriteBack::None => {}
        }
    }
}

/// Waits until what **this CPU** streamed and wrote back has left its buffers.
pub(crate) fn drain() {
    // SAFETY: a store fence takes nothing and touches nothing.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

/// The best instruction of this CPU for writing a cache line back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WriteBack {
    /// Writes the line back and keeps it.
    Clwb,
    /// Writes the line back and drops it, unordered.
    Clflushopt,
    /// Writes the line back and drops it, one after the other: several times slower.
    Clflush,
    /// None at all; a machine older than SSE2, which does not run this program.
    None,
}

static WRITE_BACK: LazyLock<WriteBack> = LazyLock::new(|| {
    let highest = __cpuid(0).eax;
    let extended = if highest >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
    // Intel SDM vol. 2, CPUID leaf 07H: CLWB is EBX bit 24, CLFLUSHOPT bit 23; leaf 01H: CLFSH is
    // EDX bit 19.
    if extended & (1 << 24) != 0 {
        WriteBack::Clwb
    } else if extended & (1 << 23) != 0 {
        WriteBack::Clflushopt
    } else if __cpuid(1).edx & (1 << 19) != 0 {
        WriteBack::Clflush
    } else {
        WriteBack::None
    }
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_begin_at_the_first_boundary_of_16_bytes() {
        for ((address, len), parts) in
            [((16, 130), (0, 128)), ((17, 130), (15, 64)), ((31, 65), (1, 64)), ((17, 9), (9, 0))]
        {
            assert_eq!(split(address, len), parts, "{address} {len}");
        }
    }

    /// Each copy, seen as a function into or out of shared memory at `offset`.
    #[test]
    fn every_alignment_and_length_copies_exactly_its_bytes() {
        let pattern: Vec<u8> = (0..400_u16).map(|n| u8::try_from(n % 251 + 1).unwrap()).collect();
        for (offset, len) in (0..20).flat_map(|offset| (0..=300).map(move |len| (offset, len))) {
            let mut shared = [0_u8; 400];
            let mut out = [0_u8; 300];
            // SAFETY: offset < 400.
            let target = unsafe { shared.as_mut_ptr().add(offset) };
            // SAFETY: 400 readable and 400 - 20 writable bytes.
            unsafe { copy_in(target, pattern[1..].as_ptr(), len) };
            // SAFETY: the range was just written.
            unsafe { write_back(target, len) };
            drain();
            // SAFETY: 300 writable and 400 - 20 readable bytes.
            unsafe { copy_out(out.as_mut_ptr(), target, len) };
            assert_eq!(out[..len], pattern[1..=len]);
            assert_eq!(shared[offset..offset + len], pattern[1..=len]);
            assert!(shared[..offset].iter().chain(&shared[offset + len..]).all(|b| *b == 0));
        }
    }

    #[test]
    fn streaming_fills_exactly_its_lines() {
        #[repr(align(64))]
        struct Lines([u8; 4 * CACHE_LINE]);
        let pattern = [0xa5_u8; 2 * CACHE_LINE + 1];
        let mut shared = Lines([0; 4 * CACHE_LINE]);
        // SAFETY: one line in of four.
        let target = unsafe { shared.0.as_mut_ptr().add(CACHE_LINE) };
        // SAFETY: two lines of three that are left, on a line boundary.
        unsafe { stream(target, pattern[1..].as_ptr(), 2 * CACHE_LINE) };
        drain();
        assert_eq!(shared.0[CACHE_LINE..3 * CACHE_LINE], pattern[1..]);
        assert!(shared.0[..CACHE_LINE].iter().chain(&shared.0[3 * CACHE_LINE..]).all(|b| *b == 0));
    }

    #[test]
    fn this_machine_writes_lines_back() {
        assert!(has_write_back());
    }
}
