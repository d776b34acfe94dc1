//! `cargo test` of the workspace as two steps: all is built by one command, then run program by program, two side by side.
//! Cargo runs one after the other, and many of them wait for peers, deadlines and disks more than they compute.

use std::iter;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::failure::{Failure, Outcome, Tally};
use crate::process::{Finished, Step, succeeded};
use crate::{libtest, workspace};

/// Builds all tests of the workspace but those of the fuzz targets' bodies.
pub(super) fn build() -> Outcome {
    cargo().arg("--no-run").builds().run()?;
    Ok(Tally::passed(""))
}

/// Runs them, counted from what libtest prints.
pub(super) fn run() -> Outcome {
    let messages = cargo().args(["--no-run", "--message-format", "json"]).quiet();
    let messages = messages.builds().output()?;
    let programs: Vec<Program> = messages.lines().filter_map(Program::parse).collect();
    let note = format!("{} test programs", programs.len());
    // Tests of the documentation first: cargo runs them, and needs nothing that is still to come.
    let documented = cargo().arg("--doc");
    let queue = iter::once(documented).chain(programs.iter().map(Program::step));
    let tally = Tally { note, ..side_by_side(queue) };
    match tally.passed {
        0 => Err(Failure::new("cargo has built no test")),
        _ => Ok(tally),
    }
}

fn cargo() -> Step {
    let step = Step::new("cargo").args(["test", "--release"]).args(workspace::TESTED);
    step.dir(&workspace::root())
}

fn side_by_side(queue: impl Iterator<Item = Step> + Send) -> Tally {
    let (queue, tally) = (Mutex::new(queue), Mutex::new(Tally::default()));
    let lane = || {
        while let Some(step) = { queue.lock().unwrap_or_else(PoisonError::into_inner).next() } {
            let (said, found) = run_one(step);
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            // What a program says stands together, whatever ran beside it.
            println!("{said}");
            tally.add(found);
        }
    };
    thread::scope(|scope| (0..LANES).for_each(|_| drop(scope.spawn(lane))));
    tally.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// All that a program of tests said, and what it found.
fn run_one(step: Step) -> (String, Tally) {
    let shown = format!("  $ {}", step.shown());
    match step.quiet().limit(PROGRAM_LIMIT).finish() {
        Ok(Finished { status, stdout, stderr }) => {
            let mut found = Tally { note: String::new(), ..libtest::count(&stdout) };
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

/// A program of tests that cargo has built.
#[derive(Debug, PartialEq)]
struct Program {
    path: PathBuf,
    /// Of its package: cargo runs it there.
    directory: PathBuf,
}

impl Program {
    /// Reads a message of cargo; none where it tells of something else.
    ///
    /// Spec: The Cargo Book, "External tools", artifact messages.
    fn parse(message: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(message).ok()?;
        let is_test = message["profile"]["test"] == true;
        let path = message["executable"].as_str().filter(|_| is_test)?.into();
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        Some(Self { path, directory })
    }

    fn step(&self) -> Step {
        let directory = self.directory.to_string_lossy().into_owned();
        let step = Step::new(&self.path).dir(&self.directory);
        step.env("CARGO_MANIFEST_DIR", directory)
    }
}

/// Programs side by side: each has a thread for each processor itself.
const LANES: usize = 2;
/// Longest a program may run: ten times what the longest takes beside another on two busy cores.
const PROGRAM_LIMIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_cargo_has_built_programs_of_tests_are_taken() {
        let message = |executable: &str, is_test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml",
                "profile":{{"test":{is_test}}},"executable":{executable}}}"#
            )
        };
        let program = Program { path: "/w/t/a-1".into(), directory: "/w/crates/a".into() };
        assert_eq!(Program::parse(&message(r#""/w/t/a-1""#, true)), Some(program));
        assert_eq!(Program::parse(&message(r#""/w/t/a""#, false)), None);
        assert_eq!(Program::parse(&message("null", true)), None);
        assert_eq!(Program::parse(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
