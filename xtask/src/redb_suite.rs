//! redb's own tests, with our storage in place of its file backend.
//!
//! The crate that cargo has fetched for `redb-backend` brings its tests along, those in its source and those beside it. A
//! copy of it in `target/xtask/redb-suite` gets `tests/databases/redb_suite/file_backend.rs` in front of its own file
//! backend, and nothing else is changed: what a test opens by a path or a file lies in our storage then.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use crate::failure::{Failure, Outcome, Tally};
use crate::process::Step;
use crate::workspace;

/// Options of `cargo xtask redb-suite`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// What the databases lie in: file (redb's own backend, the control), logged, logged-remote, memory, region; all of
    /// them unless some are named
    #[arg(long, value_parser = STORAGES)]
    pub(crate) storage: Vec<String>,
    /// Programs of tests, as in basic_tests; `lib` are the tests in redb's source
    #[arg(long)]
    pub(crate) test: Vec<String>,
    /// Run what is known to fail as well
    #[arg(long)]
    pub(crate) known: bool,
}

/// Makes the copy, builds it, and runs its tests on each storage.
pub(crate) fn run(options: &Options) -> Outcome {
    let directory = workspace::kept("redb-suite")?;
    prepare(&directory)?;
    let build = ["test", "--release", "--lib", "--tests", "--no-run"];
    Step::new("cargo").args(build).args(target_of()).dir(&directory.join("redb")).builds().run()?;
    let known = Known::read()?;
    let named = |names: &[String], all: Vec<String>| match names {
        [] => all,
        some => some.to_vec(),
    };
    let programs = named(&options.test, programs(&directory)?);
    let storages = named(&options.storage, STORAGES.map(str::to_owned).to_vec());
    let mut tally = Tally::default();
    for storage in &storages {
        let mut of_storage = Tally::default();
        let begun = Instant::now();
        for program in &programs {
            let skipped = if options.known { Vec::new() } else { known.of(storage, program) };
            run_one(&directory, storage, program, &skipped, &mut of_storage)?;
        }
        let (passed, failed) = (of_storage.passed, of_storage.failed.len());
        let seconds = begun.elapsed().as_secs();
        of_storage.note = format!(
            "{storage}: {passed} passed, {failed} failed, {} known, {seconds} s",
            of_storage.skipped.len()
        );
        println!("{}", of_storage.note);
        tally.add(of_storage);
    }
    Ok(tally)
}

/// One program of tests on one storage.
fn run_one(
    directory: &Path,
    storage: &str,
    program: &str,
    skipped: &[(String, String)],
    tally: &mut Tally,
) -> Result<(), Failure> {
    let scratch = workspace::scratch_on_tmpfs()?;
    let files = scratch.path().join("tests");
    fs::create_dir(&files).map_err(Failure::io("creating", &files))?;
    let which = match program {
        "lib" => vec!["--lib"],
        name => vec!["--test", name],
    };
    let mut step = Step::new("cargo")
        .args(["test", "--release"])
        .args(which)
        .args(target_of())
        .args(["--", "--exact"]);
    for (name, reason) in skipped {
        step = step.args(["--skip", name]);
        tally.skipped.push(format!("{storage}, {program}::{name}: {reason}"));
    }
    let finished = step
        .dir(&directory.join("redb"))
        .env("LANDFAST_REDB_STORAGE", storage)
        .env("LANDFAST_REDB_DIR", scratch.path().display().to_string())
        .env("TMPDIR", files.display().to_string())
        .limit(LIMIT)
        .finish()?;
    let log = workspace::kept("logs")?.join(format!("redb-suite-{storage}-{program}.log"));
    let text = format!("{}{}", finished.stderr, finished.stdout);
    fs::write(&log, text).map_err(Failure::io("writing", &log))?;
    let verdicts = verdicts(&finished.stdout);
    for (name, has_passed) in &verdicts {
        let outcome = if *has_passed { Ok(()) } else { Err(format!("see {}", log.display())) };
        tally.count(&format!("{storage}, {program}::{name}"), outcome);
    }
    // A program that ends before its tests have: by a signal, or because it was not built.
    if !finished.status.success() && verdicts.values().all(|passed| *passed) {
        tally.failed.push(format!(
            "{storage}, {program}: {}, see {}",
            finished.status,
            log.display()
        ));
    }
    Ok(())
}

