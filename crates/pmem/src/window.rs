//! Access to mapped memory that peers and other processes read and write at any time.
//!
//! # Safety rules of this module
//!
//! Peers place bytes here through RDMA and processes through their own mappings, so no `&[u8]`
//! or `&mut [u8]` into the memory may ever exist: bytes go in and out by copy, through a raw
//! pointer. The one view allowed is an atomic cell, which the language defines as shared and
//! mutable, and it lives for a single operation. Every method checks its bounds, whatever the
//! caller checked before.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::AtomicOp;
use crate::arch::{self, CACHE_LINE};

/// A bounded piece of mapped memory. Copying it copies the right to reach it, not the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window<'m> {
    start: NonNull<u8>,
    len: usize,
    mapping: PhantomData<&'m ()>,
}

impl Window<'_> {
    /// # Safety
    ///
    /// Throughout `'m`, `start` must be valid for reads of `len` bytes, and for writes if any
    /// method that writes is called; and nothing may hold a Rust reference to any of them.
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len, mapping: PhantomData }
    }

    /// Copies the bytes at `offset` into `out`.
    ///
    /// # Panics
    ///
    /// As every method here: if the range leaves the window.
    pub(crate) fn load(self, offset: usize, out: &mut [u8]) {
        let source = self.at(offset, out.len());
        // SAFETY: at() proved out.len() readable bytes; `out` is a reference and so not among
        // them, as new() was promised.
        unsafe { arch::copy_out(out.as_mut_ptr(), source.as_ptr(), out.len()) };
    }

    /// Copies `bytes` to `offset` through the caches.
    pub(crate) fn store(self, offset: usize, bytes: &[u8]) {
        let target = self.at(offset, bytes.len());
        // SAFETY: at() proved bytes.len() writable bytes, apart from `bytes` as above.
        unsafe { arch::copy_in(target.as_ptr(), bytes.as_ptr(), bytes.len()) };
    }

    /// Copies whole cache lines to `offset` past the caches; see [`arch::drain`].
    pub(crate) fn stream(self, offset: usize, bytes: &[u8]) {
        let target = self.at(offset, bytes.len());
        assert!(target.as_ptr().addr().is_multiple_of(CACHE_LINE));
        assert!(bytes.len().is_multiple_of(CACHE_LINE));
        // SAFETY: as in store(), and whole lines.
        unsafe { arch::stream(target.as_ptr(), bytes.as_ptr(), bytes.len()) };
    }

    /// Starts writing back the lines that hold the range; see [`arch::drain`].
    pub(crate) fn write_back(self, offset: usize, len: usize) {
        let start = self.at(offset, len);
        // SAFETY: at() proved the range readable.
        unsafe { arch::write_back(start.as_ptr(), len) };
    }

    /// Applies `op` to the aligned word at `offset`, atomically against every other access.
    pub(crate) fn atomic(self, offset: usize, op: AtomicOp) -> u64 {
        let word = self.at(offset, 8).cast::<u64>();
        assert!(word.is_aligned());
        // SAFETY: an aligned, readable and writable word; the cell ends with this function.
        let cell = unsafe { AtomicU64::from_ptr(word.as_ptr()) };
        let outcome = cell.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| op.apply(old));
        outcome.unwrap_or_else(|unchanged| unchanged)
    }

    /// The byte at `offset`.
    pub(crate) fn byte(self, offset: usize) -> u8 {
        self.cell(offset).load(Ordering::Relaxed)
    }

    /// Sets `bits` in the byte at `offset`. With no bits the call is a write that changes nothing.
    pub(crate) fn set_bits(self, offset: usize, bits: u8) {
        self.cell(offset).fetch_or(bits, Ordering::Relaxed);
    }

    fn cell(&self, offset: usize) -> &AtomicU8 {
        let byte = self.at(offset, 1);
        // SAFETY: a readable byte, writable if set_bits() is called; the cell ends with the caller.
        unsafe { AtomicU8::from_ptr(byte.as_ptr()) }
    }

    fn at(self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset <= self.len && len <= self.len - offset, "range outside the window");
        // SAFETY: offset <= self.len, so the sum stays inside the mapping or one past it.
        unsafe { self.start.add(offset) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Lines([u8; 256]);

    fn with_window<T>(memory: &mut Lines, use_it: impl FnOnce(Window<'_>) -> T) -> T {
        let start = NonNull::from(&mut memory.0).cast();
        // SAFETY: `memory` is borrowed and not touched while the window is in use.
        use_it(unsafe { Window::new(start, 256) })
    }

    #[test]
    fn a_store_reaches_its_bytes_and_no_others() {
        let mut memory = Lines([0; 256]);
        with_window(&mut memory, |window| window.store(3, &[0xaa, 0xbb]));
        assert_eq!(memory.0[..8], [0, 0, 0, 0xaa, 0xbb, 0, 0, 0]);
        assert!(memory.0[8..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn stored_and_streamed_bytes_are_loaded_back() {
        let mut memory = Lines([0; 256]);
        let bytes: Vec<u8> = (0..128).collect();
        let mut out = [0; 128];
        with_window(&mut memory, |window| {
            window.stream(64, &bytes);
            window.write_back(64, 128);
            arch::drain();
            window.load(64, &mut out);
        });
        assert_eq!(out[..], bytes);
    }

    #[test]
    fn an_atomic_returns_the_previous_word_and_replaces_it() {
        let mut memory = Lines([0; 256]);
        with_window(&mut memory, |window| {
            assert_eq!(window.atomic(8, AtomicOp::Store(7)), 0);
            assert_eq!(window.atomic(8, AtomicOp::FetchAdd { add: 3, mask: 0 }), 7);
            let op = AtomicOp::CompareSwap { compare: 9, compare_mask: !0, swap: 1, swap_mask: !0 };
            assert_eq!(window.atomic(8, op), 10);
            assert_eq!(window.atomic(8, AtomicOp::Store(0)), 10, "9 was expected: nothing swapped");
        });
    }

    #[test]
    #[should_panic(expected = "range outside the window")]
    fn a_range_past_the_end_is_refused() {
        with_window(&mut Lines([0; 256]), |window| window.store(255, &[1, 2]));
    }
}
