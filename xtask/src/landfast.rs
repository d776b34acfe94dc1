//! Our own server and client as child processes, driven through their command line only.
//!
//! The server says on standard output where it listens, on one line:
//!
//! ```text
//! listening smb=127.0.0.1:4450 rdma=127.0.0.1:5445
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::failure::Failure;
use crate::peer::{Address, PASSWORD, SHARE, START_LIMIT, USER, free_port};
use crate::process::{Running, Step, tail};
use crate::workspace;

/// Our server, serving one directory. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Landfast {
    /// The process.
    pub(crate) running: Running,
    /// How to reach it.
    pub(crate) address: Address,
    /// Where it logs.
    pub(crate) log: PathBuf,
    _log_is_taken: File,
}

impl Landfast {
    /// Serves `directory` with `extra` arguments and waits for the line with the addresses.
    pub(crate) fn start(directory: &Path, extra: &[&str]) -> Result<Self, Failure> {
        Self::start_as(directory, [free_port()?, free_port()?], extra, |step| step)
    }

    /// The same where an earlier server listened.
    pub(crate) fn start_again(address: &Address, extra: &[&str]) -> Result<Self, Failure> {
        let rdma = address.rdma.map_or(0, |rdma| rdma.port());
        Self::start_as(&address.directory, [address.smb.port(), rdma], extra, |step| step)
    }

    /// The same on one core.
    pub(crate) fn start_on(core: usize, directory: &Path, extra: &[&str]) -> Result<Self, Failure> {
        Self::start_build_on(&workspace::landfast()?, core, directory, extra)
    }

    /// The same of another build.
    pub(crate) fn start_build_on(
        binary: &Path,
        core: usize,
        directory: &Path,
        extra: &[&str],
    ) -> Result<Self, Failure> {
        let ports = [free_port()?, free_port()?];
        let args = shared(directory);
        let args: Vec<&str> =
            args.iter().map(String::as_str).chain(extra.iter().copied()).collect();
        Self::start_step(binary, directory, ports, &args, |step| step.on_core(core))
    }

    /// With share and users from a config file that `args` name, where an earlier one listened.
    pub(crate) fn start_configured(
        directory: &Path,
        earlier: Option<&Address>,
        args: &[&str],
        placed: impl FnOnce(Step) -> Step,
    ) -> Result<Self, Failure> {
        let rdma = earlier.and_then(|address| address.rdma);
        let ports = [
            earlier.map_or_else(free_port, |address| Ok(address.smb.port()))?,
            rdma.map_or_else(free_port, |address| Ok(address.port()))?,
        ];
        Self::start_step(&workspace::landfast()?, directory, ports, args, placed)
    }

    fn start_as(
        directory: &Path,
        ports: [u16; 2],
        extra: &[&str],
        placed: impl FnOnce(Step) -> Step,
    ) -> Result<Self, Failure> {
        let args = shared(directory);
        let args: Vec<&str> =
            args.iter().map(String::as_str).chain(extra.iter().copied()).collect();
        Self::start_step(&workspace::landfast()?, directory, ports, &args, placed)
    }

    fn start_step(
        binary: &Path,
        directory: &Path,
        [smb, rdma]: [u16; 2],
        extra: &[&str],
        placed: impl FnOnce(Step) -> Step,
    ) -> Result<Self, Failure> {
        let (log, taken) = free_log("landfast-serve")?;
        let step = Step::new(binary)
            .arg("serve")
            .args(["--listen", &format!("127.0.0.1:{smb}")])
            .args(["--rdma-listen", &format!("127.0.0.1:{rdma}")])
            .args(extra);
        let mut running = placed(step).serve(&log, true)?;
        let listening = announced(&mut running, &log, parse_listening)?;
        let address =
            Address { smb: listening.smb, rdma: listening.rdma, directory: directory.to_owned() };
        Ok(Self { running, address, log, _log_is_taken: taken })
    }

    /// A thread of the server that panicked, as its log says.
    pub(crate) fn panicked(&self) -> Result<Option<String>, Failure> {
        let log = fs::read_to_string(&self.log).map_err(Failure::io("reading", &self.log))?;
        Ok(log.lines().find(|line| line.contains("panicked at")).map(str::to_owned))
    }
}

/// A log of that name which no living server writes: steps run side by side, in processes of their own. With the lock that keeps
/// it from others.
fn free_log(name: &str) -> Result<(PathBuf, File), Failure> {
    let logs = workspace::kept("logs")?;
    for number in 1..=LOGS_MAX {
        let log = logs.join(format!("{name}-{number}.log"));
        let open = OpenOptions::new().create(true).append(true).open(&log);
        let file = open.map_err(Failure::io("creating", &log))?;
        match file.try_lock() {
            Ok(()) => return Ok((log, file)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(Failure::io("locking", &log)(error)),
        }
    }
    Err(Failure::new(format!("{LOGS_MAX} servers of this tool write logs in {}", logs.display())))
}

/// More than the servers of all steps that run side by side.
const LOGS_MAX: u32 = 64;

fn shared(directory: &Path) -> [String; 4] {
    let (share, user) = (format!("{SHARE}={}", directory.display()), format!("{USER}:{PASSWORD}"));
    ["--share".to_owned(), share, "--user".to_owned(), user]
}

/// The other end of `bench --mode floor`, as a process that can be placed. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Floor {
    /// Where it answers.
    pub(crate) address: SocketAddr,
    _running: Running,
}

