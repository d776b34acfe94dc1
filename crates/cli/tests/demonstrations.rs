//! Demonstrations that are interrupted.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use support::skipped::skip;
use support::{names, said, signal, status_of, until};

#[test]
fn a_demonstration_of_replicas_that_is_interrupted_leaves_nothing() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return skip("mounting needs root and /dev/fuse");
    }
    let base = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_landfast"));
    demo.args(["demo", "replica", "--plain", "-d", "60", "--directory"]).arg(base.path());
    let demo = demo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let opened = format!("/proc/{}/fd", demo.id());
    let writes = || {
        let files = fs::read_dir(&opened).into_iter().flatten().filter_map(Result::ok);
        files.filter_map(|it| fs::read_link(it.path()).ok()).any(|it| it.ends_with("data"))
    };
    until("the volume is written to", writes);
    signal(&demo, Signal::INT);
    let output = demo.wait_with_output().unwrap();
    assert_eq!(status_of(&output), 130, "{}", said(&output));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(base.path().to_str().unwrap()), "{mounts}");
    assert_eq!(names(base.path()), [""; 0]);
}
