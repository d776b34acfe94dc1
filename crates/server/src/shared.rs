//! Atomics and locks of what threads share. `landfast-interleavings` compiles the files that take them from here with
//! loom's in their place.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
