//! Exceptions that wait until a call has returned.
//!
//! Safety rules of this module:
//! - Python calls what it was given once, with the box that it was given, on its main thread and in the interpreter; or, where
//!   the interpreter ends before, never, and the box is left to the process.

#![allow(unsafe_code, reason = "the interpreter's pending calls")]

use std::ffi::{c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;

/// Has the main thread raise an exception with the first instruction of Python that it comes to: behind the return of the call
/// that it is in, and of whatever in C has called that. An error is the exception itself, where Python keeps no more of them.
pub(crate) fn raise(_: Python<'_>, raised: PyErr) -> PyResult<()> {
    let kept = Box::into_raw(Box::new(raised));
    // SAFETY: the rules of this module; the interpreter is attached.
    if unsafe { ffi::Py_AddPendingCall(Some(restore), kept.cast()) } == 0 {
        return Ok(());
    }
    // SAFETY: Python has not taken it.
    Err(*unsafe { Box::from_raw(kept) })
}

extern "C" fn restore(kept: *mut c_void) -> c_int {
    // SAFETY: the rules of this module.
    let raised = unsafe { Box::from_raw(kept.cast::<PyErr>()) };
    match Python::try_attach(|py| raised.restore(py)) {
        Some(()) => -1,
        None => 0,
    }
}
