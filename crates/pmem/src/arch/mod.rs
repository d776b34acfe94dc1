//! The placement instructions of this machine's CPU, chosen once at start.
//!
//! Each file of this folder defines the same six functions: `has_write_back`, `copy_in`,
//! `copy_out`, `stream`, `write_back`, `drain`.

// Miri interprets Rust, not assembly: it takes the portable path.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86_64::{copy_in, copy_out, drain, has_write_back, stream, write_back};

mod portable;
#[cfg(any(not(target_arch = "x86_64"), miri))]
pub(crate) use portable::{copy_in, copy_out, drain, has_write_back, stream, write_back};

/// Bytes of a cache line on every machine whose lines this crate writes back.
pub(crate) const CACHE_LINE: usize = 64;
