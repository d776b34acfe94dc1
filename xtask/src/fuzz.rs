//! Runs the fuzz targets of /fuzz, which has a runner of its own (`fuzz/run`).
//!
//! That every target has a corpus, and that every kept input passes, is a test of `fuzz/bodies`; its tests run here, as
//! their packages are built here.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::process::{Finished, Step, succeeded};
use crate::{libtest, workspace};

/// Options of `cargo xtask fuzz`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Seconds for each target.
    #[arg(long, default_value_t = 600)]
    pub(crate) seconds: u32,
    /// One target; all of them without it.
    pub(crate) target: Option<String>,
    /// Compiles with few optimisations: what is compiled runs for seconds.
    #[arg(skip)]
    pub(crate) is_short: bool,
}

impl Options {
    /// What CI has time for.
    pub(crate) fn short() -> Self {
        Self { seconds: 1, target: None, is_short: true }
    }
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
    let step = || runner(options.is_short);
    step().arg("--build").builds().run()?;
    let tally = Tally { note: format!("{} targets", chosen.len()), ..Tally::default() };
    let (left, tally) = (Mutex::new(chosen.iter()), Mutex::new(tally));
    let tests = || {
        let (said, found) = run_tests(step());
        println!("{said}");
        tally.lock().unwrap_or_else(PoisonError::into_inner).add(found);
    };
    let lane = || {
        while let Some(target) = { left.lock().unwrap_or_else(PoisonError::into_inner).next() } {
            let (said, result) = run_one(step(), target, options.seconds);
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            // What a target says stands together, whatever ran beside it.
            println!("{said}");
            tally.count(target, result.map_err(|failure| failure.to_string()));
        }
    };
    thread::scope(|scope| {
        // A target is one thread: each core has one.
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        (0..cores).for_each(|_| drop(scope.spawn(lane)));
        if options.target.is_none() {
            tests();
        }
    });
    Ok(tally.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The tests of the bodies with all that they said, and what they found.
fn run_tests(runner: Step) -> (String, Tally) {
    let step = runner.arg("--tests").limit(REPLAY_LIMIT);
    let shown = format!("  $ {}", step.shown());
    match step.quiet().finish() {
        Ok(Finished { status, stdout, stderr }) => {
            let mut found = libtest::count(&stdout);
            found.note.clear();
            if let (Err(failure), true) = (succeeded(status, &shown, ""), found.failed.is_empty()) {
                found.failed.push(failure.to_string());
            }
            (format!("{shown}\n{stdout}{stderr}"), found)
        }
        Err(failure) => {
            let failed = vec![failure.to_string()];
            (shown, Tally { failed, ..Tally::default() })
        }
    }
}

/// Builds the targets before [`run`] needs them for [`Options::short`]. What goes wrong is said by [`run`].
pub(crate) fn build_ahead() {
    let _ = runner(true).arg("--build").quiet().builds().finish();
}

fn runner(is_short: bool) -> Step {
    let step = Step::new("fuzz/run").dir(&workspace::root());
    if is_short { step.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", SHORT_OPT_LEVEL) } else { step }
}

/// The command with all that it said, and how it ended.
fn run_one(runner: Step, target: &str, seconds: u32) -> (String, Result<(), Failure>) {
    let step = runner
        .args(["--built", "--seconds", &seconds.to_string(), target])
        .limit(REPLAY_LIMIT + Duration::from_secs(u64::from(seconds)))
        .quiet();
    let shown = format!("  $ {}", step.shown());
    match step.finish() {
        Ok(Finished { status, stdout, stderr }) => {
            (format!("{shown}\n{stdout}{stderr}"), succeeded(status, &shown, ""))
        }
        Err(failure) => (shown, Err(failure)),
    }
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

/// Of the short form: the least with which inlined code is compiled once.
const SHORT_OPT_LEVEL: &str = "1";
/// Longest the kept inputs may take, which come before a target's time and are not part of it.
const REPLAY_LIMIT: Duration = Duration::from_secs(300);
