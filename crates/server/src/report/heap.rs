//! The heap of the process: the bytes in use, and the bytes that the allocator has of the system.
//!
//! Resident memory shows neither: an allocator keeps freed memory between two blocks in use.
//!
//! # Safety rules of this module
//!
//! The C library of the machine may be older than glibc 2.33, which brought `mallinfo2`: a program that is linked to
//! it would not start there, so the program looks the function up when it runs. A function of that name in glibc has
//! this type. It takes no argument, may be called by any thread at any time, and returns numbers; so does
//! `malloc_trim`, which takes the number of bytes to keep free at the end and touches no block in use.
#![allow(unsafe_code)]

use serde::{Deserialize, Serialize};

/// The heap of the process, as its allocator counts it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Heap {
    /// Bytes that the program holds, each block with the allocator's few bytes around it. Blocks that
    /// a thread has freed and keeps in its cache count too, a few dozen KiB for each thread, unless
    /// the process was started with `GLIBC_TUNABLES=glibc.malloc.tcache_count=0`.
    pub in_use_bytes: usize,
    /// Bytes that the allocator has of the system: the bytes in use, and free memory between them.
    pub held_bytes: usize,
}

impl Heap {
    /// The heap now; `None` if the C library does not report it (any but glibc). Takes each lock of
    /// the allocator in turn; the time grows with the number of free blocks.
    #[must_use]
    pub fn now() -> Option<Self> {
        counted()
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn counted() -> Option<Heap> {
    static COUNTS: std::sync::OnceLock<Option<Counts>> = std::sync::OnceLock::new();
    let counts = (*COUNTS.get_or_init(look_up))?;
    // SAFETY: the function has no precondition.
    let counts = unsafe { counts() };
    Some(Heap {
        in_use_bytes: counts.uordblks + counts.hblkhd,
        held_bytes: counts.arena + counts.hblkhd,
    })
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
type Counts = unsafe extern "C" fn() -> libc::mallinfo2;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn look_up() -> Option<Counts> {
    // SAFETY: the name ends with a zero; any library that is loaded may be searched.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: see the rules of the module.
    Some(unsafe { std::mem::transmute::<*mut libc::c_void, Counts>(found) })
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn counted() -> Option<Heap> {
    None
}

/// Returns the pages of free blocks to the system. Takes each lock of the allocator in turn, for as long as
/// its arena has free pages: some 0.2 ms for each MiB. No effect where the C library cannot do it.
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function has no precondition.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocated_blocks_are_in_use_until_they_are_freed() {
        // More bytes than all other tests allocate meanwhile, from the arenas and from mmap.
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
