//! The copy of the sources in which mutants are planted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::mutant::Mutant;
use crate::render::{Place, Planted, render};
use crate::sites;

/// A copy, and what is planted in it.
#[derive(Debug)]
pub(crate) struct Tree {
    from: PathBuf,
    pub(crate) root: PathBuf,
    files: HashMap<String, Planted>,
}

impl Tree {
    /// Copies what git knows; a file that is already the same stays, so that a build finds it unchanged.
    pub(crate) fn copy(from: &Path, root: &Path, planted: &HashSet<&str>) -> Result<Self, String> {
        let mut kept = HashSet::new();
        for name in tracked(from)? {
            let Ok(content) = fs::read(from.join(&name)) else { continue };
            if !planted.contains(name.as_str())
                && !name.ends_with("Cargo.toml")
                && name != "Cargo.lock"
            {
                write(&root.join(&name), &content)?;
            }
            kept.insert(name);
        }
        for name in tracked_copies(root) {
            if !kept.contains(&name) {
                let _ = fs::remove_file(root.join(&name));
            }
        }
        fs::write(root.join(LISTED), kept.into_iter().collect::<Vec<_>>().join("\n"))
            .map_err(text)?;
        Ok(Self { from: from.to_owned(), root: root.to_owned(), files: HashMap::new() })
    }

    /// Gives the packages the switch: a crate of its own, which alone needs what the compiler calls unstable.
    pub(crate) fn add_switch(&self, packages: &[String]) -> Result<(), String> {
        let switch = self.root.join("mutant-switch");
        write(&switch.join("Cargo.toml"), MANIFEST.as_bytes())?;
        write(&switch.join("src/lib.rs"), include_bytes!("switch.txt"))?;
        let wrapper = self.root.join(WRAPPER);
        write(&wrapper, b"#!/bin/sh\nRUSTC_BOOTSTRAP=mutant_switch exec \"$@\"\n")?;
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).map_err(text)?;
        for name in tracked(&self.from)?.into_iter().filter(|name| name.ends_with("Cargo.toml")) {
            let mut manifest = fs::read_to_string(self.from.join(&name)).map_err(text)?;
            if name == "Cargo.toml" {
                manifest = manifest.replacen("members = [", "members = [\"mutant-switch\", ", 1);
                manifest.push_str(&quick(&manifest));
            } else if packages.iter().any(|package| name == format!("crates/{package}/Cargo.toml"))
            {
                let with = "\n[dependencies]\nmutant-switch = { path = \"../../mutant-switch\" }\n";
                manifest = manifest.replacen("\n[dependencies]\n", with, 1);
            }
            write(&self.root.join(&name), manifest.as_bytes())?;
        }
        // cargo adds the switch to the lock file; without its own entry the file is otherwise as it was.
        let lock = fs::read_to_string(self.from.join("Cargo.lock")).map_err(text)?;
        let marked = self.root.join("Cargo.lock.from");
        if fs::read_to_string(&marked).ok().as_deref() != Some(&lock) {
            write(&marked, lock.as_bytes())?;
            write(&self.root.join("Cargo.lock"), lock.as_bytes())?;
        }
        Ok(())
    }

    /// Plants all mutants but those of `without`, and returns those for which there is no place, or which would make a
    /// constant another.
    pub(crate) fn plant(
        &mut self,
        mutants: &[Mutant],
        without: &HashSet<u32>,
    ) -> Result<Vec<u32>, String> {
        let mut by_file: BTreeMap<&str, Vec<(u32, &Mutant)>> = BTreeMap::new();
        for (id, mutant) in (0_u32..).zip(mutants) {
            by_file.entry(&mutant.file).or_default().push((id, mutant));
        }
        let mut placeless = Vec::new();
        for (name, mutants) in by_file {
            let source = fs::read_to_string(self.from.join(name)).map_err(text)?;
            let mut wanted = sites::Wanted::new();
            for (id, mutant) in mutants {
                if without.contains(&id) {
                    continue;
                }
                if mutant.function.is_none() {
                    placeless.push(id);
                    continue;
                }
                let key = (mutant.genre.clone(), mutant.span.start.offset(&source));
                wanted.entry(key).or_default().push((id, mutant.replacement.clone()));
            }
            let sites =
                sites::find(&source, &mut wanted).map_err(|error| format!("{name}: {error}"))?;
            placeless.extend(wanted.into_values().flatten().map(|(id, _)| id));
            let planted = render(&source, &sites);
            write(&self.root.join(name), planted.text.as_bytes())?;
            self.files.insert(name.to_owned(), planted);
        }
        Ok(placeless)
    }

    /// The mutants that are at a byte of a file, or else the mutants of the innermost place around it.
    pub(crate) fn at(&self, file: &str, byte: usize) -> Vec<u32> {
        let Some(planted) = self.files.get(file) else { return Vec::new() };
        let holds = |range: &Range<usize>| range.contains(&byte);
        let here: Vec<u32> =
            planted.regions.iter().filter(|(_, range)| holds(range)).map(|(id, _)| *id).collect();
        if !here.is_empty() {
            return here;
        }
        let around = planted.places.iter().filter(|place| holds(&place.range));
        around
            .min_by_key(|place| place.range.len())
            .map_or_else(Vec::new, |place| place.ids.clone())
    }

    /// The mutants of a function that can be the cause of an error elsewhere in it: arms after a match that misses a pattern,
    /// or else values that the function returns.
    pub(crate) fn beside(&self, file: &str, byte: usize, misses_pattern: bool) -> Vec<u32> {
        let Some(planted) = self.files.get(file) else { return Vec::new() };
        let bodies = || planted.places.iter().filter(|place| place.is_body);
        let end = bodies().map(|place| place.range.start).filter(|start| *start > byte).min();
        let is_after = |place: &&Place| {
            place.is_arm
                && place.range.start > byte
                && end.is_none_or(|end| place.range.start < end)
        };
        if misses_pattern {
            let arms = planted.places.iter().filter(is_after);
            return arms.flat_map(|place| place.ids.clone()).collect();
        }
        let before = bodies().filter(|place| place.range.start <= byte);
        before
            .max_by_key(|place| place.range.start)
            .map_or_else(Vec::new, |place| place.ids.clone())
    }
}

// Our packages are compiled quickly rather than well, and check what they believe.
fn quick(manifest: &str) -> String {
    let mut profile = String::new();
    let ours = manifest.split("package = \"landfast-").skip(1);
    for name in ours.filter_map(|rest| rest.split('"').next()) {
        let header = format!("[profile.release.package.landfast-{name}]");
        if !manifest.contains(&header) && !profile.contains(&header) {
            profile.push_str(&format!("\n{header}\nopt-level = 1\ndebug-assertions = true\n"));
        }
    }
    profile
}

fn tracked(root: &Path) -> Result<Vec<String>, String> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let output = git.output().map_err(text)?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

fn tracked_copies(root: &Path) -> Vec<String> {
    let list = fs::read_to_string(root.join(LISTED)).unwrap_or_default();
    list.lines().map(str::to_owned).collect()
}

fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let failed = |error| format!("writing {}: {error}", path.display());
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    fs::write(path, content).map_err(failed)
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

/// Runs the compiler so that it takes the switch.
pub(crate) const WRAPPER: &str = "mutant-switch/rustc";
/// What the last copy had.
const LISTED: &str = ".copied";
const MANIFEST: &str = "[package]\nname = \"mutant-switch\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n";
