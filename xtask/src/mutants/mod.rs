//! Mutation testing: cargo-mutants changes one place at a time, and a test of the same crate has to fail.
//!
//! ```text
//!   caught    a test failed              ---> counted
//!   timeout   the tests did not end      ---> counted: the change shows
//!   unviable  the change does not build  ---> not counted
//!   missed    every test passed          ---> a failure, unless `accepted.txt` has the change with a reason
//! ```
//!
//! With `--planted` the same mutants are all in one build ([`planted`]).

mod accepted;
mod decisive;
mod planted;
mod tool;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use self::accepted::Accepted;
use crate::failure::{Failure, Outcome, Tally};
use crate::process::Step;
use crate::workspace;

/// Options of `cargo xtask mutants`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// The crates, such as `iwarp`; all that are examined without it
    #[arg(value_parser = area)]
    crates: Vec<Area>,
    /// Only the part K of N of the mutants of each crate, as `K/N`, K from 0
    #[arg(long)]
    shard: Option<String>,
    /// Only what changed since REV, uncommitted changes included
    #[arg(long, value_name = "REV", num_args = 0..=1, default_missing_value = "HEAD")]
    changed: Option<String>,
    /// Only files below the crate's `src` that match this pattern, such as `crc*`
    #[arg(long)]
    file: Option<String>,
    /// All mutants in one build, each behind a switch; a mutant then costs seconds instead of minutes
    #[arg(long)]
    planted: bool,
    /// Only functions that decide rights, verify signatures, flush, drain or replay, as `xtask/src/mutants/decisive.txt` names them
    #[arg(long, requires = "planted")]
    decisive: bool,
    /// Only every Nth mutant of each crate
    #[arg(long, requires = "planted", default_value_t = 1, value_name = "N")]
    every: usize,
    /// Only mutants whose names this file has, one a line
    #[arg(long, requires = "planted")]
    only: Option<PathBuf>,
    /// Crates whose tests may find the mutants too, such as `server` for `client`
    #[arg(long, requires = "planted", value_delimiter = ',', value_name = "CRATE")]
    also: Vec<String>,
    /// Only these programs of tests, such as `server`, its unit tests, or `files`
    #[arg(long, requires = "planted", value_delimiter = ',', value_name = "NAME")]
    programs: Vec<String>,
    /// Takes the programs of the last run with `--planted`, which had the same crates and sources
    #[arg(long, requires = "planted")]
    built: bool,
    /// Seconds that a test gets at least, beside three times what it takes
    #[arg(long, requires = "planted", default_value_t = 10)]
    limit: u64,
}

/// A crate, and the part of it that is examined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Area {
    name: &'static str,
    /// Patterns of files below `src`; all files if there are none.
    files: &'static [&'static str],
}

fn area(name: &str) -> Result<Area, String> {
    let known = || AREAS.map(|area| area.name).join(", ");
    let found = AREAS.into_iter().find(|area| area.name == name);
    found.ok_or_else(|| format!("one of: {}", known()))
}

/// Examines each crate in turn.
pub(crate) fn run(options: &Options) -> Outcome {
    let accepted = Accepted::read()?;
    let tool = tool::installed()?;
    let chosen = if options.crates.is_empty() { AREAS.to_vec() } else { options.crates.clone() };
    let diff = options.changed.as_deref().map(diff_since).transpose()?;
    if options.planted {
        return planted::run(&tool, &chosen, options, diff.as_deref(), &accepted);
    }
    let mut tally = Tally::default();
    for area in chosen {
        let output = workspace::kept("mutants")?.join(area.name);
        if output.exists() {
            fs::remove_dir_all(&output).map_err(Failure::io("emptying", &output))?;
        }
        fs::create_dir_all(&output).map_err(Failure::io("creating", &output))?;
        let status = step(&tool, area, options, diff.as_deref(), &output)?.builds().tee()?.status;
        match status.code() {
            Some(ALL_CAUGHT | SOME_MISSED | SOME_TIMEOUT) => {}
            _ => {
                let failure = Failure::new(format!("cargo-mutants ended with {status}"));
                return Err(failure.remedy(format!("look at {}", output.display())));
            }
        }
        tally.add(judged(area, &Found::read(&output)?, &accepted));
    }
    Ok(tally)
}

fn step(
    tool: &Path,
    area: Area,
    options: &Options,
    diff: Option<&Path>,
    output: &Path,
) -> Result<Step, Failure> {
    let package = format!("landfast-{}", area.name);
    let target = workspace::kept("mutants-target")?;
    // The weakest claim to a processor: a run takes hours.
    let mut step = Step::new("nice").args(["-n", "19"]).arg(tool).arg("mutants");
    step = step.dir(&workspace::root()).env("CARGO_TARGET_DIR", target.to_string_lossy());
    step = step.args(["--package", &package, "--no-shuffle", "--colors", "never"]);
    step = step.args(["--jobs", "1", "--profile", "mutants", "--cap-lints", "true"]);
    step = step.args(["--minimum-test-timeout", TIMEOUT_MIN_S]);
    step = chosen_mutants(step, area, options, diff).arg("--output").arg(output);
    // Doctests and examples find no mutant that no other test finds, and each is linked on its own.
    Ok(step.args(["--", "--lib", "--tests"]))
}

