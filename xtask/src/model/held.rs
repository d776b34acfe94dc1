//! What a server holds when all its clients have gone: exactly as much after a round of work as after
//! another one.
//!
//! ```text
//!  round of clients -> nobody there -> heap in use, without what each thread has   value 0
//!  round of clients -> nobody there -> ...                                         value 1
//!       ...      until a value is not larger than the one two before it; if none is, it leaks
//! ```
//!
//! Resident memory tells nothing here: after a minute glibc keeps 6 to 12 MiB that are free, between
//! blocks that are not, in as many arenas as there were threads. So the server counts its heap
//! (`landfast status`), and is started with [`EXACT`], as otherwise free blocks that a thread keeps at
//! hand count too. What is beside the heap is held against what can be explained.

use std::fmt::{self, Display};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::failure::Failure;
use crate::landfast::Landfast;
use crate::process::Step;
use crate::workspace;

/// The server as it is when nobody is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// Bytes of its heap in use; none where the C library does not count.
    heap: Option<u64>,
    /// Bytes that its allocator has.
    allocator: u64,
    threads: u64,
    descriptors: u64,
    /// Memory that is no file's, in KiB.
    anonymous_kib: u64,
}

impl Held {
    /// Waits until `landfast status` shows nothing, and looks; or says what it shows.
    pub(super) fn by(server: &Landfast, control: &Path) -> Result<Result<Self, String>, Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let report = status(control)?;
            let count = |what: &&str| report["counters"][*what].as_u64() != Some(0);
            if !NOTHING.iter().any(count) {
                return Self::read(&report, server.running.id()).map(Ok);
            }
            if Instant::now() > deadline {
                return Ok(Err(format!("{}", report["counters"])));
            }
            thread::sleep(PAUSE);
        }
    }

    fn read(report: &Value, pid: u32) -> Result<Self, Failure> {
        let bytes = |name: &str| report["heap"][name].as_u64();
        Ok(Self {
            heap: bytes("in_use_bytes"),
            allocator: bytes("held_bytes").unwrap_or_default(),
            threads: field(pid, "Threads:")?,
            descriptors: descriptors(pid)?,
            anonymous_kib: field(pid, "RssAnon:")?,
        })
    }

    // The heap without what the threads of the runtime have, which come and go.
    fn settled(&self) -> Option<u64> {
        self.heap.map(|heap| heap.saturating_sub(self.threads * THREAD_BYTES))
    }

    /// What cannot be explained beside the heap, if there is any.
    pub(super) fn unexplained(&self, fresh: &Self) -> Result<(), String> {
        if self.descriptors > fresh.descriptors {
            let (now, before) = (self.descriptors, fresh.descriptors);
            return Err(format!("{now} descriptors are open, {before} when it was fresh"));
        }
        let expected =
            self.allocator / 1024 + self.threads * STACK_KIB + fresh.anonymous_kib + BESIDE_KIB;
        if self.heap.is_some() && self.anonymous_kib > expected {
            return Err(format!("{self}: more than {expected} KiB resident"));
        }
        Ok(())
    }
}

impl Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { allocator, threads, anonymous_kib, .. } = self;
        let heap = self.heap.unwrap_or_default().div_ceil(1024);
        write!(f, "heap {heap} KiB of {} held, {anonymous_kib} KiB resident, {threads} threads", {
            allocator / 1024
        })
    }
}

/// Heaps after round for round.
#[derive(Debug, Default)]
pub(super) struct Rounds(Vec<u64>);

impl Rounds {
    /// Takes what is held after one more round. Whether that is no more than before, as far as is known.
    pub(super) fn end(&mut self, held: &Held) -> Rest {
        let Some(heap) = held.settled() else { return Rest::Unknown };
        self.0.push(heap);
        let earlier = self.0.len().checked_sub(1 + APART).map(|at| self.0[at]);
        match earlier {
            Some(earlier) if heap <= earlier + CHANCE => Rest::Found,
            _ if self.0.len() < ROUNDS_MAX => Rest::Awaited,
            _ => Rest::Never,
        }
    }
}

