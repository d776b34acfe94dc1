//! What the process holds of its heap: what is in use, and what the allocator has of the system.
//!
//! Resident memory says neither: an allocator keeps what was freed between two blocks that were not.
//!
//! # Safety rules of this module
//!
//! `mallinfo2` takes nothing, may be called by any thread at any time, and returns numbers; so does
//! `malloc_trim`, which takes how much to keep free at the end and touches no block in use.
#![allow(unsafe_code)]

use serde::{Deserialize, Serialize};

/// The heap of the process, as its allocator counts it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Heap {
    /// Bytes that the program holds, each block with the allocator's few bytes around it. Blocks that
    /// a thread has freed and keeps at hand count too, a few dozen KiB for each thread, unless
    /// the process was started with `GLIBC_TUNABLES=glibc.malloc.tcache_count=0`.
    pub in_use_bytes: usize,
    /// Bytes that the allocator has of the system: those, and what lies free between them.
    pub held_bytes: usize,
}

impl Heap {
    /// The heap now; `None` where the C library does not say (any but glibc). Takes each lock of the
    /// allocator in turn, and time by how many free blocks there are.
    #[must_use]
    pub fn now() -> Option<Self> {
        counted()
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn counted() -> Option<Heap> {
    // SAFETY: it has no condition.
    let counts = unsafe { libc::mallinfo2() };
    Some(Heap {
        in_use_bytes: counts.uordblks + counts.hblkhd,
        held_bytes: counts.arena + counts.hblkhd,
    })
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn counted() -> Option<Heap> {
    None
}

/// Gives the pages of free blocks back to the system. Takes each lock of the allocator in turn, for as long as
/// its arena has free pages: some 0.2 ms for each MiB. Nothing where the C library cannot.
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it has no condition.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_in_use_until_it_is_freed() {
        // More than all that other tests allocate meanwhile, from the arenas and from mmap.
        for blocks in [vec![vec![1_u8; 4 << 10]; 16 << 10], vec![vec![1_u8; 64 << 20]]] {
            let Some(with) = Heap::now() else { return };
            assert!(with.held_bytes >= with.in_use_bytes, "{with:?}");
            drop(blocks);
            let without = Heap::now().unwrap();
            let freed = with.in_use_bytes.saturating_sub(without.in_use_bytes);
            assert!(freed > 48 << 20, "{with:?}, then {without:?}");
        }
    }
}
