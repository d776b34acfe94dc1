//! What this machine's CPU can do for placement, chosen once at start.
//!
//! Each file of this folder gives the same six functions: `has_write_back`, `copy_in`,
//! `copy_out`, `stream`, `write_back`, `drain`.

// Miri interprets Rust, not assembly: it takes the portable path.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86_64::{copy_in, copy_out, drain, has_write_back, stream, write_back};

mod portable;
#[cfg(any(not(target_arch = "x86_64"), miri))]
pub(crate) use portable::{copy_in, copy_out, drain, has_write_back, stream, write_back};

/// Bytes a cache line has on every machine we write lines back on.
pub(crate) const CACHE_LINE: usize = 64;