impl Floor {
    /// Starts it on `core`, writing to a file in `directory`.
    pub(crate) fn start_on(core: usize, directory: &Path) -> Result<Self, Failure> {
        let log = workspace::kept("logs")?.join("landfast-floor.log");
        let step = Step::new(workspace::landfast()?).args(["floor", "--directory"]).arg(directory);
        let mut running = step.on_core(core).hold_input().serve(&log, true)?;
        let address = announced(&mut running, &log, |line| line.trim().parse().ok())?;
        Ok(Self { address, _running: running })
    }
}

/// One run of `landfast bench` against any SMB server: its `--json` object.
pub(crate) fn bench(url: &str, args: &[&str]) -> Result<Value, Failure> {
    report_of(Step::new(workspace::landfast()?).args(["bench", url]).args(args))
}

/// The same with the client on one core.
pub(crate) fn bench_on(core: usize, url: &str, args: &[&str]) -> Result<Value, Failure> {
    let step = Step::new(workspace::landfast()?).args(["bench", url]).args(args);
    report_of(step.on_core(core).quiet())
}

/// One run of `landfast bench-files`, placed likewise.
pub(crate) fn bench_files_on(core: usize, url: &str, args: &[&str]) -> Result<Value, Failure> {
    let step = Step::new(workspace::landfast()?).args(["bench-files", url]).args(args);
    report_of(step.on_core(core).quiet())
}

fn report_of(step: Step) -> Result<Value, Failure> {
    let step = step.arg("--json").limit(BENCH_LIMIT);
    let shown = step.shown();
    let output = step.output()?;
    serde_json::from_str(&output).map_err(|error| {
        Failure::new(format!("`{shown}` did not print one JSON object: {error}{}", tail(&output)))
    })
}

/// A number of a bench report, such as `modes.smb.latency_us.p50`.
pub(crate) fn number(report: &Value, path: &[&str]) -> Result<f64, Failure> {
    let found = path.iter().try_fold(report, |value, name| value.get(name));
    found
        .and_then(Value::as_f64)
        .ok_or_else(|| Failure::new(format!("the bench report has no number {}", path.join("."))))
}

/// Where the server says it listens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Listening {
    smb: SocketAddr,
    rdma: Option<SocketAddr>,
}

/// Reads the line with the addresses; any other line is none of ours.
fn parse_listening(line: &str) -> Option<Listening> {
    let rest = line.trim().strip_prefix("listening ")?;
    let field = |name: &str| {
        let mut values = rest.split_whitespace().filter_map(|word| word.split_once('='));
        values.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok())
    };
    Some(Listening { smb: field("smb")?, rdma: field("rdma") })
}

fn lines(pipe: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    // Reads to the end even when nobody listens any more: a full pipe would stop the server.
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}

/// What a server says on standard output once it is ready, as `parse` understands it.
pub(crate) fn announced<T>(
    running: &mut Running,
    log: &Path,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, Failure> {
    let lines = running.stdout().map(lines).ok_or_else(|| Failure::new("no pipe"))?;
    wait_for_line(&lines, parse).map_err(|reason| {
        let text = fs::read_to_string(log).unwrap_or_default();
        Failure::new(format!("a server did not start: {reason}{}", tail(&text)))
            .remedy(format!("read {}", log.display()))
    })
}

fn wait_for_line<T>(
    lines: &Receiver<String>,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, String> {
    loop {
        match lines.recv_timeout(START_LIMIT) {
            Ok(line) => match parse(&line) {
                Some(ready) => return Ok(ready),
                None => println!("  landfast: {line}"),
            },
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("not ready within {} s", START_LIMIT.as_secs()));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err("ended before it listened".to_owned());
            }
        }
    }
}

/// Longest a run of the bench may take: it is asked for seconds.
const BENCH_LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listening_line_gives_both_addresses() {
        let listening = parse_listening("listening smb=127.0.0.1:4450 rdma=127.0.0.1:5445\n");
        let smb = "127.0.0.1:4450".parse().unwrap();
        let rdma = Some("127.0.0.1:5445".parse().unwrap());
        assert_eq!(listening, Some(Listening { smb, rdma }));
    }

    #[test]
    fn a_server_may_listen_for_smb_alone() {
        let listening = parse_listening("listening smb=127.0.0.1:4450").unwrap();
        assert_eq!(listening.rdma, None);
        assert_eq!(parse_listening("INFO listening soon"), None);
    }

    #[test]
    fn a_missing_number_is_named() {
        let report = serde_json::json!({ "modes": { "smb": { "iops": 5 } } });
        assert!(number(&report, &["modes", "smb", "iops"]).unwrap() > 4.0);
        let failure = number(&report, &["modes", "push", "iops"]).unwrap_err();
        assert!(failure.to_string().contains("modes.push.iops"));
    }
}