/// What libtest says of each test that ran.
fn verdicts(output: &str) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    for line in output.lines() {
        let verdict = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "));
        let Some((name, verdict)) = verdict else { continue };
        let name = name.strip_suffix(" - should panic").unwrap_or(name);
        match verdict {
            "ok" => found.insert(name.to_owned(), true),
            "FAILED" => found.insert(name.to_owned(), false),
            _ => None,
        };
    }
    found
}

/// Puts redb's source, the harness and the change together. Files that are as they should be stay untouched, so that
/// cargo builds nothing again.
fn prepare(directory: &Path) -> Result<(), Failure> {
    let ours = workspace::root().join(OURS);
    let redb = source()?;
    copy_tree(&redb, &directory.join("redb"), &|path, text| changed(path, text))?;
    for part in ["hook", "harness"] {
        copy_tree(&ours.join(part), &directory.join(part), &|_, text| Ok(text))?;
    }
    let root = workspace::root().display().to_string();
    let manifest = read(&ours.join("Cargo.toml"))?.replace("@ROOT@", &root);
    write(&directory.join("Cargo.toml"), manifest.as_bytes())?;
    let backend = read(&ours.join("file_backend.rs"))?;
    write(&directory.join("redb").join(BACKENDS).join("landfast.rs"), backend.as_bytes())?;
    // The versions that the product is built with.
    let lock = directory.join("Cargo.lock");
    if !lock.exists() {
        write(&lock, read(&workspace::root().join("Cargo.lock"))?.as_bytes())?;
    }
    Ok(())
}

/// A text of redb with our change; `path` is below its root.
fn changed(path: &Path, text: String) -> Result<String, Failure> {
    let replaced = |from: &str, to: &str| match text.matches(from).count() {
        1 => Ok(text.replace(from, to)),
        count => Err(Failure::new(format!(
            "{} of redb has `{from}` {count} times, not once: the change in xtask/src/redb_suite.rs is for another version",
            path.display()
        ))),
    };
    let name = path.to_string_lossy();
    match name.as_ref() {
        "Cargo.toml" => {
            let harness = "[dependencies.landfast-redb-hook]\npath = \"../hook\"\n\
                           [dev-dependencies.landfast-redb-harness]\npath = \"../harness\"\n[features]\n";
            replaced("[features]\n", harness)
        }
        "src/lib.rs" => Ok(text + "\n#[cfg(test)]\nextern crate landfast_redb_harness as _;\n"),
        _ if path == Path::new(BACKENDS).join("mod.rs") => replaced(
            "pub use optimized::FileBackend;",
            "mod landfast;\n#[cfg(any(windows, unix, target_os = \"wasi\"))]\npub use landfast::FileBackend;",
        ),
        test if test.starts_with("tests/") => {
            // What a copy of the file alone would leave behind.
            let text = text.replace("std::fs::copy(", "landfast_redb_harness::copy(");
            Ok(text + "\nextern crate landfast_redb_harness as _;\n")
        }
        _ => Ok(text),
    }
}

/// Where cargo has unpacked redb.
fn source() -> Result<PathBuf, Failure> {
    let question = ["metadata", "--format-version", "1", "--filter-platform", "host-tuple"];
    let answer = Step::new("cargo").args(question).dir(&workspace::root()).quiet().output()?;
    let metadata: Value = serde_json::from_str(&answer)
        .map_err(|error| Failure::new(format!("cargo metadata is not JSON: {error}")))?;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let redb = packages.iter().find(|package| package["name"] == "redb");
    let manifest = redb.and_then(|package| package["manifest_path"].as_str());
    let root = manifest.and_then(|manifest| Path::new(manifest).parent());
    root.map(Path::to_owned).ok_or_else(|| Failure::new("cargo metadata names no package redb"))
}

