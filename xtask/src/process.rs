//! Child processes that cannot outlive us, each shown as the command a person would type.
//!
//! Every child leads a process group of its own, so that a time limit ends `cargo test` together
//! with the test binary it started, and is started through `setpriv --pdeathsig`, so that it dies
//! when this process is killed and no destructor runs.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::failure::Failure;

/// A command to be run, with its time limit.
#[derive(Debug)]
pub(crate) struct Step {
    program: OsString,
    args: Vec<OsString>,
    envs: Vec<(String, String)>,
    secrets: Vec<(String, String)>,
    dir: Option<PathBuf>,
    limit: Option<Duration>,
    quiet: bool,
    holds_input: bool,
}

/// What a finished command left behind.
#[derive(Debug)]
pub(crate) struct Finished {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Everything it wrote to standard output, invalid UTF-8 replaced.
    pub(crate) stdout: String,
    /// Everything it wrote to standard error, unless that went straight to ours.
    pub(crate) stderr: String,
}

impl Step {
    /// A command without arguments that may take [`LIMIT_DEFAULT`].
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            envs: Vec::new(),
            secrets: Vec::new(),
            dir: None,
            limit: Some(LIMIT_DEFAULT),
            quiet: false,
            holds_input: false,
        }
    }

    /// Adds one argument.
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub(crate) fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable, which is shown with the command.
    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.envs.push((name.to_owned(), value.into()));
        self
    }

    /// Sets an environment variable whose value is not shown.
    pub(crate) fn secret_env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.secrets.push((name.to_owned(), value.into()));
        self
    }

    /// Runs in another directory than ours.
    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_owned());
        self
    }

    /// Replaces the time limit.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Marks a build, which has no time limit: how long a compiler takes is the machine's affair.
    pub(crate) fn builds(mut self) -> Self {
        self.limit = None;
        self
    }

    /// Runs on one core only.
    pub(crate) fn on_core(mut self, core: usize) -> Self {
        let program = std::mem::replace(&mut self.program, "taskset".into());
        let pinned = ["-c".into(), core.to_string().into(), program];
        self.args.splice(0..0, pinned);
        self
    }

    /// Keeps standard input open instead of empty: for programs that end with it.
    pub(crate) fn hold_input(mut self) -> Self {
        self.holds_input = true;
        self
    }

    /// Does not show the command: for questions whose answer is what matters.
    pub(crate) fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Runs to the end with our own output streams. Anything but success is a failure.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let shown = self.shown();
        let limit = self.limit;
        let mut child = self.spawn(Stdio::inherit(), Stdio::inherit())?;
        let status = child.wait(limit)?;
        succeeded(status, &shown, "")
    }

    /// Runs to the end and keeps both output streams. Any exit status is an answer.
    pub(crate) fn finish(self) -> Result<Finished, Failure> {
        let limit = self.limit;
        let mut child = self.spawn(Stdio::piped(), Stdio::piped())?;
        let stdout = child.child.stdout.take().map(collect);
        let stderr = child.child.stderr.take().map(collect);
        match child.wait(limit) {
            Ok(status) => Ok(Finished { status, stdout: joined(stdout), stderr: joined(stderr) }),
            // Of a program that hung, what it said last says where.
            Err(failure) => Err(failure.evidence(&tail(&said_by_now(stdout)))),
        }
    }

    /// Runs to the end and hands back standard output. Anything but success is a failure.
    pub(crate) fn output(self) -> Result<String, Failure> {
        let shown = self.shown();
        let finished = self.finish()?;
        let evidence = format!("{}{}", tail(&finished.stdout), tail(&finished.stderr));
        succeeded(finished.status, &shown, &evidence)?;
        Ok(finished.stdout)
    }

    /// Runs to the end, showing standard output as it comes and keeping it too.
    pub(crate) fn tee(self) -> Result<Finished, Failure> {
        let limit = self.limit;
        let mut child = self.spawn(Stdio::piped(), Stdio::inherit())?;
        let stdout = child.child.stdout.take().map(|pipe| {
            thread::spawn(move || {
                let mut kept = String::new();
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    println!("{line}");
                    kept.push_str(&line);
                    kept.push('\n');
                }
                kept
            })
        });
        let status = child.wait(limit)?;
        Ok(Finished { status, stdout: joined(stdout), stderr: String::new() })
    }

    /// Starts a server: output goes to `log`, or to a pipe where `piped` asks for it.
    pub(crate) fn serve(self, log: &Path, piped: bool) -> Result<Running, Failure> {
        let file = File::create(log).map_err(Failure::io("creating", log))?;
        let copy = file.try_clone().map_err(Failure::io("sharing", log))?;
        let stdout = if piped { Stdio::piped() } else { copy.into() };
        self.spawn(stdout, file.into())
    }

    /// The command as a person would type it.
    pub(crate) fn shown(&self) -> String {
        let mut line = String::new();
        if let Some(dir) = &self.dir {
            let _ = write!(line, "cd {} && ", quoted(&dir.to_string_lossy()));
        }
        for (name, value) in &self.envs {
            let _ = write!(line, "{name}={} ", quoted(value));
        }
        for (name, _) in &self.secrets {
            let _ = write!(line, "{name}=... ");
        }
        line.push_str(&quoted(&self.program.to_string_lossy()));
        for arg in &self.args {
            line.push(' ');
            line.push_str(&quoted(&arg.to_string_lossy()));
        }
        line
    }

    fn spawn(self, stdout: Stdio, stderr: Stdio) -> Result<Running, Failure> {
        let shown = self.shown();
        if !self.quiet {
            println!("  $ {shown}");
        }
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).arg(&self.program).args(&self.args);
        command.envs(self.envs.iter().chain(&self.secrets).map(|(name, value)| (name, value)));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        let stdin = if self.holds_input { Stdio::piped() } else { Stdio::null() };
        command.process_group(0).stdin(stdin).stdout(stdout).stderr(stderr);
        let child = command.spawn().map_err(|error| {
            Failure::new(format!("starting `{shown}` through setpriv: {error}"))
                .remedy("apt-get install util-linux")
        })?;
        Ok(Running { child, shown })
    }
}

