//! Our server in the guest, on DAX file systems and a devdax device of emulated persistent memory:
//! class pmem, regions that are the file or the device itself, and every acknowledged commit there
//! after the power was cut.
//!
//! The emulated memory is a file of the host that keeps what the guest stored, written back or not:
//! this shows that the paths work, and nothing about cache flushes that are missing.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::guest::machine::{Guest, Setup};
use crate::guest::{adapter, media, programs};
use crate::interop::report;
use crate::peer::{PASSWORD, SHARE, USER, free_port};
use crate::process::{Step, tail};
use crate::workspace;

/// Options of `cargo xtask guest dax`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How often the power is cut, on each
    #[arg(long, default_value_t = 1)]
    pub(crate) cuts: u32,
    /// Only on this; may be given several times
    #[arg(long, value_name = "KIND", value_parser = KINDS)]
    pub(crate) on: Vec<String>,
}

impl Options {
    /// What `cargo xtask test` runs.
    pub(crate) fn short(kind: &str) -> Self {
        Self { cuts: 1, on: vec![kind.to_owned()] }
    }
}

/// ext4, xfs and devdax, the latter by an adapter too: each made, streamed to, cut off, there again and
/// compared.
pub(crate) fn run(options: &Options) -> Outcome {
    programs::build()?;
    let mut tally = Tally::default();
    let chosen = |kind: &&str| options.on.is_empty() || options.on.iter().any(|on| on == kind);
    let kinds: Vec<_> = KINDS.into_iter().filter(chosen).collect();
    for kind in &kinds {
        for cut in 0..options.cuts {
            tally.add(if *kind == adapter::KIND { adapter::one(cut)? } else { one(kind, cut)? });
        }
    }
    tally.note = format!("{} power cuts on each of {}", options.cuts, kinds.join(", "));
    Ok(tally)
}

fn one(kind: &str, cut: u32) -> Outcome {
    let scratch = workspace::scratch()?;
    let memory = blank_memory(scratch.path())?;
    let [smb, rdma] = [free_port()?, free_port()?];
    let setup = Setup {
        persistent_memory: Some(memory.clone()),
        forwarded: vec![smb, rdma],
        ..Setup::default()
    };
    let boot = |life: &str| {
        let script = format!("bash /tests/dax.sh {life} {kind} {smb} {rdma} {USER} {PASSWORD}");
        Guest::start(&format!("dax-{kind}"), &setup, &script, LIMIT)
    };
    let url = format!("smb://{USER}:{PASSWORD}@127.0.0.1:{smb}/{SHARE}/stream.dat");

    let mut guest = boot("new")?;
    guest.wait_for("serving")?;
    // A device is as long as it is.
    if kind != DEVICE {
        put_empty(scratch.path(), &url)?;
    }
    let stream = Stream::start(kind, &url)?;
    let said = stream.region.clone();
    guest.tell("streaming", "")?;
    guest.wait_for("cut")?;
    let mut tally = report::read(guest.said());
    let (acknowledged, sent) = stream.until(wanted(cut), || drop(guest.cut_power()))?;
    println!("  {said}; the power was cut after {acknowledged} acknowledged commits");
    let in_class = if said.contains("pmem") { Ok(()) } else { Err(said) };
    tally.count(&format!("{kind}: commits of class pmem"), in_class);
    let found = media::inspect(&memory, acknowledged, sent)?;
    let what = format!("{kind}: {acknowledged} acknowledged commits and what was published since");
    tally.count(&format!("{what} lie on the medium"), found.sound());

    let mut guest = boot("again")?;
    guest.wait_for("serving")?;
    let checked = example()
        .args(["check", &url, &acknowledged.to_string(), &sent.to_string()])
        .quiet()
        .finish()?;
    let all = if checked.status.success() { Ok(()) } else { Err(tail(&checked.stderr)) };
    tally.count(&format!("{what} are there"), all);
    guest.tell("checked", "")?;
    let ended = guest.finish();
    tally.count(
        "the guest's script",
        ended.succeeded("dax.sh").map_err(|failure| failure.to_string()),
    );
    tally.add(report::read(&ended.output));
    Ok(tally)
}

