//! Programs of this workspace that meet the guest: programs and examples that run here, tests that run there.
//!
//! They are asked for as `cargo test --workspace --release` makes them: with the features that the
//! whole workspace agrees on, and the shipped profile. After that step of `cargo xtask test` nothing
//! is built again.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::failure::Failure;
use crate::process::Step;
use crate::workspace;

/// What was built.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    /// Programs of tests that run in the guest as they do here.
    pub(super) tests: Vec<(&'static str, PathBuf)>,
}

/// Builds them, once.
pub(super) fn build() -> Result<Programs, Failure> {
    static BUILT: Mutex<Option<Programs>> = Mutex::new(None);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(programs) = built.as_ref() {
        return Ok(programs.clone());
    }
    let programs = PROGRAMS.iter().flat_map(|name| ["--bin", name]);
    let examples = EXAMPLES.iter().flat_map(|name| ["--example", name]);
    cargo(&["build"], programs.chain(examples)).output()?;
    let tests = TESTS.iter().flat_map(|(_, name)| ["--test", name]);
    let json = ["test", "--no-run", "--message-format", "json-render-diagnostics"];
    let said = cargo(&json, tests).output()?;
    let messages: Vec<Value> =
        said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let tests = TESTS.iter().map(|(package, name)| Ok((*name, test(&messages, package, name)?)));
    let programs = Programs { tests: tests.collect::<Result<_, Failure>>()? };
    Ok(built.insert(programs).clone())
}

/// Where a program beside `landfast` is.
pub(super) fn program(name: &str) -> PathBuf {
    workspace::target().join("release").join(name)
}

/// Where an example is.
pub(super) fn example(name: &str) -> PathBuf {
    workspace::target().join("release/examples").join(name)
}

fn cargo<'a>(command: &[&str], targets: impl Iterator<Item = &'a str>) -> Step {
    let step = Step::new("cargo").args(command).arg("--release").args(workspace::TESTED);
    let step = step.args(targets);
    step.dir(&workspace::root()).quiet().builds()
}

fn test(messages: &[Value], package: &str, name: &str) -> Result<PathBuf, Failure> {
    let mut programs = messages.iter().filter_map(|message| {
        let of = message["package_id"].as_str().is_some_and(|id| id.contains(package));
        let is_it = of && message["target"]["name"] == name;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    });
    programs.next().ok_or_else(|| Failure::new(format!("cargo built no test {name}")))
}

const PROGRAMS: [&str; 2] = ["siw_peer", "commit_stream"];
const EXAMPLES: [&str; 1] = ["rping"];
/// What every provider does, what only adapters do; stories of server and client.
const TESTS: [(&str, &str); 3] = [
    ("landfast-rdma", "every_provider"),
    ("landfast-rdma", "adapter"),
    ("landfast-client", "push"),
];