/// A child process that is ended, with its whole group, when this value goes.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    shown: String,
}

impl Running {
    /// The process id, for reading its counters.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The pipe of standard output, once.
    pub(crate) fn stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for the end. A process still alive after `limit`, if there is one, is killed, which is a failure.
    pub(crate) fn wait(
        &mut self,
        limit: impl Into<Option<Duration>>,
    ) -> Result<ExitStatus, Failure> {
        let limit = limit.into();
        match self.wait_until(limit.map(|limit| Instant::now() + limit)) {
            Some(status) => Ok(status),
            None => {
                self.kill();
                let seconds = limit.map_or(0, |limit| limit.as_secs());
                Err(Failure::new(format!("`{}` was killed after {seconds} s", self.shown)))
            }
        }
    }

    /// Asks it to end (SIGTERM) and hands back how it did; killed if it does not within `limit`.
    pub(crate) fn stop(&mut self, limit: Duration) -> Result<ExitStatus, Failure> {
        let _ = kill_process(self.pid(), Signal::TERM);
        self.wait(limit)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid(), signal);
    }

    /// Ends the whole group at once (SIGKILL).
    pub(crate) fn kill(&mut self) {
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn wait_until(&mut self, deadline: Option<Instant>) -> Option<ExitStatus> {
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return None;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = kill_process(self.pid(), Signal::TERM);
            let _ = self.wait_until(Some(Instant::now() + STOP_GRACE));
        }
        // The group may hold children of a leader that has already gone.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The end of a long text, where the reason usually stands.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    lines[from..].iter().fold(String::new(), |shown, line| shown + "\n    | " + line)
}

/// A failure with the command and `evidence`, unless it succeeded.
pub(crate) fn succeeded(status: ExitStatus, shown: &str, evidence: &str) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("`{shown}` ended with {status}{evidence}"))
        .remedy("run that command by hand; it is complete as shown"))
}

fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

// A child of a program that was killed may hold its end of the pipe for ever.
fn said_by_now(reader: Option<thread::JoinHandle<String>>) -> String {
    let deadline = Instant::now() + STOP_GRACE;
    let is_read = |reader: &thread::JoinHandle<String>| {
        while !reader.is_finished() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        reader.is_finished()
    };
    joined(reader.filter(is_read))
}

fn joined(reader: Option<thread::JoinHandle<String>>) -> String {
    reader.and_then(|handle| handle.join().ok()).unwrap_or_default()
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+%@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Longest a command may take that sets no limit of its own and is no build.
const LIMIT_DEFAULT: Duration = Duration::from_secs(15 * 60);
/// How often a waiting parent looks; far below anything a step takes.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long a process may take to end when it is no longer wanted.
const STOP_GRACE: Duration = Duration::from_secs(3);
/// Lines of a failed command's output that are worth repeating.
const TAIL_LINES: usize = 25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_command_can_be_typed_again() {
        let step =
            Step::new("echo").arg("two words").arg("it's").env("A", "1").secret_env("P", "x");
        assert_eq!(step.shown(), r"A=1 P=... echo 'two words' 'it'\''s'");
    }

    #[test]
    fn a_pinned_command_keeps_its_arguments() {
        assert_eq!(Step::new("echo").arg("a").on_core(1).arg("b").shown(), "taskset -c 1 echo a b");
    }

    #[test]
    fn a_time_limit_ends_the_grandchildren_too() {
        let limit = Duration::from_millis(200);
        let step = Step::new("sh").args(["-c", "sleep 77 & echo $!; wait"]).quiet().limit(limit);
        let begin = Instant::now();
        step.finish().unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_failed_command_shows_the_end_of_its_output() {
        let failure = Step::new("sh").args(["-c", "echo reason >&2; exit 3"]).quiet().output();
        let text = failure.unwrap_err().to_string();
        assert!(text.contains("reason") && text.contains("exit status: 3"), "{text}");
    }
}
