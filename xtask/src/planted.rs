//! Faults planted in a copy of the tree, each asleep behind a question for its number: so one build has them all.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::process::{Step, tail};
use crate::workspace;

/// A fault, behind the question `PLANTED` in all its places.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) places: &'static [Place],
}

/// A text of a file, of which the file has one, and the wrong one in its place.
pub(crate) struct Place {
    pub(crate) file: &'static str,
    pub(crate) right: &'static str,
    pub(crate) wrong: &'static str,
}

/// The variable of a program's environment that names the fault that is awake.
pub(crate) const VARIABLE: &str = "LANDFAST_PLANTED";

/// Builds the tree with all of `faults` in a directory `name`, by `cargo build --release` with `targets`. The directory
/// of the programs, or why there are none.
pub(crate) fn build(
    name: &str,
    faults: &[Fault],
    targets: &[&str],
) -> Result<Result<PathBuf, String>, Failure> {
    let tree = workspace::kept(name)?.join("tree");
    bring_up_to_date(&tree, faults)?;
    let texts = match planted(faults)? {
        Ok(texts) => texts,
        Err(why) => return Ok(Err(why)),
    };
    for (file, text) in &texts {
        write_where_it_differs(&tree.join(file), text.as_bytes())?;
    }
    let target = tree.with_file_name("target");
    take_what_is_built(&target)?;
    let build = workspace::build_of(targets.iter().copied());
    let target_dir = target.to_string_lossy().into_owned();
    let built = build.dir(&tree).env("CARGO_TARGET_DIR", target_dir).builds().finish()?;
    Ok(match built.status.success() {
        true => Ok(target.join("release")),
        false => Err(format!("does not build: {}", tail(&built.stderr))),
    })
}

/// The files with all faults, as texts.
fn planted(faults: &[Fault]) -> Result<Result<BTreeMap<&'static str, String>, String>, Failure> {
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for (number, fault) in faults.iter().enumerate() {
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
    Ok(Ok(texts))
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
fn bring_up_to_date(tree: &Path, faults: &[Fault]) -> Result<(), Failure> {
    let planted = |path: &Path| {
        let mut places = faults.iter().flat_map(|fault| fault.places);
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
const QUESTION: &str = "
/// Whether this run asks for a planted fault.
pub fn is_planted(number: u32) -> bool {
    static ASKED: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
    let asked = || std::env::var(\"LANDFAST_PLANTED\").ok()?.parse().ok();
    *ASKED.get_or_init(asked) == Some(number)
}
";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Fails where a text that a fault replaces is not there, or not once.
    pub(crate) fn check(faults: &[Fault]) {
        let texts = planted(faults).unwrap().unwrap();
        for (number, fault) in faults.iter().enumerate() {
            let asks = format!("::is_planted({number})");
            for place in fault.places {
                assert!(texts[place.file].contains(&asks), "{}: {}", fault.name, place.file);
            }
        }
        assert!(QUESTION.contains(VARIABLE));
    }
}
