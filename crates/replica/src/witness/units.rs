//! Starts what runs on the volumes of a source, and stops it: systemd units and commands.
//!
//! They start in order and stop in reverse order, each within a time limit. What is started may run already, and what is
//! stopped may be stopped: both have to succeed then, as `systemctl start` and `systemctl stop` do.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;

/// One thing that runs on the volumes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unit {
    /// A unit of systemd, started and stopped by `systemctl`. It must not be enabled: no machine but the source's starts it.
    Systemd {
        /// As `systemctl` takes it: `srv-data.mount`.
        name: String,
    },
    /// Commands, each a program and its arguments. A command that leaves a process behind redirects the output of that process.
    Command {
        /// For messages.
        name: String,
        /// Starts it.
        start: Vec<String>,
        /// Stops it.
        stop: Vec<String>,
    },
}

impl Unit {
    fn name(&self) -> &str {
        match self {
            Self::Systemd { name } | Self::Command { name, .. } => name,
        }
    }
}

/// What runs on the volumes of a group, in the order in which it starts.
#[derive(Clone, Debug)]
pub struct Units {
    /// In order.
    pub units: Vec<Unit>,
    /// The group, which commands find in their environment as `LANDFAST_GROUP`.
    pub group: String,
    /// Each starts within this time. What does not is killed.
    pub start_limit: Duration,
    /// Each stops within this time. What does not is killed.
    pub stop_limit: Duration,
    /// The program `systemctl`.
    pub systemctl: PathBuf,
}

impl Units {
    /// With the time limits that systemd has.
    pub fn new(group: String, units: Vec<Unit>) -> Self {
        let (start_limit, stop_limit) = (UNIT_LIMIT, UNIT_LIMIT);
        Self { units, group, start_limit, stop_limit, systemctl: "systemctl".into() }
    }

    /// Starts all, in order. Where one does not start, it and those before it are stopped.
    ///
    /// # Errors
    ///
    /// What did not start, and why.
    pub fn start(&self) -> Result<(), UnitError> {
        for (at, unit) in self.units.iter().enumerate() {
            if let Err(error) = self.order(unit, Verb::Start) {
                // What does not stop either is said as well; the first error is what an operator has to look at.
                for error in self.stop_these(&self.units[..=at]) {
                    tracing::warn!("{error}");
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Stops all, in reverse order, whatever does not stop.
    ///
    /// # Errors
    ///
    /// What did not stop, and why.
    pub fn stop(&self) -> Result<(), Vec<UnitError>> {
        let errors = self.stop_these(&self.units);
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    fn stop_these(&self, units: &[Unit]) -> Vec<UnitError> {
        units.iter().rev().filter_map(|unit| self.order(unit, Verb::Stop).err()).collect()
    }

    fn order(&self, unit: &Unit, verb: Verb) -> Result<(), UnitError> {
        let mut command = match unit {
            Unit::Systemd { name } => {
                let mut command = Command::new(&self.systemctl);
                command.args([verb.word(), "--", name]);
                command
            }
            Unit::Command { start, stop, .. } => {
                let words = if verb == Verb::Start { start } else { stop };
                let [program, arguments @ ..] = &words[..] else { return Ok(()) };
                let mut command = Command::new(program);
                command.args(arguments).env("LANDFAST_GROUP", &self.group);
                command
            }
        };
        let limit = if verb == Verb::Start { self.start_limit } else { self.stop_limit };
        run(&mut command, limit).map_err(|cause| UnitError {
            unit: unit.name().to_owned(),
            verb,
            cause,
        })
    }
}

// The output goes to a file: a process that a command leaves behind would keep a pipe open.
fn run(command: &mut Command, limit: Duration) -> Result<(), UnitCause> {
    let output = tempfile::tempfile().map_err(UnitCause::Start)?;
    let also = output.try_clone().map_err(UnitCause::Start)?;
    let more = output.try_clone().map_err(UnitCause::Start)?;
    command.stdin(Stdio::null()).stdout(also).stderr(more);
    let mut child = command.process_group(0).spawn().map_err(UnitCause::Start)?;
    match wait(&mut child, limit).map_err(UnitCause::Start)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(UnitCause::Failed { status, said: last_words(output) }),
        None => Err(UnitCause::Slow { limit, said: last_words(output) }),
    }
}

/// How it ended; `None` if it had to be killed.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    let mut pause = Duration::from_millis(1);
    while began.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(pause.min(limit.saturating_sub(began.elapsed())));
        pause = (pause * 2).min(PAUSE_MAX);
    }
    // With all that it has started.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    child.wait()?;
    Ok(None)
}

/// The end of what was said.
fn last_words(mut output: File) -> String {
    let mut said = Vec::new();
    let len = output.metadata().map_or(0, |it| it.len());
    let read = output
        .seek(SeekFrom::Start(len.saturating_sub(SAID_MAX)))
        .and_then(|_| output.take(SAID_MAX).read_to_end(&mut said));
    match read {
        Ok(_) => String::from_utf8_lossy(&said).trim().to_owned(),
        Err(_) => String::new(),
    }
}

/// A unit that did not start or stop.
#[derive(Debug, Error)]
#[error("unit {unit} does not {verb}: {cause}")]
pub struct UnitError {
    /// Which.
    pub unit: String,
    /// What it does not.
    pub verb: Verb,
    /// Why.
    #[source]
    pub cause: UnitCause,
}

/// Why a unit did not start or stop.
#[derive(Debug, Error)]
pub enum UnitCause {
    /// Its program could not be run.
    #[error("its program cannot be run: {0}")]
    Start(#[source] io::Error),
    /// Its program failed.
    #[error("its program ended with {status}; it said: {said}")]
    Failed {
        /// How.
        status: ExitStatus,
        /// The last that it said.
        said: String,
    },
    /// Its program did not end.
    #[error("its program did not end within {limit:?} and was killed; it said: {said}")]
    Slow {
        /// The limit.
        limit: Duration,
        /// The last that it said.
        said: String,
    },
}

/// What is done with a unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verb {
    /// It starts.
    Start,
    /// It stops.
    Stop,
}

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// As long as systemd gives a unit.
const UNIT_LIMIT: Duration = Duration::from_secs(90);
/// Of what a program says, so many bytes are told.
const SAID_MAX: u64 = 1024;
const PAUSE_MAX: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    fn unit(name: &str, start: &str, stop: &str) -> Unit {
        Unit::Command { name: name.to_owned(), start: shell(start), stop: shell(stop) }
    }

    /// A unit that says what is done with it.
    fn traced(directory: &Path, name: &str) -> Unit {
        let log = directory.join("log");
        let says = |verb| format!("echo {verb} {name} $LANDFAST_GROUP >> {}", log.display());
        unit(name, &says("start"), &says("stop"))
    }

    fn units(units: Vec<Unit>) -> Units {
        Units::new("sea".to_owned(), units)
    }

    fn log(directory: &Path) -> String {
        std::fs::read_to_string(directory.join("log")).unwrap_or_default().replace('\n', ", ")
    }

    #[test]
    fn units_start_in_order_and_stop_in_reverse() {
        let directory = tempfile::tempdir().unwrap();
        let units = units(["a", "b", "c"].map(|name| traced(directory.path(), name)).to_vec());
        units.start().unwrap();
        assert_eq!(log(directory.path()), "start a sea, start b sea, start c sea, ");
        units.stop().unwrap();
        assert!(log(directory.path()).ends_with("stop c sea, stop b sea, stop a sea, "));
    }

    #[test]
    fn a_unit_that_does_not_start_is_named_and_stopped_with_those_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let fails = unit("b", "echo no such disk >&2; exit 3", "true");
        let units = units(vec![traced(at, "a"), fails, traced(at, "c")]);
        let said = units.start().unwrap_err().to_string();
        let expected =
            "unit b does not start: its program ended with exit status: 3; it said: no such disk";
        assert_eq!(said, expected);
        assert_eq!(log(at), "start a sea, stop a sea, ");
    }