/// The file behind the machine's persistent memory.
pub(super) fn blank_memory(scratch: &Path) -> Result<PathBuf, Failure> {
    let memory = scratch.join("memory");
    let file = File::create(&memory).map_err(Failure::io("creating", &memory))?;
    file.set_len(MEMORY_BYTES).map_err(Failure::io("sizing", &memory))?;
    Ok(memory)
}

/// How many acknowledgements to wait for: not always the same moment, nor one that falls on the end of a
/// pass over the file.
pub(super) fn wanted(cut: u32) -> u64 {
    FIRST_PASSES + 1009 * u64::from(cut + 1)
}

fn put_empty(scratch: &Path, url: &str) -> Result<(), Failure> {
    let empty = scratch.join("empty");
    std::fs::write(&empty, vec![0; STREAM_BYTES]).map_err(Failure::io("writing", &empty))?;
    Step::new(workspace::landfast()?).arg("put").arg(&empty).arg(url).quiet().output().map(drop)
}

fn example() -> Step {
    Step::new(programs::program("commit_stream"))
}

/// A running stream of commits.
struct Stream {
    running: crate::process::Running,
    output: BufReader<std::process::ChildStdout>,
    /// What the client says of its region.
    region: String,
    log: PathBuf,
}

impl Stream {
    fn start(kind: &str, url: &str) -> Result<Self, Failure> {
        let log = workspace::kept("logs")?.join(format!("commit-stream-{kind}.log"));
        let mut running = example().args(["stream", url, "1"]).quiet().serve(&log, true)?;
        let output = running.stdout().ok_or_else(|| Failure::new("no pipe"))?;
        let (output, region) = (BufReader::new(output), String::new());
        let mut stream = Self { running, output, region, log };
        stream.region = stream.line()?;
        Ok(stream)
    }

    /// Waits for so many acknowledgements, cuts, and hands back what the client knows then.
    fn until(mut self, wanted: u64, cut: impl FnOnce()) -> Result<(u64, u64), Failure> {
        let number = |word: Option<&str>| word.and_then(|word| word.parse().ok());
        let mut cut = Some(cut);
        loop {
            let line = self.line()?;
            let mut words = line.split(' ');
            match words.next() {
                Some("acknowledged") => {
                    let reached: u64 = number(words.next()).unwrap_or(0);
                    if reached >= wanted
                        && let Some(cut) = cut.take()
                    {
                        cut();
                    }
                }
                Some("ended") => {
                    let both = (number(words.nth(1)), number(words.nth(1)));
                    let _ = self.running.wait(Duration::from_secs(10));
                    return match both {
                        (Some(acknowledged), Some(sent)) if cut.is_none() => {
                            Ok((acknowledged, sent))
                        }
                        _ => Err(Failure::new(format!("the stream ended early: {line}"))),
                    };
                }
                _ => return Err(Failure::new(format!("the stream said `{line}`"))),
            }
        }
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        if read.is_ok_and(|len| len > 0) {
            return Ok(line.trim_end().to_owned());
        }
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        Err(Failure::new(format!("the stream of commits ended{}", tail(&text))))
    }
}

const KINDS: [&str; 4] = ["ext4", "xfs", DEVICE, adapter::KIND];
const DEVICE: &str = "devdax";
/// The smallest that mkfs.xfs takes is 300 MiB.
const MEMORY_BYTES: u64 = 512 << 20;
/// 256 blocks, and the one with the pointer.
const STREAM_BYTES: usize = 257 * 4096;
/// Every block has been written once, and then some.
const FIRST_PASSES: u64 = 300;
const LIMIT: Duration = Duration::from_secs(600);
