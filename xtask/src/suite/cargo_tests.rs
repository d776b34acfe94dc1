//! `cargo test` of the workspace as a step: what libtest prints, counted.

use std::time::Duration;

use crate::failure::Outcome;
use crate::process::Step;
use crate::{libtest, workspace};

/// All tests of the workspace but those of the fuzz targets, which run instrumented ([`crate::fuzz`]): with them, packages
/// would be built with other features than for the product.
pub(super) fn run() -> Outcome {
    let args =
        ["test", "--workspace", "--exclude", "landfast-fuzz-bodies", "--release", "--no-fail-fast"];
    Step::new("cargo").args(args).arg("--no-run").dir(&workspace::root()).builds().run()?;
    let run = Step::new("cargo").args(args).dir(&workspace::root()).limit(TESTS_LIMIT);
    let finished = run.tee()?;
    let mut tally = libtest::count(&finished.stdout);
    if !finished.status.success() && tally.failed.is_empty() {
        tally.failed.push(format!("`cargo {}` ended with {}", args.join(" "), finished.status));
    }
    Ok(tally)
}

/// Longest the tests may run: six times what they take on two quiet cores.
const TESTS_LIMIT: Duration = Duration::from_secs(1800);
