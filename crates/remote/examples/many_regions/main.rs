//! What a region costs its process: memory, threads and the time of a commit, with engines of its own and shared.
//!
//! ```text
//! cargo run --release -p landfast-remote --example many_regions -- 100
//! ```
//! A child process hosts the regions; its messages are lines on its standard input and output. Each arm is a process
//! of its own, so that none uses memory that another has given back.

mod control;
mod host;

use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use basics::Environment;
use rdma::{PollPolicy, ProviderChoice};
use remote::{AsyncRegion, Path, RegionSettings, RemoteRegion, SharedEngine, Ways};

use self::control::{LineControl, Lines, Server};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [host::SERVE] => host::serve(),
        [count] => {
            println!("{count} regions, provider soft; per region:");
            println!("| arm | mapped | and a commit | and a read | threads | commit, p50 |");
            for arm in ["own", "own-async", "shared", "shared-async"] {
                Command::new(std::env::current_exe()?).args([arm, count]).status()?;
            }
            Ok(())
        }
        [arm, count] => measure(arm, count.parse()?),
        _ => Err("say how many regions".into()),
    }
}

fn measure(arm: &str, count: usize) -> Result<(), Failure> {
    let (server, environment) = (Arc::new(Server::start()?), Environment::host());
    let mut settings = RegionSettings::default();
    if arm.starts_with("shared") {
        let engine = SharedEngine::open(ProviderChoice::Soft, PollPolicy::Adaptive, &environment)?;
        settings.shared = Some(engine);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let before = Cost::now()?;
    let mut regions = Vec::new();
    for _ in 0..count {
        let control = Box::new(LineControl(Arc::clone(&server)));
        let (ways, settings, range) = (Ways::of(&settings), settings.clone(), 0..host::LEN);
        regions.push(if arm.ends_with("async") {
            let region = AsyncRegion::open(control, ways, settings, &environment, range);
            Mapped::Async(runtime.block_on(region)?)
        } else {
            Mapped::Sync(Box::new(RemoteRegion::open(control, ways, settings, &environment, range)))
        });
        regions.last_mut().expect("pushed above").insist(&runtime)?;
    }
    let mapped = Cost::now()?;
    regions.iter_mut().try_for_each(|region| region.commit(&runtime))?;
    let committed = Cost::now()?;
    regions.iter_mut().try_for_each(|region| region.read(&runtime))?;
    let read = Cost::now()?;
    let mut times = Vec::new();
    for _ in 0..COMMITS {
        let begun = Instant::now();
        regions[0].commit(&runtime)?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let kib = |cost: &Cost| (cost.resident_kib - before.resident_kib) / count;
    let threads = read.threads - before.threads;
    let median: Duration = times[times.len() / 2];
    println!(
        "| {arm} | {} KiB | {} KiB | {} KiB | {threads} for all | {:.1} µs |",
        kib(&mapped),
        kib(&committed),
        kib(&read),
        median.as_secs_f64() * 1e6
    );
    Ok(())
}

enum Mapped {
    Sync(Box<RemoteRegion<Lines>>),
    Async(AsyncRegion<Lines>),
}

impl Mapped {
    fn insist(&self, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
        let path = match self {
            Self::Sync(region) => region.path().clone(),
            Self::Async(region) => runtime.block_on(region.path())?,
        };
        if matches!(path, Path::Push { .. }) { Ok(()) } else { Err(path.to_string().into()) }
    }

    fn commit(&mut self, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
        match self {
            Self::Sync(region) => region.write_commit(0, &[7; BLOCK])?,
            Self::Async(region) => runtime.block_on(region.write_commit(0, vec![7; BLOCK]))?,
        }
        Ok(())
    }

    fn read(&mut self, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
        match self {
            Self::Sync(region) => region.read(0, &mut [0; BLOCK])?,
            Self::Async(region) => runtime.block_on(region.read(0, BLOCK)).map(drop)?,
        }
        Ok(())
    }
}

/// What the process has now.
struct Cost {
    resident_kib: usize,
    threads: usize,
}

impl Cost {
    fn now() -> Result<Self, Failure> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let number = |name: &str| -> Result<usize, Failure> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let digits = line.and_then(|line| line.split_whitespace().next());
            Ok(digits.ok_or("no such line in /proc/self/status")?.parse()?)
        };
        Ok(Self { resident_kib: number("VmRSS:")?, threads: number("Threads:")? })
    }
}

const BLOCK: usize = 4096;
const COMMITS: usize = 20_000;
