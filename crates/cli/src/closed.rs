//! Detects that the program was started without standard input or output (`<&-`, `>&-` of a shell).
//!
//! The standard library opens /dev/null in their place before `main`, so that no file gets their numbers: from then on
//! every read finds an end, and every write seems to succeed. Afterwards the program cannot tell why /dev/null is open.
//!
//! # Safety rules of this module
//!
//! `look` runs before `main`, in the only thread, where the standard library promises nothing: it asks for the
//! metadata of three paths and sets two atomics, for which the library needs no state of its own, and cannot panic.
#![allow(unsafe_code)]

use std::fs::symlink_metadata;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether standard input was closed.
pub(crate) fn is_input_closed() -> bool {
    INPUT_CLOSED.load(Ordering::Relaxed)
}

/// Whether standard output was closed.
pub(crate) fn is_output_closed() -> bool {
    OUTPUT_CLOSED.load(Ordering::Relaxed)
}

extern "C" fn look() {
    if symlink_metadata("/proc/self/fd").is_ok() {
        INPUT_CLOSED.store(symlink_metadata("/proc/self/fd/0").is_err(), Ordering::Relaxed);
        OUTPUT_CLOSED.store(symlink_metadata("/proc/self/fd/1").is_err(), Ordering::Relaxed);
    }
}

static INPUT_CLOSED: AtomicBool = AtomicBool::new(false);
static OUTPUT_CLOSED: AtomicBool = AtomicBool::new(false);
// SAFETY: the section holds addresses of such functions, which the loader calls before `main`.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;
