//! What threads share without a lock, under all orders of them: the tests of `landfast-interleavings`, explored deeper.

use clap::Args;

use crate::failure::{Outcome, Tally};
use crate::process::{Step, tail};
use crate::workspace;

/// Options of `cargo xtask interleavings`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How often a thread may lose its core where it could go on; 2 in `cargo test`
    #[arg(long, default_value_t = 4)]
    preemptions: u32,
}

/// Explores all models.
pub(crate) fn run(options: &Options) -> Outcome {
    let step = Step::new("cargo").args(["test", "--release"]).args(workspace::TESTED);
    let step = step.args(["--test", "promises"]).dir(&workspace::root()).builds();
    let finished = step.env("LOOM_MAX_PREEMPTIONS", options.preemptions.to_string()).finish()?;
    let mut tally = Tally::default();
    let sound = match finished.status.success() {
        true => Ok(()),
        false => Err(format!("{}{}", finished.status, tail(&finished.stdout))),
    };
    tally.count("each promise holds under all orders", sound);
    Ok(tally)
}
