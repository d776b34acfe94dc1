//! A server in this process, and the program in other processes.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod configs;
#[path = "../../../../tests/skipped.rs"]
pub(crate) mod skipped;

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use server::{Running, Server, ServerConfig, ShareConfig, Users};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A server with the share `data` for `alice` with password `secret`.
pub(crate) struct Fixture {
    pub(crate) share: TempDir,
    /// The working directory of the program.
    pub(crate) here: TempDir,
    pub(crate) running: Running,
    pub(crate) runtime: Runtime,
}

impl Fixture {
    pub(crate) fn start() -> Self {
        let (share, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let runtime = Runtime::new().unwrap();
        let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        config.shares.push(ShareConfig::new("data", share.path()));
        config.users = Users::with_passwords([("alice", "secret")]);
        let running = runtime.block_on(Server::start(config)).unwrap();
        Self { share, here, running, runtime }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("smb://alice:secret@{}/data/{path}", self.running.tcp_address())
    }

    /// A file of the share on its disk.
    pub(crate) fn remote(&self, name: &str) -> PathBuf {
        self.share.path().join(name)
    }

    pub(crate) fn local(&self, name: &str) -> PathBuf {
        self.here.path().join(name)
    }

    pub(crate) fn client(&self) -> client::blocking::Client {
        let url = self.url("").parse().unwrap();
        client::blocking::Client::connect(&url, &client::ConnectOptions::default()).unwrap()
    }

    /// The program with arguments, started in the directory of the local files.
    pub(crate) fn program(&self, arguments: &[&str]) -> Command {
        let mut command = program(arguments);
        command.current_dir(self.here.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.program(arguments).output().unwrap()
    }
}

pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfast"));
    command.args(arguments).env_remove("RUST_LOG").env_remove("LANDFAST_PASSWORD");
    command.stdin(Stdio::null());
    command
}

/// The output on standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Names in a directory, without those that the server keeps for itself.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// Waits for the effect of other processes.
pub(crate) fn until(what: &str, mut happens: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happens() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// The exit status as a shell shows it.
pub(crate) fn status_of(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap())
}

/// `landfast serve` in a process of its own, killed when this value is dropped.
pub(crate) struct Served {
    pub(crate) child: Child,
    /// The first line of its output.
    pub(crate) line: String,
    log: Arc<Mutex<Vec<u8>>>,
    reading: Option<JoinHandle<()>>,
}

impl Served {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stderr(Stdio::piped());
        Self::start_silent(command)
    }

    /// A server whose standard error goes where the command says.
    pub(crate) fn start_silent(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        drop(command);
        let mut line = String::new();
        let output = child.stdout.as_mut().unwrap();
        let mut byte = [0];
        while !line.ends_with('\n') && output.read(&mut byte).unwrap() == 1 {
            line.push(char::from(byte[0]));
        }
        let log = Arc::<Mutex<Vec<u8>>>::default();
        let into = Arc::clone(&log);
        let read = |mut errors: ChildStderr| {
            std::thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(len @ 1..) = errors.read(&mut piece) {
                    into.lock().unwrap().extend_from_slice(&piece[..len]);
                }
            })
        };
        let reading = child.stderr.take().map(read);
        Self { child, line, log, reading }
    }

    /// Its output on standard error until now.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.log.lock().unwrap()).into_owned()
    }

    /// The address of SMB.
    pub(crate) fn smb(&self) -> &str {
        let field = self.line.split_whitespace().find_map(|field| field.strip_prefix("smb="));
        field.unwrap_or_else(|| panic!("it said {:?}", self.line))
    }

    /// Ends the server, and returns all its output on standard error.
    pub(crate) fn end(mut self) -> String {
        // A kill would lose log lines that are not written yet.
        signal(&self.child, Signal::TERM);
        let _ = self.child.wait();
        self.reading.take().unwrap().join().unwrap();
        self.said()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
