//! Atomics of what threads share without a lock. `landfast-interleavings` compiles the files that take them from here with
//! loom's in their place.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use std::thread::yield_now;
