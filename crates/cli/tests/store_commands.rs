//! A daemon beside shares, and the commands on its regions, as processes.
#![cfg(test)]

mod support;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
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
fn a_bench_of_a_region_that_somebody_made_asks_for_existing() {
    let site = Site::new();
    let _server = site.serve();
    site.done(&["create", "r", "--size", "1M", "--class", "volatile"], b"");
    let bytes = vec![7; 1 << 20];
    site.done(&["write", "r"], &bytes);
    let short = ["--rounds", "1", "-d", "0.01"];
    let refused = site.refused(&[&["bench", "r", "--class", "volatile"], &short[..]].concat(), b"");
    assert!(refused.contains("--existing"), "{refused}");
    assert!(site.done(&["read", "r"], b"") == bytes, "not a byte is written");
    let own = ["bench", "own", "--size", "1M", "--class", "volatile"];
    let table = site.done(&[&own, &short[..]].concat(), b"");
    assert!(String::from_utf8_lossy(&table).contains("store write"));
    let listed = site.done(&["list"], b"");
    assert!(!String::from_utf8_lossy(&listed).contains("own"), "it is removed");
    site.done(&[&["bench", "r", "--existing"], &short[..]].concat(), b"");
    assert!(site.done(&["read", "r"], b"") != bytes, "as was asked");
}

#[test]
fn a_key_file_that_is_not_there_is_an_error() {
    let site = Site::new();
    let _server = site.serve();
    site.done(&["create", "r", "--size", "1M", "--class", "volatile"], b"");
    let typo = site.path("typo.key");
    let words = |command: &[&str]| {
        let command: Vec<_> = command.iter().map(ToString::to_string).collect();
        [command, vec!["--key-file".into(), typo.to_str().unwrap().into()]].concat()
    };
    let refused = |command: &[&str], why: &str| {
        let words = words(command);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let said = site.refused(&words, b"");
        assert!(said.contains("typo.key") && said.contains(why), "{command:?}: {said}");
    };
    let pieces = site.path("other");
    let daemon = ["serve", pieces.to_str().unwrap(), "--name", "other"];
    for command in [&["token", "r"][..], &["list"], &daemon] {
        refused(command, "No such file");
        assert!(!typo.exists(), "{command:?}");
    }
    // Of another store.
    std::fs::write(&typo, "07".repeat(32)).unwrap();
    std::fs::set_permissions(&typo, PermissionsExt::from_mode(0o600)).unwrap();
    refused(&["token", "r"], "not the key of this store");
    let said = site.refused(&[&daemon[..], &["--key-file", typo.to_str().unwrap()]].concat(), b"");
    assert!(said.contains("another key"), "{said}");
    let listed = site.done(&["servers"], b"");
    assert!(!String::from_utf8_lossy(&listed).contains("other"), "no daemon has joined");
}

#[test]
fn a_daemon_takes_no_directory_with_files_of_others() {
    let site = Site::new();
    let home = site.path("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join("versions"), "my versions file").unwrap();
    std::fs::write(home.join("notes.new"), "a note").unwrap();
    let (pieces, meta) = (site.path("own"), site.path("own.meta"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let output = site.store(&meta, &["serve", &text(&home)], b"");
    assert!(
        !output.status.success() && said(&output).contains("new or empty"),
        "{}",
        said(&output)
    );
    let output = site.store(&home, &["serve", &text(&pieces)], b"");
    assert!(
        !output.status.success() && said(&output).contains("new or empty"),
        "{}",
        said(&output)
    );
    assert_eq!(std::fs::read_dir(&home).unwrap().count(), 2);
    assert_eq!(std::fs::read_to_string(home.join("versions")).unwrap(), "my versions file");
}

#[test]
fn a_server_whose_store_lies_in_a_share_does_not_start() {
    let site = Site::new();
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let share = format!("data={}", text(site.path("share")));
    let serve = |store: PathBuf, meta: PathBuf, more: &[&str]| {
        let mut command = program(&["serve", "--share", &share, "--user", "alice:secret"]);
        command.args([
            "--listen",
            "127.0.0.1:0",
            "--rdma-listen",
            "127.0.0.1:0",
            "--control",
            "off",
        ]);
        command.arg("--store").arg(store).arg("--store-meta").arg(meta).args(more);
        command.output().unwrap()
    };
    let inside = |name: &str| site.path("share").join(name);
    let key = text(inside("key"));
    for (store, meta, more) in [
        (inside("deep/pieces"), site.path("meta"), &[][..]),
        (site.path("pieces"), inside("deep/meta"), &[]),
        (site.path("pieces"), site.path("meta"), &["--store-key", &key]),
    ] {
        for check in [&["--check"][..], &[]] {
            let output = serve(store.clone(), meta.clone(), &[more, check].concat());
            let said = said(&output);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains("lies in the share \"data\""), "{said}");
            assert_eq!(std::fs::read_dir(site.path("share")).unwrap().count(), 0);
        }
    }
    let said_by =
        |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned() + &said(output);
    let output = serve(site.path("pieces"), site.path("meta"), &["--check"]);
    assert!(said_by(&output).contains("a new store with a new key"), "{}", said_by(&output));
    assert!(!site.path("meta").exists() && !site.path("pieces").exists(), "nothing is made");
    drop(site.serve());
    let missing = text(site.path("typo.key"));
    let output =
        serve(site.path("pieces"), site.path("meta"), &["--check", "--store-key", &missing]);
    assert!(!output.status.success() && said(&output).contains("typo.key"), "{}", said(&output));
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
