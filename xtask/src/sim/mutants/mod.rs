//! Faults planted in server, client and engine, each of which seeds of the simulator must find.

mod faults;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use self::faults::{FAULTS, Fault, Place};
use super::{PROGRAMS, Simulator};
use crate::failure::{Failure, Outcome, Tally};
use crate::process::Step;
use crate::workspace;

/// Options of `cargo xtask mutants-sim`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Plant only the faults whose names contain this
    name: Option<String>,
    /// Seconds of seeds for each
    #[arg(long, default_value_t = 600)]
    seconds: u64,
}

/// Plants all faults in one copy of the tree, each behind a question for its number, builds it once, and for each runs
/// seeds until one fails.
pub(crate) fn run(options: &Options) -> Outcome {
    let driver = ["build", "--release", "--workspace", "--bin", "landfast-sim"];
    Step::new("cargo").args(driver).dir(&workspace::root()).builds().run()?;
    let mut tally = Tally::default();
    let chosen =
        |fault: &&Fault| options.name.as_ref().is_none_or(|name| fault.name.contains(name));
    let tree = workspace::kept("mutants-sim")?.join("tree");
    bring_up_to_date(&tree)?;
    let release = match build(&tree)? {
        Ok(release) => release,
        Err(why) => {
            tally.count("the tree with all faults builds", Err(why));
            return Ok(tally);
        }
    };
    let simulator = Simulator {
        own: workspace::target().join("release/landfast-sim"),
        landfast: release.join("landfast"),
        programs: release,
        is_quiet: false,
    };
    // Of what is planted nothing may happen that was not asked for.
    let sound = simulator.run(0, SOUND, &[])?;
    tally.count("the tree with all faults asleep shows none", super::judged(&sound));
    for (number, fault) in FAULTS.iter().enumerate().filter(|(_, fault)| chosen(fault)) {
        let began = Instant::now();
        let found = find(number, &simulator, options.seconds)?;
        println!("  {}: {}, {} s", fault.name, verdict(&found), began.elapsed().as_secs());
        tally.count(fault.name, found.map(drop));
    }
    Ok(tally)
}

fn verdict(found: &Result<String, String>) -> &str {
    match found {
        Ok(how) => how,
        Err(why) => why,
    }
}

// What the seed that found it said, or that none did.
fn find(
    number: usize,
    simulator: &Simulator,
    seconds: u64,
) -> Result<Result<String, String>, Failure> {
    let (seconds, asked) = (seconds.to_string(), format!("{VARIABLE}={number}"));
    let more = ["--first", "--keep", "--limit", &seconds, "--variable", &asked];
    let finished = simulator.run(0, u64::from(u32::MAX), &more)?;
    let mut said = finished.stdout.lines().skip_while(|line| !line.starts_with("fault"));
    Ok(match (finished.status.code(), said.next(), said.next()) {
        (Some(1), Some(plan), Some(fault)) => Ok(format!("found: {} ({plan})", fault.trim())),
        (Some(0), ..) => Err(format!("not found in {seconds} s")),
        _ => Err(format!(
            "the simulator has ended early: {}",
            crate::process::tail(&finished.stdout)
        )),
    })
}

// The directory of the programs of the tree with all faults.
fn build(tree: &Path) -> Result<Result<PathBuf, String>, Failure> {
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for (number, fault) in FAULTS.iter().enumerate() {
        for place in fault.places {
            let file = workspace::root().join(place.file);
            let text = match texts.remove(place.file) {
                Some(text) => text,
                None => fs::read_to_string(&file).map_err(Failure::io("reading", &file))?,
            };
            match place.planted(&text, number) {
                Ok(planted) => drop(texts.insert(place.file, planted)),
                Err(why) => return Ok(Err(format!("{}: {why}", fault.name))),
            }
        }
    }
    let asked = workspace::root().join(ASKED_IN);
    let text = fs::read_to_string(&asked).map_err(Failure::io("reading", &asked))?;
    texts.insert(ASKED_IN, text + QUESTION);
    for (file, text) in &texts {
        write_where_it_differs(&tree.join(file), text.as_bytes())?;
    }
    let target = tree.with_file_name("target");
    take_what_is_built(&target)?;
    let build = Step::new("cargo").args(["build", "--release", "--workspace"]);
    let build = build.args(["--bin", "landfast"]).args(PROGRAMS);
    let target_dir = target.to_string_lossy().into_owned();
    let built = build.dir(tree).env("CARGO_TARGET_DIR", target_dir).builds().finish()?;
    Ok(match built.status.success() {
        true => Ok(target.join("release")),
        false => Err(format!("does not build: {}", crate::process::tail(&built.stderr))),
    })
}