/// The programs of redb's tests.
fn programs(directory: &Path) -> Result<Vec<String>, Failure> {
    let tests = directory.join("redb/tests");
    let entries = fs::read_dir(&tests).map_err(Failure::io("listing", &tests))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.push("lib".to_owned());
    names.sort();
    Ok(names)
}

/// What others have built is not built again.
fn target_of() -> [String; 2] {
    ["--target-dir".to_owned(), workspace::target().display().to_string()]
}

type Change<'c> = &'c dyn Fn(&Path, String) -> Result<String, Failure>;

fn copy_tree(from: &Path, to: &Path, change: Change<'_>) -> Result<(), Failure> {
    let mut left = vec![PathBuf::new()];
    while let Some(at) = left.pop() {
        let directory = from.join(&at);
        let entries = fs::read_dir(&directory).map_err(Failure::io("listing", &directory))?;
        for entry in entries {
            let entry = entry.map_err(Failure::io("listing", &directory))?;
            let path = at.join(entry.file_name());
            if entry.path().is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|end| end == "rs" || end == "toml") {
                let text = change(&path, read(&entry.path())?)?;
                write(&to.join(&path), text.as_bytes())?;
            }
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(Failure::io("reading", path))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(Failure::io("creating", parent))?;
    fs::write(path, bytes).map_err(Failure::io("writing", path))
}

/// Tests that cannot pass on a storage, each with the reason.
struct Known(Vec<(Vec<String>, String, String, String)>);

impl Known {
    /// Lines of storages, a test, and the reason: `logged,memory basic_tests::name: because`.
    fn read() -> Result<Self, Failure> {
        let path = workspace::root().join(OURS).join("known.txt");
        let text = read(&path)?;
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let parse = |line: &str| {
            let (storages, rest) = line.split_once(' ')?;
            let (test, reason) = rest.split_once(": ")?;
            let (program, name) = test.split_once("::")?;
            let storages = storages.split(',').map(str::to_owned).collect();
            Some((storages, program.to_owned(), name.to_owned(), reason.to_owned()))
        };
        let known = lines.map(|line| {
            parse(line)
                .ok_or_else(|| Failure::new(format!("{}: not a line: {line}", path.display())))
        });
        Ok(Self(known.collect::<Result<_, _>>()?))
    }

    /// The names and reasons of one program on one storage.
    fn of(&self, storage: &str, program: &str) -> Vec<(String, String)> {
        let is_meant = |storages: &[String]| storages.iter().any(|one| one == storage);
        let lines = self.0.iter();
        lines
            .filter(|(storages, of, ..)| of == program && is_meant(storages))
            .map(|(_, _, name, reason)| (name.clone(), reason.clone()))
            .collect()
    }
}

const STORAGES: [&str; 5] = ["file", "logged", "logged-remote", "memory", "region"];
/// The change and the harness.
const OURS: &str = "tests/databases/redb_suite";
/// Where redb has its file backend.
const BACKENDS: &str = "src/tree_store/page_store/file_backend";
/// Of one program on one storage.
const LIMIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_has_one_verdict() {
        let output = "running 3 tests\ntest a::b ... ok\ntest c - should panic ... ok\ntest d ... FAILED\ntest e ... ignored, slow\n";
        let found: Vec<_> = verdicts(output).into_iter().collect();
        let expected = [("a::b", true), ("c", true), ("d", false)];
        assert_eq!(found, expected.map(|(name, passed)| (name.to_owned(), passed)));
    }

    #[test]
    fn a_known_test_names_its_storages_and_its_reason() {
        let known = Known::read().unwrap();
        let are_storages = |names: &[String]| names.iter().all(|name| STORAGES.contains(&&**name));
        assert!(known.0.iter().all(|(storages, ..)| are_storages(storages)));
    }

    #[test]
    fn another_text_of_redb_than_the_expected_is_refused() {
        let manifest = Path::new("Cargo.toml");
        changed(manifest, "[features]\n".to_owned()).unwrap();
        changed(manifest, "[package]\n".to_owned()).unwrap_err();
    }
}
