//! The fuzz targets of /fuzz: which there are, whether each has a corpus, and running them.

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
    if chosen.is_empty() {
        return Ok(Tally::skipped("fuzz: there is no fuzz/Cargo.toml"));
    }
    let mut tally = Tally { note: format!("{} targets", chosen.len()), ..Tally::default() };
    for (index, target) in chosen.iter().enumerate() {
        println!("  target {} of {}: {target}", index + 1, chosen.len());
        let result = run_one(target, options.seconds).map_err(|failure| failure.to_string());
        tally.count(target, result);
    }
    Ok(tally)
}

/// Targets that have no corpus to start from.
pub(crate) fn without_corpus() -> Result<Vec<String>, Failure> {
    let corpus = workspace::root().join("fuzz").join("corpus");
    let empty = |target: &String| {
        let mut files = std::fs::read_dir(corpus.join(target)).into_iter().flatten();
        files.next().is_none()
    };
    Ok(targets()?.into_iter().filter(empty).map(|target| format!("{target}: no corpus")).collect())
}

fn run_one(target: &str, seconds: u32) -> Result<(), Failure> {
    let root = workspace::root();
    Step::new("cargo")
        .args(["run", "--release", "--manifest-path", "fuzz/Cargo.toml", "--bin", target, "--"])
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("fuzz/corpus/{target}"))
        .dir(&root)
        .limit(Duration::from_secs(900 + u64::from(seconds)))
        .run()
}

/// The names of the binaries of /fuzz; none while there is no such directory.
fn targets() -> Result<Vec<String>, Failure> {
    let manifest = workspace::root().join("fuzz").join("Cargo.toml");
    if !manifest.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(&manifest).map_err(Failure::io("reading", &manifest))?;
    Ok(names_of_binaries(&text))
}

fn names_of_binaries(manifest: &str) -> Vec<String> {
    let sections = manifest.split("[[bin]]").skip(1);
    let name = |section: &str| {
        let line = section.lines().find(|line| line.trim_start().starts_with("name"))?;
        line.split('"').nth(1).map(str::to_owned)
    };
    sections.filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_are_the_binaries_of_the_manifest() {
        let manifest = "[package]\nname = \"fuzz\"\n\n[[bin]]\nname = \"mpa\"\npath = \"a.rs\"\n\n\
                        [[bin]]\npath = \"b.rs\"\nname = \"ddp\"\n";
        assert_eq!(names_of_binaries(manifest), ["mpa", "ddp"]);
    }
}
