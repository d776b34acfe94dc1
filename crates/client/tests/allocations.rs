//! A pushed write with its commit, and a pushed read, allocate nothing in the long run, neither in
//! the thread that drives the region nor in the server's engine thread. Landfast's server and
//! client, real sockets, one process; every thread is counted on its own.
//!
//! # Safety rules of this module
//!
//! The allocator counts and passes every request on to the system's, unchanged.
#![allow(unsafe_code)]

#[cfg(test)]
#[path = "support/fixture.rs"]
mod fixture;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// Counts allocations of each thread.
struct Counting;

/// The number of allocations of one thread.
struct Lane {
    thread: AtomicI32,
    allocations: AtomicU64,
}

/// More threads than a test starts; those beyond share the last lane.
static LANES: [Lane; 256] =
    [const { Lane { thread: AtomicI32::new(0), allocations: AtomicU64::new(0) } }; 256];
static LANES_TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // Constant and without a destructor: access to it allocates nothing.
    static LANE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Counts one more allocation of this thread.
fn count() {
    let lane = LANE.get();
    if let Some(lane) = LANES.get(lane) {
        lane.allocations.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let lane = LANES_TAKEN.fetch_add(1, Ordering::Relaxed).min(LANES.len() - 1);
    LANE.set(lane);
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    LANES[lane].thread.store(thread, Ordering::Release);
    LANES[lane].allocations.fetch_add(1, Ordering::Relaxed);
}

// SAFETY: every method hands its arguments to the system's allocator and returns its answer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, which is the same.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_len: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`, which is the same.
        unsafe { System.realloc(memory, layout, new_len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use client::{Path, Region, RegionSettings};

    use super::LANES;
    use super::fixture::{Fixture, pushing};

    const PAGE: usize = 4096;
    const REGION: u64 = 1 << 20;

    /// Allocations so far of one thread.
    fn allocations_of(thread: i32) -> u64 {
        let lane = LANES.iter().find(|lane| lane.thread.load(Ordering::Acquire) == thread);
        lane.map_or(0, |lane| lane.allocations.load(Ordering::SeqCst))
    }

    /// The thread of this process with that name.
    fn thread_named(name: &str) -> i32 {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(Result::unwrap);
        let is_it = |task: &std::fs::DirEntry| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
        };
        let found: Vec<_> = tasks.filter(is_it).collect();
        assert_eq!(found.len(), 1, "one thread is named {name}");
        found[0].file_name().to_str().unwrap().parse().unwrap()
    }

    /// Allocations of one kind of operation at both ends.
    fn counted(
        region: &mut Region,
        engine: i32,
        rounds: usize,
        mut round: impl FnMut(&mut Region),
    ) {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        for _ in 0..rounds {
            round(region);
        }
        let before = (allocations_of(own), allocations_of(engine));
        for _ in 0..rounds {
            round(region);
        }
        let after = (allocations_of(own), allocations_of(engine));
        assert_eq!(after.0 - before.0, 0, "the region's thread, {rounds} rounds");
        assert_eq!(after.1 - before.1, 0, "the engine thread, {rounds} rounds");
        assert!(matches!(region.path(), Path::Push { has_flush: true, .. }), "{:?}", region.path());
    }

    fn write_commits(region: &mut Region, depth: u64, page: &[u8]) {
        for at in 0..depth {
            region.submit_write_commit(at * 4096, page).unwrap();
        }
        for _ in 0..depth {
            region.finish(&mut []).unwrap();
        }
    }

    fn reads(region: &mut Region, depth: u64, out: &mut [u8]) {
        for at in 0..depth {
            region.submit_read(at * 4096, 4096).unwrap();
        }
        for _ in 0..depth {
            region.finish(out).unwrap();
        }
    }

    // One test, so that the engine thread is the only one of its name.
    #[test]
    fn a_pushed_operation_allocates_nothing_at_either_end_in_the_long_run() {
        let fixture = Fixture::start("/dev/shm", |_| {});
        fixture.file(REGION);
        let client = fixture.client();
        let settings = RegionSettings::default();
        let mut region = client.map("region", &pushing(), 0..REGION, settings).unwrap();
        let engine = thread_named("landfast-engine");
        assert!(allocations_of(engine) > 0, "the connection it accepted is counted as its own");
        let (page, mut out) = ([7; PAGE], [0; PAGE]);
        counted(&mut region, engine, 2000, |region| region.write_commit(0, &page).unwrap());
        counted(&mut region, engine, 2000, |region| region.read(0, &mut out).unwrap());
        assert_eq!(out, page);
        counted(&mut region, engine, 500, |region| write_commits(region, 16, &page));
        counted(&mut region, engine, 500, |region| reads(region, 16, &mut out));
        assert_eq!(out, page);
        counted(&mut region, engine, 500, |region| {
            write_commits(region, 16, &page);
            reads(region, 16, &mut out);
            region.atomic_write(8192, 9).unwrap();
            region.commit(8192, 8).unwrap();
        });
    }

    #[test]
    fn the_counter_counts() {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let before = allocations_of(own);
        drop(std::hint::black_box(Vec::<u8>::with_capacity(100)));
        assert!(allocations_of(own) > before);
    }
}
