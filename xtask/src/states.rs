//! Names, streams, locks and caches under clients that do anything: beside smbd, step by step, and at once.
//!
//! ```text
//!  lockstep   the same requests to our server and to smbd, one after the other: both do alike,
//!             or tests/interop/lockstep-smbd.txt says why not
//!  caching    clients at once on a few files of our server, in memory and on a disk: whoever caches has been told
//!             of each change, grants exclude each other, a file that is open keeps its name
//! ```
//!
//! `crates/server/examples/state_fuzz` has the clients. One seed gives them the same intentions again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::Landfast;
use crate::peer::{PASSWORD, SHARE, USER};
use crate::process::{Finished, Step, tail};
use crate::samba::Samba;
use crate::workspace;

/// Options of `cargo xtask lockstep`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Lockstep {
    /// What to ask for; may be given several times. All of it by default.
    #[arg(long)]
    part: Vec<Part>,
    /// How long, in seconds, all parts together.
    #[arg(long, default_value_t = 600.0)]
    seconds: f64,
    /// The first run's seed; each further run has the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Lockstep {
    /// The form for `cargo xtask test`.
    pub(crate) fn short() -> Self {
        Self { part: Vec::new(), seconds: 21.0, seed: 1 }
    }
}

/// What the clients of a lockstep run ask for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Part {
    /// Names, links, streams, deletion, sharing, attributes.
    Names,
    /// Byte-range locks.
    Locks,
    /// Leases and oplocks.
    Leases,
}

impl Part {
    const ALL: [Self; 3] = [Self::Names, Self::Locks, Self::Leases];

    fn name(self) -> &'static str {
        match self {
            Self::Names => "names",
            Self::Locks => "locks",
            Self::Leases => "leases",
        }
    }
}

/// Options of `cargo xtask caching`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Caching {
    /// How many clients at once.
    #[arg(long, default_value_t = 3)]
    clients: usize,
    /// How long, in seconds, half of it in memory and half of it on a disk.
    #[arg(long, default_value_t = 600.0)]
    seconds: f64,
    /// The first run's seed; each further run has the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Caching {
    /// The form for `cargo xtask test`.
    pub(crate) fn short() -> Self {
        Self { clients: 3, seconds: 20.0, seed: 1 }
    }
}

/// Asks our server and smbd the same.
pub(crate) fn lockstep(options: &Lockstep) -> Outcome {
    let program = program()?;
    let (ours, theirs) = (workspace::scratch()?, workspace::scratch()?);
    let server = Landfast::start(ours.path(), &[])?;
    let samba = Samba::start_fairly(theirs.path())?;
    let parts = if options.part.is_empty() { &Part::ALL[..] } else { &options.part };
    let seconds = options.seconds / f64::from(u32::try_from(parts.len()).unwrap_or(1));
    let mut tally = Tally::default();
    for part in parts {
        let step = Step::new(&program)
            .args(["lockstep", part.name(), &server.address.smb.to_string()])
            .arg(ours.path())
            .args(["--beside", &samba.address.smb.to_string(), "--beside-directory"])
            .arg(theirs.path())
            .arg("--differences")
            .arg(workspace::root().join(DIFFERENCES));
        let finished = finish(step, options.seed, seconds)?;
        judge(&format!("{} as with smbd", part.name()), &finished, &mut tally);
    }
    tally.count("no thread of the server panics", calm(&server)?);
    Ok(tally)
}

/// Has clients work on the same files at once.
pub(crate) fn caching(options: &Caching) -> Outcome {
    let program = program()?;
    let (memory, disk) = (workspace::scratch_on_tmpfs()?, workspace::scratch()?);
    let mut tally = Tally::default();
    for (place, directory) in [("in memory", memory.path()), ("on a disk", disk.path())] {
        let mut server = Landfast::start(directory, &[])?;
        let finished = together(&program, &server, directory, options)?;
        judge(&format!("grants and caches {place}"), &finished, &mut tally);
        let lives = server.running.ended().map_or(Ok(()), |status| Err(status.to_string()));
        tally.count("the server lives", lives);
        tally.count("no thread of the server panics", calm(&server)?);
    }
    Ok(tally)
}

fn calm(server: &Landfast) -> Result<Result<(), String>, Failure> {
    Ok(server.panicked()?.map_or(Ok(()), Err))
}

fn together(
    program: &Path,
    server: &Landfast,
    directory: &Path,
    options: &Caching,
) -> Result<Finished, Failure> {
    let step = Step::new(program)
        .args(["together", &server.address.smb.to_string()])
        .arg(directory)
        .args(["--clients", &options.clients.to_string()]);
    finish(step, options.seed, options.seconds / 2.0)
}

fn finish(step: Step, seed: u64, seconds: f64) -> Result<Finished, Failure> {
    step.args(["--share", SHARE, "--user", &format!("{USER}:{PASSWORD}")])
        .args(["--seed", &seed.to_string(), "--seconds", &seconds.to_string()])
        .limit(Duration::from_secs_f64(seconds) + ENDING_LIMIT)
        .tee()
}

fn judge(what: &str, finished: &Finished, tally: &mut Tally) {
    let faults = finished.stdout.lines().filter_map(|line| line.strip_prefix("FAULT "));
    let faults: Vec<_> = faults.collect();
    let sound = match (faults.is_empty(), finished.status.success()) {
        (true, true) => Ok(()),
        (true, false) => Err(format!("{}{}", finished.status, tail(&finished.stderr))),
        (false, _) => Err(faults.join("; ")),
    };
    tally.count(what, sound);
    let runs = finished.stdout.lines().find_map(|line| line.strip_prefix("ran "));
    if !tally.note.is_empty() {
        tally.note.push_str("; ");
    }
    tally.note.push_str(runs.unwrap_or_default());
}

fn program() -> Result<PathBuf, Failure> {
    workspace::build_of(["--example", "state_fuzz"]).run()?;
    Ok(workspace::target().join("release/examples/state_fuzz"))
}

/// Where our server and smbd differ, and why.
const DIFFERENCES: &str = "tests/interop/lockstep-smbd.txt";
/// How long the last run of a part may take: an answer may wait for a break's time.
const ENDING_LIMIT: Duration = Duration::from_secs(120);
