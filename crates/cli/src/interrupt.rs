//! Signals that end a command which has to tidy up first.
//!
//! SIGINT, SIGTERM and SIGHUP end what can be waited for; the command then removes what is half done and
//! leaves with the exit status that a shell shows for the signal. One that was ignored when the command was
//! started, as `nohup` has it, stays ignored.

use std::future::{Future, pending};
use std::io;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// A signal that ended a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    /// SIGHUP: the terminal has gone.
    Hangup,
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Stop {
    /// What a shell makes of an end by this signal: 128 and its number.
    pub(crate) fn exit_status(self) -> u8 {
        match self {
            Self::Hangup => 129,
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

/// The signals that end a command; from now on they do not end the process.
#[derive(Debug)]
pub(crate) struct Stops {
    hangup: Option<Signal>,
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
}

impl Stops {
    fn listen() -> Result<Self, Failure> {
        let ignored = ignored().map_err(Failure::system("cannot see which signals are ignored"))?;
        let listen = |kind: SignalKind| match ignored >> (kind.as_raw_value() - 1) & 1 {
            0 => signal(kind).map(Some).map_err(Failure::system("cannot listen for signals")),
            _ => Ok(None),
        };
        Ok(Self {
            hangup: listen(SignalKind::hangup())?,
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// What work comes to, unless a signal comes before: then the work is dropped where it waits.
    pub(crate) async fn or<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let stop = tokio::select! {
            done = work => return done,
            () = received(&mut self.hangup) => Stop::Hangup,
            () = received(&mut self.interrupt) => Stop::Interrupt,
            () = received(&mut self.terminate) => Stop::Terminate,
        };
        Err(Failure::Stopped(stop))
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}

/// The signals that this process ignores, signal 1 in bit 0 (proc_pid_status(5), `SigIgn`).
fn ignored() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Runs the work of a command that listens to signals.
pub(crate) fn run(
    work: impl AsyncFnOnce(&mut Stops) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(Failure::system("cannot start the runtime"))?;
    let done = runtime.block_on(async { work(&mut Stops::listen()?).await });
    // Nobody waits for a read of a terminal or pipe that has been given up.
    runtime.shutdown_background();
    done
}
