//! Signals that end a command which has to tidy up first.
//!
//! SIGINT, SIGTERM and SIGHUP end the work of a command; the command then removes its unfinished files and
//! exits with the status that a shell shows for the signal. A signal that was ignored when the command was
//! started, as by `nohup`, stays ignored.

use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use tokio::runtime::{Builder, Runtime};
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
    /// The status that a shell shows for this signal: 128 and its number.
    pub(crate) fn exit_status(self) -> u8 {
        match self {
            Self::Hangup => 129,
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

/// The signals that end a command; from now on they do not end the process. Once one has ended the work, the next
/// ends the process: what is tidied up may wait for a server.
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

    /// The outcome of the work, unless a signal comes first: then the work is dropped at its next
    /// await.
    pub(crate) async fn or<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            done = work => done,
            stop = self.received() => {
                self.end_with_the_next();
                Err(Failure::Stopped(stop))
            }
        }
    }

    /// The outcome of a step that is not to be cut short; the second signal does all the same. `what` is said at the
    /// first.
    pub(crate) async fn unless_twice<T>(
        &mut self,
        what: &str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut work = pin!(work);
        tokio::select! {
            done = &mut work => return done,
            _ = self.received() => tracing::warn!("{what}; a second signal ends it all the same"),
        }
        tokio::select! {
            done = work => done,
            stop = self.received() => Err(Failure::Asked(stop)),
        }
    }

    fn end_with_the_next(&mut self) {
        let none = Self { hangup: None, interrupt: None, terminate: None };
        let mut all = std::mem::replace(self, none);
        tokio::spawn(async move { end(all.received().await) });
    }

    /// The next signal.
    pub(crate) async fn received(&mut self) -> Stop {
        tokio::select! {
            () = received(&mut self.hangup) => Stop::Hangup,
            () = received(&mut self.interrupt) => Stop::Interrupt,
            () = received(&mut self.terminate) => Stop::Terminate,
        }
    }
}

/// A write beyond the limit of `ulimit -f` is an error of that write from now on, and does not end the process: whoever asks a
/// server for it would end it for all others. Programs that this one starts are as they would be.
pub(crate) fn outlive_file_size_limit() {
    // The handler stays when the runtime has gone. Without a runtime no command would go far.
    if let Ok(runtime) = Builder::new_current_thread().enable_io().build() {
        let _entered = runtime.enter();
        let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
    }
}

/// Tells work that checks at times whether a signal has asked it to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked(Arc<OnceLock<Stop>>);

impl Asked {
    /// Returns at once while no signal came.
    ///
    /// # Errors
    /// A signal came.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.0.get().map_or(Ok(()), |stop| Err(Failure::Asked(*stop)))
    }
}

/// Ends the process as a second signal does.
#[expect(clippy::exit, reason = "the work does not end by itself, as the first signal asked")]
pub(crate) fn end(stop: Stop) -> ! {
    std::process::exit(stop.exit_status().into())
}

/// Runs work that checks at times whether a signal has asked it to end. A second signal ends the
/// process.
pub(crate) fn watch<T>(work: impl FnOnce(&Asked) -> Result<T, Failure>) -> Result<T, Failure> {
    let asked = Asked::default();
    let runtime = runtime()?;
    let mut stops = runtime.block_on(async { Stops::listen() })?;
    let noted = asked.clone();
    runtime.spawn(async move {
        // This is the only place that sets it.
        let _ = noted.0.set(stops.received().await);
        end(stops.received().await);
    });
    let done = work(&asked);
    runtime.shutdown_background();
    done
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

/// Runs the work of a command that reacts to signals.
pub(crate) fn run(
    work: impl AsyncFnOnce(&mut Stops) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let runtime = runtime()?;
    let done = runtime.block_on(async { work(&mut Stops::listen()?).await });
    // The program does not wait for an abandoned read of a terminal or pipe.
    runtime.shutdown_background();
    done
}

fn runtime() -> Result<Runtime, Failure> {
    let mut builder = Builder::new_multi_thread();
    let built = builder.worker_threads(1).enable_all().build();
    built.map_err(Failure::system("cannot start the runtime"))
}
