//! The sample of README.md is the example `push`, and this example works.

#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

#[path = "support/fixture.rs"]
mod fixture;
#[expect(dead_code, reason = "its main is not called here")]
#[path = "../examples/push.rs"]
mod sample;

use client::Path;
use fixture::{Fixture, bytes_at};

/// The lines of a text without indentation and without empty lines.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_sample_runs_in_push_mode() {
    let fixture = Fixture::start("/var/tmp", |_| {});
    let port = fixture.running.tcp_address().port();
    let url = format!("smb://user:secret@127.0.0.1:{port}/share");
    let path = sample::push(&url, "log.dat").unwrap();
    assert!(matches!(path, Path::Push { has_flush: true, is_emulated: false, .. }), "{path}");
    let file = fixture.share.path().join("log.dat");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 1 << 20);
    assert_eq!(bytes_at(&file, 4096, 25), b"durable when this returns");
    assert_eq!(bytes_at(&file, 0, 8), 4096_u64.to_le_bytes());
}

#[test]
fn the_sample_is_in_the_readme_line_by_line() {
    let readme = include_str!("../../../README.md");
    let (_, sample) = readme.split_once("```rust\n").unwrap();
    let (sample, _) = sample.split_once("```").unwrap();
    let sample = lines(sample);
    let program = lines(include_str!("../examples/push.rs"));
    let is_part_of = |part: &[&str]| program.windows(part.len()).any(|window| window == part);
    let body = sample.iter().position(|line| line.starts_with("let ")).unwrap();
    assert!(is_part_of(&sample[..body]), "its uses");
    assert!(is_part_of(&sample[body..]), "its statements");
}
