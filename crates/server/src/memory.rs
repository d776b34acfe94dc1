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
            watch.look(seen(), || {
                heap::give_back();
                seen()
            });
            watch
        });
        watch = looked.await.unwrap_or_default();
    }
}

/// What there is to see.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Bytes of free blocks in the allocator's hands, resident or not.
    free: usize,
    /// Bytes of the process that are resident and no file's.
    resident: usize,
}

/// When to give back. Blocks stay free when their pages are given back, so what is free says little: it is
/// given back where more is resident than was left after the last time.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    left: usize,
}

impl Watch {
    fn look(&mut self, seen: Option<Seen>, give_back: impl FnOnce() -> Option<Seen>) {
        let Some(Seen { free, resident }) = seen else { return };
        // What ended by itself counts for the next time.
        self.left = self.left.min(resident);
        if free < SLACK || resident - self.left < SLACK {
            return;
        }
        if let Some(Seen { resident: left, .. }) = give_back() {
            tracing::debug!(before = resident, left, "memory given back");
            self.left = left;
        }
    }
}

fn seen() -> Option<Seen> {
    let heap = Heap::now()?;
    // proc_pid_statm(5): size, resident, shared with files, in pages.
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = statm.split_whitespace().skip(1).map_while(|word| word.parse::<usize>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some(Seen {
        free: heap.held_bytes.saturating_sub(heap.in_use_bytes),
        resident: resident.saturating_sub(shared) * rustix::param::page_size(),
    })
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
            let seen = |resident: usize| Some(Seen { free: free << 20, resident: resident << 20 });
            watch.look(seen(resident), || {
                given = true;
                seen(left)
            });
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
    fn memory_that_lies_free_between_blocks_in_use_goes_back() {
        let Some(before) = seen() else { return };
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
        let after = seen().unwrap();
        let grown = after.resident.saturating_sub(before.resident);
        assert!(
            grown < 128 << 20,
            "{grown} bytes more are resident with {} in use",
            kept.len() * 64
        );
    }
}
