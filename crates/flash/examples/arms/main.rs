//! 4 KiB random reads of a file over the network: push reads of a flash region beside a server that does pread and send
//! and one that does sendfile, with the same client shape, the same number of server threads, in one run.
//!
//! ```text
//!   arms [parking] [--file-mib N] [--budget-mib N] [--seconds N] [--connections 1,8,64] [--wait block|spin] [--arms A,B]
//!        [--folder PATH] [--threads N] [--rounds N]
//!
//!   push         RDMA Read of a flash region, CRC on      push-nocrc   the same without CRC, as the other arms
//!   pread        pread, send                              sendfile     send of a header, sendfile
//!   eager        RDMA Read of the file as class storage (the page cache), CRC on
//!   workers      as push, with misses by threads (LANDFAST_NO_IO_URING)
//!   fio          fio on the file itself: io_uring past the page cache, as many reads at once as the others have connections
//!   messages     the same engine and framing, CRC off, with the application in between: Send, pread, Send
//! ```
//!
//! `arms parking` measures one connection whose pages are in memory: alone, beside 64 connections whose pages are in memory
//! too, and beside 64 connections that miss. What the second costs is the load of 64 connections on this machine; what the
//! third costs beyond it would be parking.
//!
//! Every arm is a process of its own with as many serving threads as `--threads` says (1), in a memory cgroup of the budget and 16 MiB (64 for flash) where the machine
//! lets this program make one: page cache counts against it. A request is 24 bytes and an answer a header of 20 and the
//! page, which is what an RDMA Read takes. The figure for the server is the CPU time of its whole process, workers and
//! write-back included; for fio that of fio. The rounds follow each other, so that each arm has its turn in each. Each answer is checked for the number of its page.

mod fio;
mod limited;
mod parking;
mod raw;
mod reads;
mod serve;

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "serve") {
        return serve::run(&arguments[1..]);
    }
    let plan = Plan::of(&arguments)?;
    let path = plan.folder.join(format!("landfast-arms-{}", std::process::id()));
    let outcome = match arguments.first().map(String::as_str) {
        Some("parking") => parking::measure(&plan, &path),
        _ => measure(&plan, &path),
    };
    let _ = std::fs::remove_file(&path);
    outcome
}

/// What is measured.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) len: u64,
    pub(crate) budget: u64,
    pub(crate) time: Duration,
    connections: Vec<usize>,
    threads: usize,
    rounds: u64,
    pub(crate) wait: String,
    arms: Vec<String>,
    folder: PathBuf,
}

impl Plan {
    fn of(arguments: &[String]) -> Result<Self, Failure> {
        let value = |name: &str, default: &str| {
            let place = arguments.iter().position(|word| word == name);
            place
                .and_then(|place| arguments.get(place + 1))
                .cloned()
                .unwrap_or_else(|| default.to_owned())
        };
        let number = |name: &str, default: &str| value(name, default).parse::<u64>();
        let connections = value("--connections", "1,8,64");
        Ok(Self {
            len: number("--file-mib", "128")? << 20,
            budget: number("--budget-mib", "256")? << 20,
            time: Duration::from_secs(number("--seconds", "3")?),
            connections: connections.split(',').map(str::parse).collect::<Result<_, _>>()?,
            threads: usize::try_from(number("--threads", "1")?)?,
            rounds: number("--rounds", "1")?,
            wait: value("--wait", "block"),
            arms: value("--arms", "push,push-nocrc,eager,messages,pread,sendfile")
                .split(',')
                .map(str::to_owned)
                .collect(),
            folder: value("--folder", "/var/tmp").into(),
        })
    }
}

/// One arm at one number of connections.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) reads: u64,
    pub(crate) took: Duration,
    /// Nanoseconds of each read.
    pub(crate) latencies: Vec<u64>,
}

fn measure(plan: &Plan, path: &Path) -> Result<(), Failure> {
    fill(path, plan.len)?;
    println!(
        "file {} MiB, budget {} MiB, {} s each, {} serving threads, which wait by {}",
        plan.len >> 20,
        plan.budget >> 20,
        plan.time.as_secs(),
        plan.threads,
        plan.wait
    );
    println!(
        "{:<11} {:>5} {:>9} {:>12} {:>8} {:>8} {:>8} {:>9}",
        "arm", "conns", "IOPS", "IOPS/core", "p50 us", "p99 us", "p99.9", "cpu us/op"
    );
    for _ in 0..plan.rounds {
        for connections in &plan.connections {
            for arm in &plan.arms {
                let (outcome, cpu) = match arm.as_str() {
                    "fio" => fio::run(plan, path, *connections)?,
                    _ => of_server(plan, path, arm, *connections)?,
                };
                report(arm, *connections, outcome, cpu);
            }
        }
    }
    Ok(())
}

fn of_server(
    plan: &Plan,
    path: &Path,
    arm: &str,
    connections: usize,
) -> Result<(Outcome, Duration), Failure> {
    // What an earlier arm left in the page cache would be memory beyond the budget of this one.
    forget(&File::open(path)?)?;
    let waits = (plan.wait.as_str(), plan.threads);
    let mut server = limited::Server::start(arm, path, plan.len, plan.budget, waits)?;
    let warm = plan.time / 3;
    let outcome = if arm == "pread" || arm == "sendfile" {
        let mut reader = raw::Reader::open(&server.addresses, connections)?;
        reader.run(warm, plan.len)?;
        let before = server.cpu()?;
        (reader.run(plan.time, plan.len)?, server.cpu()? - before)
    } else {
        let mut reader = reads::Reader::open(&mut server, connections, arm)?;
        reader.run(warm, plan.len)?;
        let before = server.cpu()?;
        (reader.run(plan.time, plan.len)?, server.cpu()? - before)
    };
    server.stop()?;
    Ok(outcome)
}

/// The latency, in microseconds, that so many of a thousand reads do not exceed.
pub(crate) fn at(latencies: &[u64], of_thousand: usize) -> f64 {
    let place = latencies.len() * of_thousand / 1000;
    latencies.get(place).or_else(|| latencies.last()).copied().unwrap_or(0) as f64 / 1000.0
}

fn report(arm: &str, connections: usize, mut outcome: Outcome, cpu: Duration) {
    outcome.latencies.sort_unstable();
    let at = |of_thousand| at(&outcome.latencies, of_thousand);
    let reads = outcome.reads as f64;
    println!(
        "{arm:<11} {connections:>5} {:>9.0} {:>12.0} {:>8.1} {:>8.1} {:>8.1} {:>9.2}",
        reads / outcome.took.as_secs_f64(),
        reads / cpu.as_secs_f64(),
        at(500),
        at(990),
        at(999),
        cpu.as_secs_f64() * 1e6 / reads
    );
    let _ = std::io::stdout().flush();
}

/// A file whose pages begin with their numbers, in no cache.
pub(crate) fn fill(path: &Path, len: u64) -> Result<(), Failure> {
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    let mut piece = vec![0; 1 << 20];
    for start in (0..len).step_by(1 << 20) {
        for (index, page) in (0..).zip(piece.chunks_mut(4096)) {
            page[..8].copy_from_slice(&(start / 4096 + index).to_le_bytes());
        }
        file.write_all_at(&piece, start)?;
    }
    file.sync_all()?;
    forget(&file)
}

/// Takes the pages of a file that is on the disk out of the page cache.
fn forget(file: &File) -> Result<(), Failure> {
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}

/// Pages in an order that looks random, the same for every arm.
#[derive(Debug)]
pub(crate) struct Order(u64);

impl Order {
    pub(crate) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn next(&mut self, pages: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % pages
    }
}
