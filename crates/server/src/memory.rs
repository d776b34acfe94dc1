//! Memory that was in use and is not any more goes back to the system.
//!
//! glibc gives back what is free at the end of its heap alone: one block in use there keeps everything that a
//! flood has left below it. So the server looks now and then, and has the pages of free blocks given back
//! when far more is resident than is in use. Why not another allocator: see `docs/testing.md`, "Memory".

use std::sync::Weak;
use std::time::Duration;

use crate::report::{Heap, heap};
use crate::service::Core;

/// Looks as long as there is a server.
pub(crate) async fn tidy(core: Weak<Core>) {
    let mut watch = Watch::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        let looked = core.runtime.spawn_blocking(move || {
            watch.look(resident(), free, || {
                heap::give_back();
                resident()
            });
            watch
        });
        watch = looked.await.unwrap_or_default();
    }
}

/// When to give back. Blocks stay free when their pages are given back, so what is free says little: it is
/// given back where more is resident than was left after the last time.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    left: usize,
}

impl Watch {
    /// `free` takes each lock of the allocator, so it is asked only where much is resident.
    fn look(
        &mut self,
        resident: Option<usize>,
        free: impl FnOnce() -> Option<usize>,
        give_back: impl FnOnce() -> Option<usize>,
    ) {
        let Some(resident) = resident else { return };
        // What ended by itself counts for the next time.
        self.left = self.left.min(resident);
        if resident - self.left < SLACK || free().is_none_or(|free| free < SLACK) {
            return;
        }
        if let Some(left) = give_back() {
            tracing::debug!(before = resident, left, "memory given back");
            self.left = left;
        }
    }
}

/// Bytes of free blocks in the allocator's hands, resident or not.
fn free() -> Option<usize> {
    let heap = Heap::now()?;
    Some(heap.held_bytes.saturating_sub(heap.in_use_bytes))
}

/// Bytes of the process that are resident and no file's.
fn resident() -> Option<usize> {
    // proc_pid_statm(5): size, resident, shared with files, in pages.
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = statm.split_whitespace().skip(1).map_while(|word| word.parse::<usize>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size())
}

/// Free and resident beyond what was left last: less is not worth the faults of having it again. An ordinary
/// load of 1 MiB requests keeps some 40 MiB in the hands of its connections.
const SLACK: usize = 64 << 20;
const LOOK_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_is_given_back_when_much_is_resident_and_only_then() {
        let mut watch = Watch { left: 100 << 20 };
        let given = |watch: &mut Watch, free: usize, resident: usize, left: usize| {
            let mut given = false;
            watch.look(
                Some(resident << 20),
                || Some(free << 20),
                || {
                    given = true;
                    Some(left << 20)
                },
            );
            given
        };
        assert!(!given(&mut watch, 10, 1000, 0), "it is in use");
        assert!(!given(&mut watch, 500, 120, 0), "it is not resident");
        assert!(given(&mut watch, 900, 1000, 110));
        assert!(!given(&mut watch, 900, 120, 0), "given back already, though the blocks are free");
        assert!(given(&mut watch, 900, 500, 300));
        assert!(!given(&mut watch, 900, 310, 0), "what stays is something else's");
    }

    #[test]
    fn the_locks_of_the_allocator_are_taken_only_where_much_is_resident() {
        let mut watch = Watch { left: 100 << 20 };
        watch.look(Some(140 << 20), || panic!("it takes them"), || panic!("it takes them"));
    }

    #[test]
    fn memory_that_lies_free_between_blocks_in_use_goes_back() {
        let Some(before) = resident() else { return };
        // The other tests have memory of their own: this one is run as a program that does nothing else.
        const ALONE: &str = "LANDFAST_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let name = "memory::tests::memory_that_lies_free_between_blocks_in_use_goes_back";
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            let alone = alone.args(["--exact", name]).env(ALONE, "1").output().unwrap();
            let said = String::from_utf8_lossy(&alone.stdout);
            assert!(alone.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        // A block in use behind every 64 KiB of free ones, in this thread's arena.
        let blocks: Vec<(Vec<u8>, Vec<u8>)> =
            (0..4096).map(|_| (vec![1; 64 << 10], vec![1; 64])).collect();
        let kept: Vec<Vec<u8>> = blocks.into_iter().map(|(_, kept)| kept).collect();
        heap::give_back();
        let after = resident().unwrap();
        let grown = after.saturating_sub(before);
        assert!(
            grown < 128 << 20,
            "{grown} bytes more are resident with {} in use",
            kept.len() * 64
        );
    }

    /// Four threads with memory in arenas of their own wait for the allocator, while it is looked at or trimmed.
    #[test]
    #[ignore = "measures: docs/measurements.md has the table"]
    fn how_long_threads_wait_for_the_allocator() {
        use std::sync::Barrier;
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::time::Instant;

        const THREADS: usize = 4;
        let worst = |mib: usize, work: &dyn Fn()| {
            let (ready, is_over) = (Barrier::new(THREADS + 1), AtomicBool::new(false));
            let waiter = || {
                let blocks = (0..(mib << 20) / THREADS / (64 << 10)).map(|at| {
                    (vec![1_u8; (16 << 10) + (at * 7919 * 64) % (96 << 10)], vec![1_u8; 200])
                });
                let (free, kept): (Vec<_>, Vec<_>) = blocks.unzip();
                drop(free);
                // The first of this size after so many were freed sorts them.
                drop(std::hint::black_box(vec![1_u8; 8 << 10]));
                ready.wait();
                let mut longest = Duration::ZERO;
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(200));
                    let begun = Instant::now();
                    drop(std::hint::black_box(vec![1_u8; 8 << 10]));
                    longest = longest.max(begun.elapsed());
                }
                drop(kept);
                longest
            };
            std::thread::scope(|scope| {
                let waiters: Vec<_> = (0..THREADS).map(|_| scope.spawn(waiter)).collect();
                ready.wait();
                work();
                is_over.store(true, Ordering::Relaxed);
                waiters.into_iter().map(|waiter| waiter.join().unwrap()).max().unwrap()
            })
        };
        for mib in [64, 256, 1400] {
            let looked = worst(mib, &|| assert!(free().is_some()));
            let given = worst(mib, &heap::give_back);
            println!("{mib} MiB: looked at, a thread waited {looked:?}; given back, {given:?}");
        }
    }
}
