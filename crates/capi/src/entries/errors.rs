//! Names and texts.

#![allow(unsafe_code, reason = "functions for C")]

use std::ffi::{CStr, c_char};

use crate::fault;
use crate::status::Status;

/// The sentence of the calling thread's latest failure: which object, and why. It is valid until a further call of this
/// library fails on the same thread. Empty before the first failure; a call that succeeds leaves it as it was.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_error_text() -> *const c_char {
    fault::latest_text()
}

/// The NTSTATUS of the server in the calling thread's latest failure; 0 if the failure was none of the server's.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_error_ntstatus() -> u32 {
    fault::latest_nt_status()
}

/// The name of a status, such as "LANDFAST_STATUS_OK". Never null.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_status_name(status: i32) -> *const c_char {
    let place = usize::try_from(status).unwrap_or(usize::MAX);
    Status::ALL.get(place).map_or(c"unknown status", |status| status.name()).as_ptr()
}

/// The name of a `landfast_class`: "unknown", "volatile", "storage" or "pmem". Never null.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_class_name(class_number: u32) -> *const c_char {
    let name = match class_number {
        1 => c"volatile",
        2 => c"storage",
        3 => c"pmem",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn landfast_version() -> *const c_char {
    VERSION.as_ptr()
}

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("the version has no zero"),
    };
