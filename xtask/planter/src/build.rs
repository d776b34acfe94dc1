//! Builds of the planted tree: mutants that do not build are dropped until the rest does.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tree::{Tree, WRAPPER};

/// A program with tests.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Binary {
    pub(crate) package: String,
    pub(crate) path: PathBuf,
    /// Where cargo would run it.
    pub(crate) dir: PathBuf,
}

impl Binary {
    /// Whether a name is that of the file, without what cargo adds to it.
    pub(crate) fn is_one_of(&self, names: &[String]) -> bool {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        names.iter().any(|wanted| name.rsplit_once('-').is_some_and(|(name, _)| name == wanted))
    }
}

/// Where and how to build.
#[derive(Clone, Debug)]
pub(crate) struct Builder {
    pub(crate) target: PathBuf,
    /// Without their prefix.
    pub(crate) packages: Vec<String>,
}

impl Builder {
    /// The mutants that a build of the libraries finds at errors.
    pub(crate) fn broken(&self, tree: &Tree) -> Result<HashSet<u32>, String> {
        let mut errors = Errors::default();
        let is_good = self.cargo(tree, &["build", "--lib", "--keep-going"], |message| {
            errors.take(tree, message);
        })?;
        if is_good { Ok(HashSet::new()) } else { errors.blamed("the tree does not build") }
    }

    /// Builds all tests. Instead, the mutants at errors: a library is another for its own tests.
    pub(crate) fn tests(&self, tree: &Tree) -> Result<Result<Vec<Binary>, HashSet<u32>>, String> {
        let mut binaries = Vec::new();
        let mut errors = Errors::default();
        let is_good = self.cargo(tree, &["test", "--no-run", "--lib", "--tests"], |message| {
            errors.take(tree, message);
            let is_test = message["profile"]["test"] == true;
            let manifest = message["manifest_path"].as_str().map(Path::new);
            if let (true, Some(path), Some(manifest)) =
                (is_test, message["executable"].as_str(), manifest)
            {
                let dir = manifest.parent().unwrap_or(manifest).to_owned();
                let package = dir
                    .file_name()
                    .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
                binaries.push(Binary { package, path: PathBuf::from(path), dir });
            }
        })?;
        if is_good { Ok(Ok(binaries)) } else { errors.blamed("the tests do not build").map(Err) }
    }

    fn cargo(
        &self,
        tree: &Tree,
        command: &[&str],
        mut each: impl FnMut(&Value),
    ) -> Result<bool, String> {
        let mut cargo = Command::new("cargo");
        // The profile of `cargo xtask test`: packages of others are there already.
        cargo.current_dir(&tree.root).args(command).args(["--offline", "--release"]);
        cargo.args(["--message-format", "json"]).env("CARGO_TARGET_DIR", &self.target);
        // Only for our packages: others would be built again.
        cargo.env("RUSTC_WORKSPACE_WRAPPER", tree.root.join(WRAPPER)).env("CARGO_INCREMENTAL", "1");
        for package in &self.packages {
            cargo.arg("--package").arg(format!("landfast-{package}"));
        }
        println!("  cargo {} ({})", command.join(" "), self.packages.join(", "));
        let mut child = cargo.stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let output = child.stdout.take().expect("it is piped");
        for line in BufReader::new(output).lines() {
            let line = line.map_err(|error| error.to_string())?;
            if let Ok(message) = serde_json::from_str(&line) {
                each(&message);
            }
        }
        Ok(child.wait().map_err(|error| error.to_string())?.success())
    }
}

/// What the compiler complains of.
#[derive(Debug, Default)]
struct Errors {
    /// Mutants at a complaint.
    broken: HashSet<u32>,
    /// Complaints that no mutant is at.
    elsewhere: Vec<String>,
}

impl Errors {
    fn take(&mut self, tree: &Tree, message: &Value) {
        let message = &message["message"];
        if message["level"] != "error" {
            return;
        }
        let spans = message["spans"].as_array().map_or(&[][..], Vec::as_slice);
        let place = |span: &Value| {
            let byte = usize::try_from(span["byte_start"].as_u64()?).ok()?;
            Some((span["file_name"].as_str()?.to_owned(), byte))
        };
        let mut found = Vec::new();
        for (file, byte) in spans.iter().filter(|span| span["is_primary"] == true).filter_map(place)
        {
            let here = tree.at(&file, byte);
            let misses_pattern = message["code"]["code"] == "E0004";
            found.extend(if here.is_empty() || misses_pattern {
                tree.beside(&file, byte, misses_pattern)
            } else {
                here
            });
        }
        // Such as the place that took a value which is used here.
        if found.is_empty() {
            let others = spans.iter().filter_map(place);
            found.extend(others.flat_map(|(file, byte)| tree.at(&file, byte)));
        }
        if found.is_empty() && !spans.is_empty() {
            self.elsewhere.push(message["rendered"].as_str().unwrap_or_default().to_owned());
        }
        self.broken.extend(found);
    }

    fn blamed(self, what: &str) -> Result<HashSet<u32>, String> {
        match self.broken.is_empty() {
            true => Err(format!("{what}:\n{}", self.elsewhere.join("\n"))),
            false => Ok(self.broken),
        }
    }
}