impl Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib: Vec<_> = self.0.iter().map(|&bytes| format!("{:.1}", in_kib(bytes))).collect();
        write!(f, "{} KiB", kib.join(", "))
    }
}

// Shown, not judged.
#[allow(clippy::cast_precision_loss)]
fn in_kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

/// Whether the heap has come to rest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Rest {
    Awaited,
    Found,
    Never,
    /// The C library does not count.
    Unknown,
}

fn status(control: &Path) -> Result<Value, Failure> {
    let status = Step::new(workspace::landfast()?)
        .args(["status", "--json", "--control"])
        .arg(control)
        .quiet()
        .output()?;
    serde_json::from_str(&status)
        .map_err(|error| Failure::new(format!("`landfast status --json`: {error}")))
}

fn descriptors(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/fd");
    let listed = fs::read_dir(&path).map_err(Failure::io("reading", Path::new(&path)))?;
    Ok(listed.map(|_| 1).sum())
}

/// Resident memory of a process.
pub(crate) fn resident_kib(pid: u32) -> Result<u64, Failure> {
    field(pid, "VmRSS:")
}

fn field(pid: u32, name: &str) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(Failure::io("reading", Path::new(&path)))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| Failure::new(format!("{path} has no {name}")))
}

/// Has glibc count as in use what is in use, and nothing that a thread has freed.
pub(super) const EXACT: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");
/// What has to be 0 once all clients have gone.
const NOTHING: [&str; 8] = [
    "connections",
    "unauthenticated",
    "sessions",
    "opens",
    "orphans",
    "files",
    "leases",
    "regions",
];
/// How long the server may take to let go: less than a durable open may wait for its client.
const PATIENCE: Duration = Duration::from_secs(50);
const PAUSE: Duration = Duration::from_millis(100);
/// Of a thread of the runtime, as measured: 47 of them had 60 KB.
const THREAD_BYTES: u64 = 1_290;
/// What of a thread's stack is resident: 16 to 24 were seen.
const STACK_KIB: u64 = 32;
/// What the system's libraries map beside the heap.
const BESIDE_KIB: u64 = 2_048;
/// Values that are compared are so many rounds apart.
const APART: usize = 2;
/// After so many rounds a heap that still grows leaks.
const ROUNDS_MAX: usize = 16;
/// Bytes by which values differ that should be equal: of tables that fill, such as the 1,024 names that
/// were given up last, some grow for the first rounds.
const CHANCE: u64 = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn held(heap: u64) -> Held {
        Held {
            heap: Some(heap),
            allocator: 8 << 20,
            threads: 10,
            descriptors: 16,
            anonymous_kib: 9_000,
        }
    }

    fn after(heaps: impl IntoIterator<Item = u64>) -> Rest {
        let mut rounds = Rounds::default();
        let mut rest = Rest::Awaited;
        for heap in heaps {
            assert_eq!(rest, Rest::Awaited);
            rest = rounds.end(&held(heap));
        }
        rest
    }

    #[test]
    fn a_heap_that_grows_by_a_little_each_round_leaks() {
        assert_eq!(after((0..16).map(|round| 500_000 + 7_000 * round)), Rest::Never);
        assert_eq!(after([400_000, 500_000, 502_000, 503_000]), Rest::Found);
        assert_eq!(after([400_000, 500_000, 420_000]), Rest::Awaited);
    }

    #[test]
    fn descriptors_and_mapped_memory_count() {
        let fresh = Held { anonymous_kib: 900, ..held(0) };
        held(500_000).unexplained(&fresh).unwrap();
        Held { descriptors: 17, ..held(500_000) }.unexplained(&fresh).unwrap_err();
        Held { anonymous_kib: 12_000, ..held(500_000) }.unexplained(&fresh).unwrap_err();
    }
}
