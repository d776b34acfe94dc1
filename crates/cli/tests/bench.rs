//! The files in which `landfast bench` measures; it leaves none behind.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use std::process::Stdio;

use rustix::process::Signal;
use support::{Fixture, names, said, signal, status_of, until};

const BRIEF: [&str; 4] = ["--mode", "smb", "--file-size", "64K"];

fn bench(fixture: &Fixture, seconds: &str, more: &[&str]) -> std::process::Command {
    let url = fixture.url("b");
    fixture.program(&[&["bench", &url], &BRIEF[..], &["-d", seconds], more].concat())
}

#[test]
fn a_bench_writes_to_no_existing_file() {
    let fixture = Fixture::start();
    std::fs::write(fixture.remote("b.smb.1"), "mine").unwrap();
    let refused = bench(&fixture, "0.2", &["-t", "2"]).output().unwrap();
    assert_eq!(status_of(&refused), 1);
    let said = said(&refused);
    assert!(said.contains("b.smb.1: it is there already") && said.contains("--existing"), "{said}");
    assert_eq!(names(fixture.share.path()), ["b.smb.1"], "what the other thread has made has gone");
    assert_eq!(std::fs::read(fixture.remote("b.smb.1")).unwrap(), b"mine");
}

#[test]
fn a_bench_leaves_no_file_behind() {
    let fixture = Fixture::start();
    for _ in 0..2 {
        let output = bench(&fixture, "0.2", &[]).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        assert!(names(fixture.share.path()).is_empty());
    }
}

#[test]
fn a_bench_with_existing_measures_in_the_file_and_keeps_it() {
    let fixture = Fixture::start();
    let missing = bench(&fixture, "0.2", &["--existing"]).output().unwrap();
    assert!(!missing.status.success() && said(&missing).contains("no such file"));
    std::fs::write(fixture.remote("b.smb.0"), [7; 64 << 10]).unwrap();
    let output = bench(&fixture, "0.2", &["--existing"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(names(fixture.share.path()), ["b.smb.0"]);
    let bytes = std::fs::read(fixture.remote("b.smb.0")).unwrap();
    assert!(bytes.len() == 64 << 10 && bytes.iter().any(|byte| *byte != 7));
}

#[test]
fn an_interrupted_bench_leaves_no_file_behind() {
    let fixture = Fixture::start();
    let mut command = bench(&fixture, "600", &[]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("it makes its file", || !names(fixture.share.path()).is_empty());
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(status_of(&output), 130, "{}", said(&output));
    assert!(names(fixture.share.path()).is_empty());
}

#[test]
fn an_interrupted_bench_of_small_files_leaves_nothing_behind() {
    let fixture = Fixture::start();
    let mut command = fixture.program(&["bench-files", &fixture.url("d"), "--count", "1000000"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("it makes files", || fixture.remote("d/file-0000007.dat").exists());
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(status_of(&output), 130, "{}", said(&output));
    assert!(names(fixture.share.path()).is_empty());
}
