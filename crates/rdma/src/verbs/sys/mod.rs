//! The one place that touches libibverbs and librdmacm.
//!
//! # Safety rules of this module
//!
//! - A pointer that a library hands out belongs to one handle, which is the only one to give it
//!   back. A handle keeps alive (by `Arc`) what its pointer depends on.
//! - Contexts of devices belong to librdmacm, which never closes them while it is loaded, and it
//!   is never unloaded.
//! - Events are copied and acknowledged before any other code sees them, so that giving a handle back
//!   never waits for an acknowledgement.
//! - Work requests name memory by key; the device checks key and bounds and reaches nothing that
//!   is not registered. What is registered is kept mapped ([`memory::Memory`] holds its medium), and
//!   leaked if the device does not let go of it.
//! - A handle is used by one thread at a time (`&mut`, or calls that the libraries lock).
//!
//! What is exported is safe for every argument.
#![allow(unsafe_code)]

mod abi;
mod address;
pub(super) mod cm;
pub(super) mod device;
mod library;
pub(super) mod memory;
pub(super) mod news;
pub(super) mod queue;

use crate::interface::EngineError;

/// The error of the last library call in this thread.
fn last_error(call: &'static str) -> EngineError {
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    EngineError::HostIo { call, errno }
}

/// Checks what librdmacm returns: 0, or -1 and `errno`.
fn checked(call: &'static str, outcome: i32) -> Result<(), EngineError> {
    if outcome == 0 { Ok(()) } else { Err(last_error(call)) }
}

/// Checks what libibverbs returns: 0, or the error itself.
fn direct(call: &'static str, outcome: i32) -> Result<(), EngineError> {
    if outcome == 0 { Ok(()) } else { Err(EngineError::HostIo { call, errno: outcome.abs() }) }
}
