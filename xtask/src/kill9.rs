//! SIGKILL at random moments: no commit that was acknowledged may be lost, no byte outside the
//! region may change.
//!
//! The stream, its ledger and the verification are `landfast demo`'s; here it runs on a disk file
//! system, where a commit means fdatasync, and as often as asked.

use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::process::{Step, tail};
use crate::workspace;

/// Options of `cargo xtask kill9`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How often the server is killed.
    #[arg(long, default_value_t = 50)]
    pub(crate) rounds: u32,
}

/// Streams, kills, restarts and verifies.
pub(crate) fn run(options: &Options) -> Outcome {
    let binary = workspace::landfast()?;
    let scratch = workspace::scratch()?;
    let kind = file_system(scratch.path())?;
    println!("  share on {kind}: {}", scratch.path().display());
    let finished = Step::new(binary)
        .args(["demo", "--skip-bench", "--kills", &options.rounds.to_string(), "--directory"])
        .arg(scratch.path())
        .limit(Duration::from_secs(60) + ROUND_LIMIT * options.rounds)
        .tee()?;
    let mut tally =
        Tally { note: format!("{} kills on {kind}", options.rounds), ..Tally::default() };
    let sound = match finished.status.success() {
        true => Ok(()),
        false => Err(format!("{}{}", finished.status, tail(&finished.stdout))),
    };
    tally.count("kill9", sound);
    Ok(tally)
}

/// The type of the file system below `path`. On one that forgets, the run would prove nothing.
fn file_system(path: &std::path::Path) -> Result<String, Failure> {
    // Not stat, which cannot tell ext4 from its ancestors.
    let output = Step::new("df").arg("--output=fstype").arg(path).quiet().output()?;
    let kind = output.lines().last().unwrap_or_default().trim().to_owned();
    if FORGETFUL.contains(&kind.as_str()) {
        return Err(Failure::new(format!("{} is on {kind}", path.display()))
            .remedy("set CARGO_TARGET_DIR to a directory on a disk file system"));
    }
    Ok(kind)
}

/// Longest one stream, kill, restart and verification may take.
const ROUND_LIMIT: Duration = Duration::from_secs(20);
/// File systems without a disk.
const FORGETFUL: [&str; 2] = ["tmpfs", "ramfs"];
