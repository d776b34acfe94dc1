//! Mounts that end with the test: it runs once more in a mount namespace of its own.

use std::path::Path;
use std::process::Command;

use super::skipped::skip;

/// Whether this is the process whose mounts are its own. In the first one the test `test`, named with its modules, is
/// run again, and was good, or there can be no such process, which is said.
pub(crate) fn has_own_mounts(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let own = match rustix::process::geteuid().is_root() {
        true => &["--mount"][..],
        false => &["--user", "--map-root-user", "--mount"][..],
    };
    let can = Command::new("unshare").args(own).arg("true").status();
    if !can.is_ok_and(|status| status.success()) {
        skip("no mount namespace for this user");
        return false;
    }
    let this = std::env::current_exe().unwrap();
    let inside = Command::new("unshare")
        .args(own)
        .arg(this)
        .args(["--exact", test])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inside.stdout);
    // A name that is no test's is none that failed.
    let has_passed = inside.status.success() && said.contains("1 passed");
    let why = String::from_utf8_lossy(&inside.stderr);
    assert!(has_passed, "{test}, in a mount namespace of its own: {said}\n{why}");
    said.lines().filter_map(|line| line.strip_prefix(SKIPPED)).for_each(skip);
    false
}

/// Mounts something at a new directory.
pub(crate) fn mount(arguments: &[&str], at: &Path) {
    std::fs::create_dir_all(at).unwrap();
    run(Command::new("mount").args(arguments).arg(at));
}

/// Runs a program that has to succeed.
pub(crate) fn run(program: &mut Command) {
    let status = program.status().unwrap();
    assert!(status.success(), "{program:?}: {status}");
}

/// How a line begins by which that process says what its host lacks.
const SKIPPED: &str = "skipped: ";
const INSIDE: &str = "LANDFAST_OWN_MOUNTS";
