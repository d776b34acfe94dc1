//! The client against Samba's smbd, which the test starts on a free port with a configuration of
//! its own.
//!
//! Needs smbd and root; without them the tests say so and pass.

#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

#[path = "../../../tests/skipped.rs"]
mod skipped;
mod support;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{Client, ClientError, ConnectOptions, OpenOptions, Protection, SmbUrl};
use smb::NtStatus;
use smb::create::CreateDisposition;
use smb::negotiate::Dialect;
use support::{break_a_lease, exercise, exercise_every_algorithm, pattern};

/// A running smbd, which ends with the test.
struct Smbd {
    process: Child,
    port: u16,
    home: tempfile::TempDir,
}

impl Smbd {
    /// Starts an smbd with further lines for the `[global]` section.
    fn start(global: &str) -> Option<Self> {
        if !Path::new("/usr/sbin/smbd").exists() || !is_root() {
            skipped::skip("needs smbd and root (apt-get install samba)");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let port = free_port();
        let root = home.path().display();
        for directory in ["share", "private", "state"] {
            fs::create_dir(home.path().join(directory)).unwrap();
        }
        let config = format!(
            "[global]\nworkgroup = WG\nsecurity = user\nsmb ports = {port}\ninterfaces = 127.0.0.1\n\
             bind interfaces only = yes\nserver min protocol = SMB2_02\nlog file = {root}/log\n\
             log level = 0\nprivate dir = {root}/private\nlock directory = {root}/state\n\
             state directory = {root}/state\ncache directory = {root}/state\n\
             pid directory = {root}/state\nncalrpc dir = {root}/state/ncalrpc\n\
             passdb backend = tdbsam:{root}/private/passdb.tdb\nload printers = no\n\
             disable spoolss = yes\nkernel oplocks = no\n{global}\n\
             [share]\npath = {root}/share\nread only = no\n"
        );
        let file = home.path().join("smb.conf");
        fs::write(&file, config).unwrap();
        let mut password = Command::new("smbpasswd")
            .arg("-c")
            .arg(&file)
            .args(["-s", "-a", "root"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = password.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, b"secret\nsecret\n").unwrap();
        drop(input);
        assert!(password.wait().unwrap().success());
        let process = Command::new("/usr/sbin/smbd")
            .args(["--foreground", "--no-process-group", "--configfile"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // When smbd ends, it signals its whole process group: that must not be the group of the
            // test.
            .process_group(0)
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "smbd does not listen");
            std::thread::yield_now();
        }
        Some(Self { process, port, home })
    }

    fn url(&self, password: &str) -> SmbUrl {
        format!("smb://root:{password}@127.0.0.1:{}/share", self.port).parse().unwrap()
    }

    async fn client(&self, options: &ConnectOptions) -> Client {
        Client::connect(&self.url("secret"), options).await.unwrap()
    }
}

impl Drop for Smbd {
    fn drop(&mut self) {
        // smbd ends its children on SIGTERM, but not when it is killed.
        let id = self.process.id().to_string();
        let _ = Command::new("kill").arg(id).status();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

#[tokio::test]
async fn every_dialect_works_signed_plain_and_encrypted() {
    let Some(smbd) = Smbd::start("server signing = auto") else { return };
    for dialect in [
        Dialect::SMB_2_0_2,
        Dialect::SMB_2_1,
        Dialect::SMB_3_0,
        Dialect::SMB_3_0_2,
        Dialect::SMB_3_1_1,
    ] {
        for signing in [Protection::IfRequired, Protection::Required] {
            let options =
                ConnectOptions { dialects: vec![dialect], signing, ..ConnectOptions::default() };
            let client = smbd.client(&options).await;
            assert_eq!(client.negotiated().dialect, dialect);
            assert_eq!(client.is_protected(), signing == Protection::Required);
            exercise(&client).await;
        }
        if dialect < Dialect::SMB_3_0 {
            continue;
        }
        let encryption = Protection::Required;
        let options =
            ConnectOptions { dialects: vec![dialect], encryption, ..ConnectOptions::default() };
        let client = smbd.client(&options).await;
        assert!(client.is_encrypted());
        exercise(&client).await;
    }
}

#[tokio::test]
async fn every_cipher_and_every_signing_algorithm_of_3_1_1_works() {
    let Some(smbd) = Smbd::start("") else { return };
    exercise_every_algorithm(async |options| smbd.client(options).await).await;
}

#[tokio::test]
async fn a_client_signs_or_encrypts_if_the_server_requires_it() {
    for global in ["smb encrypt = required", "server signing = mandatory"] {
        let Some(smbd) = Smbd::start(global) else { return };
        let signing = Protection::IfRequired;
        let client = smbd.client(&ConnectOptions { signing, ..ConnectOptions::default() }).await;
        assert!(client.is_protected());
        exercise(&client).await;
    }
}

#[tokio::test]
async fn a_wrong_password_is_a_logon_failure() {
    let Some(smbd) = Smbd::start("") else { return };
    let error = Client::connect(&smbd.url("wrong"), &ConnectOptions::default()).await.unwrap_err();
    assert_eq!(error.status(), Some(NtStatus::LOGON_FAILURE));
}

#[tokio::test]
async fn a_guest_logon_fails_where_signing_is_required() {
    let Some(smbd) = Smbd::start("map to guest = bad user\nguest account = root") else { return };
    let url = format!("smb://nobody-known:x@127.0.0.1:{}/share", smbd.port).parse().unwrap();
    let error = Client::connect(&url, &ConnectOptions::default()).await.unwrap_err();
    assert!(matches!(error, ClientError::ConfigSigning), "{error}");
}

#[tokio::test]
async fn many_requests_share_one_connection() {
    let Some(smbd) = Smbd::start("") else { return };
    let client = smbd.client(&ConnectOptions::default()).await;
    let data = std::sync::Arc::new(pattern(20 << 20));
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..4 {
        let (client, data) = (client.clone(), data.clone());
        tasks.spawn(async move {
            let options = OpenOptions::create();
            let file = client.open(&format!("file{index}"), &options).await.unwrap();
            file.write_at(0, &data).await.unwrap();
            let mut out = vec![0; data.len()];
            assert_eq!(file.read_at(0, &mut out).await.unwrap(), data.len());
            assert!(out == **data);
            file.close().await.unwrap();
        });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome.unwrap();
    }
    for index in 0..4 {
        let written = fs::read(smbd.home.path().join(format!("share/file{index}"))).unwrap();
        assert!(written == **data);
    }
}

#[tokio::test]
async fn a_second_client_breaks_the_lease_of_the_first() {
    let Some(smbd) = Smbd::start("") else { return };
    let options = ConnectOptions::default();
    break_a_lease(smbd.client(&options).await, smbd.client(&options).await).await;
}

#[tokio::test]
async fn an_abandoned_request_does_no_harm() {
    let Some(smbd) = Smbd::start("") else { return };
    let client = smbd.client(&ConnectOptions::default()).await;
    for _ in 0..200 {
        // Dropped at its first await, mostly with the request in flight.
        let opening = client.stat("share");
        let _ = tokio::time::timeout(Duration::ZERO, opening).await;
    }
    exercise(&client).await;
}

#[tokio::test]
async fn the_end_of_a_server_fails_open_and_later_requests() {
    let Some(smbd) = Smbd::start("") else { return };
    let client = smbd.client(&ConnectOptions::default()).await;
    let file = client.open("file", &OpenOptions::create()).await.unwrap();
    drop(smbd);
    let mut last = file.write_at(0, b"late").await;
    for _ in 0..2 {
        last = file.write_at(0, b"later").await;
    }
    assert!(matches!(last, Err(ClientError::Connection(_))), "{last:?}");
}

#[test]
fn the_blocking_client_needs_no_runtime_of_the_caller() {
    let Some(smbd) = Smbd::start("") else { return };
    let url = smbd.url("secret");
    let client = client::blocking::Client::connect(&url, &ConnectOptions::default()).unwrap();
    let file = client.open("file", &OpenOptions::create()).unwrap();
    file.write_at(0, b"hello").unwrap();
    file.flush().unwrap();
    let mut out = [0; 9];
    assert_eq!(file.read_at(0, &mut out).unwrap(), 5);
    file.close().unwrap();
    assert_eq!(client.list("").unwrap().len(), 1);
    let exclusive =
        OpenOptions { disposition: CreateDisposition::CREATE, ..OpenOptions::read_write() };
    assert_eq!(
        client.open("file", &exclusive).unwrap_err().status(),
        Some(NtStatus::OBJECT_NAME_COLLISION)
    );
}
