//! Locks of map entries: two writes of one sector change its entry one after the other.
//!
//! Without them both could take the same old block for their lane. Each lock lies on a cache line of its own, and
//! neighbouring sectors have different locks: only sectors whose numbers are equal modulo [`LOCKS`] share one.
//!
//! Spec: Linux Documentation/driver-api/nvdimm/btt.rst §3 e.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The locks of an arena's map.
#[derive(Debug)]
pub(crate) struct MapLocks {
    locks: Box<[Lock]>,
}

/// A lock on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Lock(Mutex<()>);

impl MapLocks {
    pub(crate) fn new() -> Self {
        Self { locks: (0..LOCKS).map(|_| Lock::default()).collect() }
    }

    /// The lock of a sector's entry.
    pub(crate) fn lock(&self, sector: u32) -> MutexGuard<'_, ()> {
        let number = usize::try_from(sector).expect("64-bit addresses") % LOCKS;
        self.locks[number].0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Locks of an arena: 64 KiB of memory, and four times as many as lanes.
const LOCKS: usize = 1024;
