//! A daemon beside shares, and the commands on its regions, as processes.
#![cfg(test)]

mod support;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use support::{Served, program, said};

struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Self {
        let site = Self(tempfile::tempdir_in("/dev/shm").unwrap());
        std::fs::create_dir(site.path("share")).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn serve(&self) -> Served {
        let share = format!("data={}", self.path("share").display());
        let (pieces, meta) = (self.path("pieces"), self.path("meta"));
        let words = ["serve", "--share", &share, "--user", "alice:secret", "--control", "off"];
        let addresses = ["--listen", "127.0.0.1:0", "--rdma-listen", "127.0.0.1:0"];
        let mut command = program(&[&words[..], &addresses].concat());
        command.arg("--store").arg(pieces).arg("--store-meta").arg(meta);
        command.args(["--store-name", "here", "--store-capacity", "64M"]);
        Served::start(command)
    }

    fn store(&self, meta: &Path, words: &[&str], input: &[u8]) -> Output {
        let mut command = program(&[&["store"][..], words].concat());
        command.env("LANDFAST_STORE", meta).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that takes no input closes it.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    fn done(&self, words: &[&str], input: &[u8]) -> Vec<u8> {
        let output = self.store(&self.path("meta"), words, input);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        output.stdout
    }

    fn refused(&self, words: &[&str], input: &[u8]) -> String {
        let output = self.store(&self.path("meta"), words, input);
        assert!(!output.status.success(), "{words:?}");
        said(&output)
    }
}

#[test]
fn a_server_whose_store_lies_in_a_share_does_not_start() {
    let site = Site::new();
    let share = format!("data={}", site.path("share").display());
    let (outside, inside) = (site.path("outside"), site.path("share/not/there/yet"));
    for (pieces, meta, key) in [
        (&inside, &outside, &outside),
        (&outside, &inside, &outside),
        (&outside, &outside, &inside),
    ] {
        let mut command = program(&["serve", "--share", &share, "--user", "alice:secret"]);
        command.args(["--listen", "127.0.0.1:0", "--rdma-listen", "127.0.0.1:0"]);
        command.args(["--control", "off", "--store"]).arg(pieces);
        command.arg("--store-meta").arg(meta).arg("--store-key").arg(key);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains("share/not/there/yet"), "{}", said(&output));
        assert!(!inside.exists() && !outside.exists(), "nothing was made");
    }
}

#[test]
fn a_server_with_a_store_beside_its_shares_has_its_regions_after_a_kill() {
    let site = Site::new();
    let server = site.serve();
    assert!(server.line.starts_with("listening "), "{}", server.line);
    site.done(&["create", "r", "--size", "1M", "--class", "volatile"], b"");
    let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    site.done(&["write", "r", "--offset", "4096"], &bytes);
    // kill -9.
    drop(server);
    let server = site.serve();
    let len = bytes.len().to_string();
    assert!(site.done(&["read", "r", "--offset", "4096", "--len", &len], b"") == bytes);
    let beyond = site.refused(&["write", "r", "--offset", "1M"], b"x");
    assert!(beyond.contains("do not fit a region of 1048576"), "{beyond}");
    let large = site.refused(&["create", "large", "--size", "1G", "--class", "volatile"], b"");
    assert!(large.contains("fits on 0 servers"), "{large}");
    let lasting = site.refused(&["write", "r", "--durable"], b"x");
    assert!(lasting.contains("nothing can be committed"), "{lasting}");
    site.done(&["free", "r"], b"");
    assert!(site.refused(&["read", "r"], b"").contains("no region r"));
    drop(server.end());
    let listed = String::from_utf8(site.done(&["servers"], b"")).unwrap();
    assert!(listed.contains("here") && listed.contains("dead or stopped"), "{listed}");
}

#[test]
fn a_wrong_place_of_metadata_shows_no_empty_store() {
    let site = Site::new();
    let wrong = site.path("mistyped");
    let output = site.store(&wrong, &["list"], b"");
    assert!(!output.status.success() && said(&output).contains("there is no store at"));
    assert!(!wrong.exists());
}

#[test]
fn the_demonstration_of_a_sort_validates_each_way_of_shuffling() {
    let words = ["demo", "sort", "--records", "20001", "--daemons", "2", "--workers", "3"];
    let output = program(&words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", said(&output));
    assert!(text.contains("20001 records") && text.contains("store, 2 daemons"), "{text}");
    assert!(text.contains("every output is valid"), "{text}");
}
