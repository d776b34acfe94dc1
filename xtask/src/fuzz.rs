//! Runs the fuzz targets of /fuzz, which has a runner of its own (`fuzz/run`).
//!
//! That every target has a corpus, and that every kept input passes, is a test of `fuzz/bodies`.

use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::process::Step;
use crate::workspace;

/// Options of `cargo xtask fuzz`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Seconds for each target.
    #[arg(long, default_value_t = 600)]
    pub(crate) seconds: u32,
    /// One target; all of them without it.
    pub(crate) target: Option<String>,
}

/// Runs each target for its time.
pub(crate) fn run(options: &Options) -> Outcome {
    let known = targets()?;
    let chosen = match &options.target {
        None => known,
        Some(name) if known.contains(name) => vec![name.clone()],
        Some(name) => {
            return Err(Failure::new(format!("no fuzz target {name}"))
                .remedy(format!("one of: {}", known.join(", "))));
        }
    };
    let mut tally = Tally { note: format!("{} targets", chosen.len()), ..Tally::default() };
    for (index, target) in chosen.iter().enumerate() {
        println!("  target {} of {}: {target}", index + 1, chosen.len());
        let result = run_one(target, options.seconds).map_err(|failure| failure.to_string());
        tally.count(target, result);
    }
    Ok(tally)
}

fn run_one(target: &str, seconds: u32) -> Result<(), Failure> {
    Step::new("fuzz/run")
        .args(["--seconds", &seconds.to_string(), target])
        .dir(&workspace::root())
        .limit(BUILD_LIMIT + Duration::from_secs(u64::from(seconds)))
        .run()
}

/// The names of the targets, which are the names of the corpora.
fn targets() -> Result<Vec<String>, Failure> {
    let corpus = workspace::root().join("fuzz").join("corpus");
    let entries = std::fs::read_dir(&corpus).map_err(Failure::io("listing", &corpus))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    Ok(names)
}

/// Longest the instrumented build may take, which the first target waits for.
const BUILD_LIMIT: Duration = Duration::from_secs(600);
