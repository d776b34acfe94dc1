//! Samba's smbclient against a running server: real sockets, real files.
//!
//! Skipped with a message where smbclient is not installed.

use std::path::Path;
use std::process::{Command, Output};

use server::{Running, Server, ServerConfig, ShareConfig, Users};

use crate::support::skipped;

struct Fixture {
    dir: tempfile::TempDir,
    running: Running,
    _runtime: tokio::runtime::Runtime,
}

impl Fixture {
    /// A server with one share, or `None` when there is no client to test it with.
    fn start() -> Option<Self> {
        Self::start_with(|_| {})
    }

    fn start_with(change: impl FnOnce(&mut ServerConfig)) -> Option<Self> {
        if Command::new("smbclient").arg("--version").output().is_err() {
            skipped::skip("smbclient is not installed (apt-get install smbclient)");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("share")).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        config.shares.push(ShareConfig::new("data", dir.path().join("share")));
        config.users = Users::with_passwords([("user", "secret")]);
        change(&mut config);
        let running = runtime.block_on(Server::start(config)).unwrap();
        Some(Self { dir, running, _runtime: runtime })
    }

    fn share(&self) -> std::path::PathBuf {
        self.dir.path().join("share")
    }

    fn run(&self, options: &[&str], commands: &str) -> Output {
        let port = self.running.tcp_address().port().to_string();
        Command::new("smbclient")
            .args(["//127.0.0.1/data", "-p", &port, "-U", "user%secret"])
            .args(options)
            .args(["-c", commands])
            .current_dir(self.dir.path())
            .output()
            .unwrap()
    }

    fn succeed(&self, options: &[&str], commands: &str) -> String {
        let output = self.run(options, commands);
        let text = text(&output);
        assert!(output.status.success() && !text.contains("NT_STATUS"), "{commands}: {text}");
        text
    }
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| u8::try_from(index * 7 % 251).unwrap()).collect()
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn files_of_every_size_go_there_and_back_signed() {
    let Some(fixture) = Fixture::start() else { return };
    for len in [0, 1, 4095, 65_536, 1_000_001, 20 << 20] {
        let bytes = pattern(len);
        write(&fixture.dir.path().join("up"), &bytes);
        fixture.succeed(&["--client-protection=sign"], "put up there; get there down");
        assert!(std::fs::read(fixture.share().join("there")).unwrap() == bytes, "{len} up");
        assert!(std::fs::read(fixture.dir.path().join("down")).unwrap() == bytes, "{len} down");
    }
}

#[test]
fn files_of_every_size_go_there_and_back_encrypted() {
    let Some(fixture) = Fixture::start_with(|config| config.encrypt_required = true) else {
        return;
    };
    for len in [0, 1, 65_537, 5_000_000] {
        let bytes = pattern(len);
        write(&fixture.dir.path().join("up"), &bytes);
        fixture.succeed(&["--client-protection=encrypt"], "put up there; get there down");
        assert!(std::fs::read(fixture.dir.path().join("down")).unwrap() == bytes, "{len}");
    }
}

#[test]
fn every_dialect_lists_puts_and_gets() {
    let Some(fixture) = Fixture::start() else { return };
    write(&fixture.dir.path().join("up"), b"hello");
    for dialect in ["SMB2_02", "SMB2_10", "SMB3_00", "SMB3_02", "SMB3_11"] {
        let options = ["-m", dialect, "--option=client min protocol=SMB2_02"];
        let listing = fixture.succeed(&options, &format!("put up {dialect}; ls; get {dialect} x"));
        assert!(listing.contains(dialect), "{dialect}: {listing}");
        assert_eq!(std::fs::read(fixture.dir.path().join("x")).unwrap(), b"hello");
    }
}

#[test]
fn a_client_that_begins_with_smb1_is_led_to_smb2() {
    let Some(fixture) = Fixture::start() else { return };
    let options = ["--option=client min protocol=NT1", "-m", "SMB3_11"];
    fixture.succeed(&options, "ls");
}

#[test]
fn directories_are_made_renamed_and_removed() {
    let Some(fixture) = Fixture::start() else { return };
    write(&fixture.dir.path().join("up"), b"hello");
    fixture.succeed(&[], "mkdir a; mkdir a\\b; cd a\\b; put up f; rename f g; cd \\; rename a c");
    assert_eq!(std::fs::read(fixture.share().join("c/b/g")).unwrap(), b"hello");
    let refused = text(&fixture.run(&[], "rmdir c"));
    assert!(refused.contains("NT_STATUS_DIRECTORY_NOT_EMPTY"), "{refused}");
    fixture.succeed(&[], "del C\\B\\G; rmdir c\\b; rmdir c");
    assert_eq!(std::fs::read_dir(fixture.share()).unwrap().count(), 0);
}

#[test]
fn a_thousand_names_are_listed_once_each() {
    let Some(fixture) = Fixture::start() else { return };
    for index in 0..1000 {
        write(&fixture.share().join(format!("file-{index:04}-with-a-longer-name")), b"");
    }
    let listing = fixture.succeed(&[], "ls");
    assert_eq!(listing.matches("with-a-longer-name").count(), 1000);
}

#[test]
fn a_wrong_password_and_an_unknown_user_are_told_the_same() {
    let Some(fixture) = Fixture::start() else { return };
    for user in ["user%wrong", "nobody%secret"] {
        let refused = text(&fixture.run(&["-U", user], "ls"));
        assert!(refused.contains("NT_STATUS_LOGON_FAILURE"), "{user}: {refused}");
    }
    assert_eq!(fixture.running.status().logons_failed, 2);
}

#[test]
fn paths_do_not_leave_the_share() {
    let Some(fixture) = Fixture::start() else { return };
    write(&fixture.dir.path().join("outside"), b"private");
    std::os::unix::fs::symlink("../outside", fixture.share().join("link")).unwrap();
    let refused = text(&fixture.run(&[], "get link stolen"));
    assert!(refused.contains("NT_STATUS_ACCESS_DENIED"), "{refused}");
    fixture.run(&[], "get ..\\outside stolen");
    assert!(!fixture.dir.path().join("stolen").exists());
}

#[test]
fn an_encrypted_share_is_closed_to_others() {
    let Some(fixture) = Fixture::start_with(|config| config.shares[0].encrypt_required = true)
    else {
        return;
    };
    write(&fixture.dir.path().join("up"), b"hello");
    // A 3.x client is told to encrypt and does; an older one cannot.
    fixture.succeed(&["-m", "SMB3_11"], "put up there");
    let refused = text(&fixture.run(&["-m", "SMB2_10"], "ls"));
    assert!(refused.contains("NT_STATUS_ACCESS_DENIED"), "{refused}");
}

#[test]
fn nothing_is_left_open_when_clients_are_gone() {
    let Some(fixture) = Fixture::start() else { return };
    write(&fixture.dir.path().join("up"), &pattern(100_000));
    fixture.succeed(&[], "put up there; get there down; ls");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    loop {
        let status = fixture.running.status();
        let gone = (status.connections, status.sessions, status.opens, status.leases);
        if gone == (0, 0, 0, 0) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{status:?}");
        std::thread::yield_now();
    }
}
