//! The extension in Python's SQLite and in the shell: crashes, faults, several processes. The work is done by
//! tests/databases/sqlite_check.py.

#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The extension that was built for this test.
fn extension() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let name = "liblandfast_sqlite.so";
    let found = here.ancestors().skip(1).map(|dir| dir.join(name)).find(|path| path.exists());
    found.expect("cargo builds the extension before its tests")
}

fn check(arguments: &[&str]) {
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/databases/sqlite_check.py");
    // The system's: others are often built without extensions.
    let mut python = Command::new("/usr/bin/python3");
    let done = python.arg(script).arg(extension()).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    println!("{said}");
}

#[test]
fn two_processes_with_conflicting_transactions_are_serialisable_despite_kills() {
    check(&["storm", "--place", "local", "--seconds", "5"]);
}

#[test]
fn a_killed_writer_loses_no_acknowledged_transaction() {
    check(&["kills", "--rounds", "6"]);
}

#[test]
fn a_reader_of_another_process_sees_whole_transactions_without_syncs() {
    check(&["readers", "--transactions", "3000"]);
}

#[test]
fn a_fault_at_any_call_leaves_the_database_sound() {
    check(&["faults", "--calls", "120"]);
}

#[test]
fn the_shell_opens_a_database_with_its_log() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().display();
    let shell = |uri: &str, sql: &str| {
        let load = format!(".load {}", extension().display());
        let open = format!(".open {uri}");
        let mut shell = Command::new("sqlite3");
        let done = shell.args(["-cmd", &load, "-cmd", &open, ":memory:", sql]).output().unwrap();
        (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let uri = format!("file:{path}/a.db?vfs=landfast&log={path}/a.log&emulate=1");
    let made =
        "pragma journal_mode=wal; create table t(x); insert into t values(7); pragma landfast;";
    let (said, complaint) = shell(&uri, made);
    assert!(
        said.starts_with("wal\n") && said.contains("persistence EMULATED"),
        "{said}{complaint}"
    );
    assert_eq!(shell(&uri, "select x from t;").0, "7\n");
    // After a proper end every SQLite reads the database.
    let mut plain = Command::new("sqlite3");
    let plain = plain.arg(format!("{path}/a.db")).arg("select x from t").output().unwrap();
    assert_eq!(plain.stdout, b"7\n");
    let wrong = format!("file:{path}/a.db?vfs=landfast&log_size=1");
    let (said, complaint) = shell(&wrong, "select x from t;");
    assert!(said.is_empty() && complaint.contains("unable to open"), "{said}{complaint}");
}
