//! Server and clients as they are built, on virtual time: `landfast-sim` over many seeds.

mod elsewhere;
pub(crate) mod mutants;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::process::{Finished, Step, tail};
use crate::workspace;

/// Options of `cargo xtask sim`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds
    #[arg(long, default_value_t = 100_000)]
    seeds: u64,
    /// Run this one plan instead, as a run printed it, and keep all that happens in it
    #[arg(long)]
    replay: Option<String>,
    /// Nothing is shown before the end.
    #[arg(skip)]
    is_quiet: bool,
}

impl Options {
    /// What CI has time for.
    pub(crate) fn short() -> Self {
        Self { from: 0, seeds: 300, replay: None, is_quiet: false }
    }

    /// [`Options::short`] beside other steps, which show what they do.
    pub(crate) fn behind() -> Self {
        Self { is_quiet: true, ..Self::short() }
    }
}

/// Runs the seeds; before them a few of them twice, each of which must do the same again.
pub(crate) fn run(options: &Options) -> Outcome {
    let simulator = simulator(options.is_quiet)?;
    if let Some(plan) = &options.replay {
        return replay(&simulator, plan);
    }
    let mut tally = Tally::default();
    let probed = Step::new(&simulator.own).arg("probe").finish()?;
    if probed.status.code() == Some(CANNOT) {
        tally
            .skipped
            .push("simulator: the kernel lets nobody trace here (ptrace, seccomp)".to_owned());
        return Ok(tally);
    }
    let same = simulator.run(options.from, TWICE, &["--twice", "--keep"])?;
    tally.count("a seed does the same twice", judged(&same));
    tally.count("a seed does the same elsewhere", elsewhere::same(&simulator)?);
    let found = simulator.run(options.from, options.seeds, &[])?;
    tally.count("no seed shows a fault", judged(&found));
    tally.note = found.stdout.lines().last().unwrap_or_default().to_owned();
    Ok(tally)
}

fn replay(simulator: &Simulator, plan: &str) -> Outcome {
    let trace = workspace::kept("sim")?.join("trace");
    let finished = simulator.step("replay").arg(plan).arg("--trace").arg(&trace).tee()?;
    println!("  all that happened is in {}", trace.display());
    let mut tally = Tally::default();
    tally.count("the plan shows no fault", judged(&finished));
    Ok(tally)
}

fn judged(finished: &Finished) -> Result<(), String> {
    match finished.status.success() {
        true => Ok(()),
        false => Err(format!("{}{}", finished.status, tail(&finished.stdout))),
    }
}

/// The simulator, and the programs that it runs.
struct Simulator {
    own: PathBuf,
    landfast: PathBuf,
    programs: PathBuf,
    is_quiet: bool,
}

fn simulator(is_quiet: bool) -> Result<Simulator, Failure> {
    let landfast = workspace::landfast()?;
    workspace::build_of(["--bin", "landfast-sim"].into_iter().chain(PROGRAMS)).run()?;
    let programs = workspace::target().join("release");
    Ok(Simulator { own: programs.join("landfast-sim"), landfast, programs, is_quiet })
}

impl Simulator {
    fn step(&self, task: &str) -> Step {
        self.told(Step::new(&self.own).arg(task))
    }

    // A step that is told where the programs are.
    fn told(&self, step: Step) -> Step {
        let step = step.arg("--landfast").arg(&self.landfast);
        step.arg("--programs").arg(&self.programs)
    }

    fn run(&self, from: u64, seeds: u64, more: &[&str]) -> Result<Finished, Failure> {
        let limit = Duration::from_secs(60) + SEED_LIMIT * u32::try_from(seeds).unwrap_or(u32::MAX);
        let numbers =
            ["--from".to_owned(), from.to_string(), "--seeds".to_owned(), seeds.to_string()];
        let step = self.step("run").args(numbers).args(more).limit(limit);
        if self.is_quiet { step.quiet().finish() } else { step.tee() }
    }
}

/// The programs of a run, beside the server.
const PROGRAMS: [&str; 6] = ["--bin", "model", "--bin", "rivals", "--bin", "commit_stream"];
/// Seeds that run twice.
const TWICE: u64 = 20;
/// The simulator's exit status where the host cannot run it.
const CANNOT: i32 = 3;
/// Longest a seed may take, on average.
const SEED_LIMIT: Duration = Duration::from_secs(2);
