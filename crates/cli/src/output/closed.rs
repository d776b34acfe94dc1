//! Detects that the program was started without standard output (`>&-` of a shell) or input (`<&-`).
//!
//! The standard library opens /dev/null in their place before `main`, so that no file gets their numbers: from then on
//! every write seems to succeed, and a read is at the end. Afterwards the program cannot tell why /dev/null is open.
//!
//! # Safety rules of this module
//!
//! `look` runs before `main`, in the only thread, where the standard library promises nothing: it asks for the
//! metadata of two paths and sets an atomic, for which the library needs no state of its own, and cannot panic.
#![allow(unsafe_code)]

use std::fs::symlink_metadata;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether standard output was closed.
pub(super) fn was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Whether standard input was closed.
pub(super) fn was_input_closed() -> bool {
    INPUT_CLOSED.load(Ordering::Relaxed)
}

extern "C" fn look() {
    if symlink_metadata("/proc/self/fd").is_err() {
        return;
    }
    let is_closed = |path: &str| symlink_metadata(path).is_err();
    INPUT_CLOSED.store(is_closed("/proc/self/fd/0"), Ordering::Relaxed);
    CLOSED.store(is_closed("/proc/self/fd/1"), Ordering::Relaxed);
}

static CLOSED: AtomicBool = AtomicBool::new(false);
static INPUT_CLOSED: AtomicBool = AtomicBool::new(false);
// SAFETY: the section holds addresses of such functions, which the loader calls before `main`.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;
