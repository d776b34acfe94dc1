//! Builds of the planted tree: mutants that do not build are dropped until the rest does.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::tree::{Tree, WRAPPER};

/// A program with tests.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) package: String,
    pub(crate) path: PathBuf,
    /// Where cargo would run it.
    pub(crate) dir: PathBuf,
}

/// Where and how to build.
#[derive(Clone, Debug)]
pub(crate) struct Builder {
    pub(crate) target: PathBuf,
    /// Without their prefix.
    pub(crate) packages: Vec<String>,
}

impl Builder {
    /// The mutants that a check of the libraries finds at errors.
    pub(crate) fn broken(&self, tree: &Tree) -> Result<HashSet<u32>, String> {
        let mut broken = HashSet::new();
        let mut elsewhere = Vec::new();
        let is_good = self.cargo(tree, &["build", "--lib", "--keep-going"], |message| {
            let message = &message["message"];
            if message["level"] != "error" {
                return;
            }
            let mut found = Vec::new();
            for span in message["spans"].as_array().into_iter().flatten() {
                let (file, byte) = (span["file_name"].as_str(), span["byte_start"].as_u64());
                if span["is_primary"] == true
                    && let (Some(file), Some(byte)) =
                        (file, byte.and_then(|byte| usize::try_from(byte).ok()))
                {
                    let here = tree.at(file, byte);
                    let misses_pattern = message["code"]["code"] == "E0004";
                    found.extend(if here.is_empty() || misses_pattern {
                        tree.beside(file, byte, misses_pattern)
                    } else {
                        here
                    });
                }
            }
            if found.is_empty() && !message["spans"].as_array().is_none_or(Vec::is_empty) {
                elsewhere.push(message["rendered"].as_str().unwrap_or_default().to_owned());
            }
            broken.extend(found);
        })?;
        if !is_good && broken.is_empty() {
            return Err(format!("the tree does not build:\n{}", elsewhere.join("\n")));
        }
        Ok(broken)
    }

    /// Builds all tests.
    pub(crate) fn tests(&self, tree: &Tree) -> Result<Vec<Binary>, String> {
        let mut binaries = Vec::new();
        let mut errors = String::new();
        let is_good = self.cargo(tree, &["test", "--no-run", "--lib", "--tests"], |message| {
            if message["message"]["level"] == "error" {
                errors.push_str(message["message"]["rendered"].as_str().unwrap_or_default());
            }
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
        if !is_good {
            return Err(format!("the tests do not build:\n{errors}"));
        }
        Ok(binaries)
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
