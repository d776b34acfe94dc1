//! The pinned cargo-mutants, built by cargo into a directory of this tool.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::process::Step;
use crate::workspace;

/// The program, which is built first if it is not there in the pinned version.
pub(super) fn installed() -> Result<PathBuf, Failure> {
    let root = workspace::kept("tools")?;
    let program = root.join("bin").join("cargo-mutants");
    let wanted = format!("cargo-mutants {VERSION}");
    let is_wanted = program.exists()
        && Step::new(&program).args(["mutants", "--version"]).quiet().output()?.trim() == wanted;
    if !is_wanted {
        let install = ["install", "cargo-mutants", "--version", VERSION, "--locked", "--root"];
        Step::new("cargo").args(install).arg(&root).builds().run()?;
    }
    Ok(program)
}

/// MIT; run as a program, and no part of the build.
const VERSION: &str = "27.1.0";
