//! A group of replicated volumes on virtual time: `landfast-group-sim` over many seeds.

pub(crate) mod mutants;

use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::process::{Step, tail};
use crate::workspace;

/// Options of `cargo xtask group-sim`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds
    #[arg(long, default_value_t = 100_000)]
    seeds: u64,
    /// Run this one plan instead, a seed or what was printed, and keep all that happens in it
    #[arg(long, value_name = "PLAN")]
    replay: Option<String>,
}

impl Options {
    /// What CI has time for.
    pub(crate) fn short() -> Self {
        Self { from: 0, seeds: 800, replay: None }
    }
}

/// Runs the seeds; before them a few of them twice, each of which must do the same again.
pub(crate) fn run(options: &Options) -> Outcome {
    workspace::build_of(["--bin", "landfast-group-sim"]).run()?;
    let simulator = workspace::target().join("release/landfast-group-sim");
    let mut tally = Tally::default();
    if let Some(plan) = &options.replay {
        let finished = Step::new(&simulator).args(["replay", plan]).finish()?;
        let brief = Step::new(&simulator).args(["replay", plan, "--brief"]).finish()?;
        let traces = workspace::kept("sim")?;
        for (name, text) in [("group-trace", &finished.stdout), ("group-history", &brief.stdout)] {
            let to = traces.join(name);
            std::fs::write(&to, text).map_err(Failure::io("writing", &to))?;
        }
        println!(
            "  all that happened is in {0}/group-trace, a history in {0}/group-history",
            traces.display()
        );
        tally.count("the seed shows no fault", judged(finished.status.success(), &finished.stdout));
        return Ok(tally);
    }
    for (what, seeds, twice) in [
        ("a seed does the same twice", TWICE.min(options.seeds), true),
        ("no seed shows a fault", options.seeds, false),
    ] {
        let limit = Duration::from_secs(60) + SEED_LIMIT * u32::try_from(seeds).unwrap_or(u32::MAX);
        let numbers = ["--from", &options.from.to_string(), "--seeds", &seeds.to_string()];
        let step = Step::new(&simulator).arg("run").args(numbers).limit(limit);
        let finished = if twice { step.arg("--twice") } else { step }.tee()?;
        tally.count(what, judged(finished.status.success(), &finished.stdout));
        tally.note = finished.stdout.lines().last().unwrap_or_default().to_owned();
    }
    Ok(tally)
}

fn judged(is_sound: bool, said: &str) -> Result<(), String> {
    if is_sound { Ok(()) } else { Err(tail(said)) }
}

/// Seeds that run twice.
const TWICE: u64 = 50;
/// Longest a seed may take, on average.
const SEED_LIMIT: Duration = Duration::from_secs(1);