// The crates of others do not depend on where the tree is: they are built already.
fn take_what_is_built(target: &Path) -> Result<(), Failure> {
    let (from, to) = (workspace::target().join("release"), target.join("release"));
    if to.exists() {
        return Ok(());
    }
    fs::create_dir_all(&to).map_err(Failure::io("creating", &to))?;
    let parts = ["build", "deps", ".fingerprint"].map(|part| from.join(part));
    Step::new("cp").args(["--recursive", "--link"]).args(parts).arg(&to).run()
}

// Files that get a fault are left as they are: they are written with it.
fn bring_up_to_date(tree: &Path) -> Result<(), Failure> {
    let planted = |path: &Path| {
        let mut places = FAULTS.iter().flat_map(|fault| fault.places);
        path == Path::new(ASKED_IN) || places.any(|place| path == Path::new(place.file))
    };
    for path in workspace::files()? {
        let (from, to) = (workspace::root().join(&path), tree.join(&path));
        let bytes = fs::read(&from).map_err(Failure::io("reading", &from))?;
        if planted(&path) {
            continue;
        }
        let parent = to.parent().map_or_else(|| tree.to_owned(), Path::to_owned);
        fs::create_dir_all(&parent).map_err(Failure::io("creating", &parent))?;
        write_where_it_differs(&to, &bytes)?;
    }
    Ok(())
}

// Cargo builds again what is newer.
fn write_where_it_differs(to: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    fs::write(to, bytes).map_err(Failure::io("writing", to))
}

impl Place {
    // The text of the file with the fault behind a question for its number.
    fn planted(&self, text: &str, number: usize) -> Result<String, String> {
        if text.matches(self.right).count() != 1 {
            return Err(format!("{} has no such place any more", self.file));
        }
        let own = if self.file.starts_with("crates/pmem/") { "crate" } else { "pmem" };
        let question = format!("{own}::is_planted({number})");
        Ok(text.replacen(self.right, &self.wrong.replace(QUESTIONED, &question), 1))
    }
}

/// What stands in a fault for the question whether this run asks for it.
const QUESTIONED: &str = "PLANTED";
/// The lowest crate that all others see.
const ASKED_IN: &str = "crates/pmem/src/lib.rs";
/// The variable of the programs' environment that names a fault.
const VARIABLE: &str = "LANDFAST_PLANTED";
const QUESTION: &str = "
/// Whether this run asks for a planted fault.
pub fn is_planted(number: u32) -> bool {
    static ASKED: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
    let asked = || std::env::var(\"LANDFAST_PLANTED\").ok()?.parse().ok();
    *ASKED.get_or_init(asked) == Some(number)
}
";
/// Seeds that run without a fault first.
const SOUND: u64 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_places_and_asks_for_its_number() {
        for (number, fault) in FAULTS.iter().enumerate() {
            for place in fault.places {
                let text = fs::read_to_string(workspace::root().join(place.file)).unwrap();
                let planted = place.planted(&text, number).unwrap();
                let asks = planted.contains(&format!("::is_planted({number})"));
                assert!(asks, "{}: {}", fault.name, place.file);
            }
        }
        assert!(QUESTION.contains(VARIABLE));
    }
}
