//! This program as a child of a demonstration, which ends with it whatever ends that.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, set_parent_process_death_signal, test_kill_process};

use crate::failure::Failure;

/// A command line of this program, for a child of this process.
pub(super) fn command() -> Result<Command, Failure> {
    let program = std::env::current_exe().map_err(Failure::system("cannot find this program"))?;
    let mut command = Command::new(program);
    // Ctrl-C is for the demonstration: it ends its children itself, in their order.
    command.process_group(0);
    // A child would warn of emulated persistence, which the demonstration reports itself.
    command.env("RUST_LOG", "error").env(PARENT, getpid().as_raw_nonzero().to_string());
    Ok(command)
}

/// At the start of a process: if it is a child of a demonstration, it is asked to end when that has ended.
pub(crate) fn end_with_parent() {
    let parent = std::env::var(PARENT).ok().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    let Some(parent) = parent else { return };
    let is_told = set_parent_process_death_signal(Some(Signal::TERM)).is_ok();
    // It may have ended before it was asked for.
    if is_told && test_kill_process(parent).is_err() {
        let _ = rustix::process::kill_process(getpid(), Signal::TERM);
    }
}

/// The process id of the demonstration.
const PARENT: &str = "LANDFAST_DEMO_PROCESS";