fn chosen_mutants(mut step: Step, area: Area, options: &Options, diff: Option<&Path>) -> Step {
    for pattern in patterns(area, options.file.as_deref()) {
        step = step.arg("--file").arg(pattern);
    }
    if let Some(shard) = &options.shard {
        step = step.args(["--shard", shard]);
    }
    if let Some(diff) = diff {
        step = step.arg("--in-diff").arg(diff);
    }
    step
}

fn patterns(area: Area, file: Option<&str>) -> Vec<String> {
    let below = |pattern: &str| format!("crates/{}/src/{pattern}", area.name);
    match file {
        Some(file) => vec![below(&format!("**/{file}"))],
        None => area.files.iter().map(|pattern| below(pattern)).collect(),
    }
}

// The difference between a revision and the tree as it is, as a file.
fn diff_since(revision: &str) -> Result<PathBuf, Failure> {
    let arguments = ["diff", "--no-color", "--no-ext-diff", revision, "--", "crates"];
    let diff = Step::new("git").args(arguments).dir(&workspace::root()).output()?;
    let path = workspace::kept("mutants")?.join("changed.diff");
    fs::write(&path, diff).map_err(Failure::io("writing", &path))?;
    Ok(path)
}

/// What became of the mutants of one run, each as cargo-mutants names it.
#[derive(Debug, Default)]
struct Found {
    caught: usize,
    timeout: usize,
    unviable: usize,
    missed: Vec<String>,
}

impl Found {
    fn read(output: &Path) -> Result<Self, Failure> {
        let lines = |name: &str| -> Result<Vec<String>, Failure> {
            let path = output.join("mutants.out").join(name);
            // No mutant matches the difference: then there are no lists.
            if !path.exists() {
                return Ok(Vec::new());
            }
            let text = fs::read_to_string(&path).map_err(Failure::io("reading", &path))?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        Ok(Self {
            caught: lines("caught.txt")?.len(),
            timeout: lines("timeout.txt")?.len(),
            unviable: lines("unviable.txt")?.len(),
            missed: lines("missed.txt")?,
        })
    }
}

fn judged(area: Area, found: &Found, accepted: &Accepted) -> Tally {
    let Found { caught, timeout, unviable, missed } = found;
    let unlisted = accepted.without(missed);
    let equivalent = missed.len() - unlisted.len();
    let counted = caught + timeout + unlisted.len();
    let detected = caught + timeout;
    let per_mille = (detected * 1_000).checked_div(counted).unwrap_or(1_000);
    let note = format!(
        "{}: {detected} of {counted} caught ({}.{} %), {timeout} of them by the time limit; \
         {equivalent} accepted, {unviable} do not build",
        area.name,
        per_mille / 10,
        per_mille % 10
    );
    println!("  {note}");
    Tally {
        passed: u32::try_from(detected + equivalent).unwrap_or(u32::MAX),
        failed: unlisted.into_iter().map(|mutant| format!("no test fails: {mutant}")).collect(),
        skipped: Vec::new(),
        note,
    }
}

/// The crates that are examined, lowest layer first.
const AREAS: [Area; 8] = [
    Area { name: "pmem", files: &[] },
    Area { name: "iwarp", files: &[] },
    Area { name: "smbdirect", files: &[] },
    Area { name: "rdma", files: &[] },
    Area { name: "remote", files: &[] },
    Area { name: "smb", files: &[] },
    Area { name: "client", files: &["connection/**/*.rs", "region/**/*.rs", "session.rs"] },
    Area {
        name: "server",
        files: &["access/**/*.rs", "dispatch/**/*.rs", "push/**/*.rs", "state/**/*.rs"],
    },
];
/// Exit statuses of cargo-mutants: all caught, some missed, some that ran out of time.
const ALL_CAUGHT: i32 = 0;
const SOME_MISSED: i32 = 2;
const SOME_TIMEOUT: i32 = 3;
/// The least time that the tests of a mutant get. The tool gives them five times what they take without a mutant, and other work
/// on the machine may delay short tests by more.
const TIMEOUT_MIN_S: &str = "60";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_of_the_command_line_replaces_those_of_the_crate() {
        let server = area("server").unwrap();
        assert!(patterns(server, None).contains(&"crates/server/src/push/**/*.rs".to_owned()));
        assert_eq!(patterns(server, Some("lock.rs")), ["crates/server/src/**/lock.rs"]);
        assert_eq!(patterns(area("pmem").unwrap(), None), [""; 0]);
        area("cli").unwrap_err();
    }

    #[test]
    fn the_share_of_caught_mutants_leaves_out_those_accepted() {
        let accepted = Accepted::parse("a.rs | one | it is equal\n").unwrap();
        let missed = vec!["a.rs:1:2: one".to_owned(), "a.rs:3:4: two".to_owned()];
        let found = Found { caught: 8, timeout: 1, unviable: 3, missed };
        let tally = judged(AREAS[0], &found, &accepted);
        assert_eq!(
            (tally.passed, &tally.failed[..]),
            (10, &["no test fails: a.rs:3:4: two".to_owned()][..])
        );
        assert!(tally.note.contains("9 of 10 caught (90.0 %)"), "{}", tally.note);
    }
}
