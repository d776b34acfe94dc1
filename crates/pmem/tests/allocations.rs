//! The `try_` forms of a medium never allocate.
//!
//! # Safety rules of this module
//!
//! The allocator counts and passes every request on to the system's, unchanged.
#![allow(unsafe_code)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no counter any more, and is no thread of this test.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every request goes to the system allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[cfg(test)]
mod tests {
    use pmem::{AtomicOp, Medium, OpenOptions, anonymous, map_file};

    use super::ALLOCATIONS;
    use super::common::{storage_file, volatile_file};

    fn one_of_each(medium: &dyn Medium, bytes: &mut [u8]) {
        // Storage and absent chunks return `WouldBlock`, which is a legal answer here.
        let _ = medium.try_place(0, bytes);
        let _ = medium.try_place_part(4096, bytes);
        let _ = medium.try_read(0, bytes);
        let _ = medium.try_persist(0, 4096);
        let _ = medium.try_atomic(0, AtomicOp::FetchAdd { add: 1, mask: 0 });
    }

    #[test]
    fn the_forms_that_never_wait_never_allocate() {
        let emulated = OpenOptions { emulate_persistence: true };
        let media = [
            map_file(&volatile_file(1 << 20), 1 << 20, emulated).unwrap(),
            map_file(&storage_file(1 << 20), 1 << 20, emulated).unwrap(),
            anonymous(1 << 20).unwrap(),
        ];
        let mut bytes = vec![1; 4096];
        for medium in &media {
            medium.prepare(0, 65_536).unwrap();
            let before = ALLOCATIONS.get();
            (0..100).for_each(|_| one_of_each(medium.as_ref(), &mut bytes));
            assert_eq!(ALLOCATIONS.get(), before, "{medium:?}");
        }
    }
}