    #[test]
    fn a_unit_that_does_not_stop_is_named_and_in_nobodys_way() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let busy = unit("b", "true", "echo target is busy; exit 32");
        let errors = units(vec![traced(at, "a"), busy, traced(at, "c")]).stop().unwrap_err();
        let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("unit b does not stop") && said[0].contains("busy"), "{said:?}");
        assert_eq!(log(at), "stop c sea, stop a sea, ");
    }

    #[test]
    fn a_unit_that_hangs_is_killed_with_what_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let pids = directory.path().join("pids");
        let hangs = format!("sleep 1000 & echo $! > {}; echo waiting; wait", pids.display());
        let mut units = units(vec![unit("a", &hangs, "true")]);
        units.start_limit = Duration::from_millis(300);
        let said = units.start().unwrap_err().to_string();
        assert!(said.contains("unit a does not start") && said.contains("was killed"), "{said}");
        assert!(said.contains("300ms") && said.contains("waiting"), "{said}");
        wait_until_gone(&pids);
    }

    /// Waits for the end of the process whose number the file has; its parent may not have asked for it yet.
    fn wait_until_gone(pids: &Path) {
        let pid = std::fs::read_to_string(pids).unwrap();
        let status = format!("/proc/{}/status", pid.trim());
        while std::fs::read_to_string(&status).is_ok_and(|status| !status.contains("State:\tZ")) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_unit_that_leaves_a_process_behind_has_started() {
        let directory = tempfile::tempdir().unwrap();
        let pids = directory.path().join("pids");
        let start = format!("sleep 1000 & echo $! > {}", pids.display());
        let stop = format!("kill $(cat {})", pids.display());
        let units = units(vec![unit("daemon", &start, &stop)]);
        units.start().unwrap();
        let pid = std::fs::read_to_string(&pids).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap();
        assert!(!status.contains("State:\tZ"), "{status}");
        units.stop().unwrap();
        wait_until_gone(&pids);
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let missing = Unit::Command {
            name: "database".to_owned(),
            start: vec!["/nonexistent/program".to_owned()],
            stop: Vec::new(),
        };
        let said = units(vec![missing]).start().unwrap_err().to_string();
        assert!(said.contains("database") && said.contains("No such file"), "{said}");
    }

    #[test]
    fn of_what_a_program_says_the_end_is_told() {
        let talks = unit("a", "seq 100000; echo the end; exit 1", "true");
        let said = units(vec![talks]).start().unwrap_err().to_string();
        assert!(said.ends_with("the end") && said.len() < 1200, "{}", said.len());
    }

    #[test]
    fn systemd_is_asked_as_an_operator_would() {
        let directory = tempfile::tempdir().unwrap();
        let systemctl = directory.path().join("systemctl");
        let script = format!("#!/bin/sh\necho $* >> {}\n", directory.path().join("log").display());
        std::fs::write(&systemctl, script).unwrap();
        let may_run = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&systemctl, may_run).unwrap();
        let names = ["srv-data.mount", "smbd.service"];
        let all = names.map(|name| Unit::Systemd { name: name.to_owned() }).to_vec();
        let units = Units { systemctl, ..units(all) };
        units.start().unwrap();
        units.stop().unwrap();
        let expected = "start -- srv-data.mount, start -- smbd.service, stop -- smbd.service, \
                        stop -- srv-data.mount, ";
        assert_eq!(log(directory.path()), expected);
    }
}
