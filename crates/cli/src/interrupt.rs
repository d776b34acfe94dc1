//! Signals that end a command which has to tidy up first.
//!
//! SIGINT, SIGTERM and SIGHUP end what can be waited for; the command then removes what is half done and
//! leaves with the exit status that a shell shows for the signal.

use std::future::Future;

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
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Stops {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::system("cannot listen for signals"));
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
            _ = self.hangup.recv() => Stop::Hangup,
            _ = self.interrupt.recv() => Stop::Interrupt,
            _ = self.terminate.recv() => Stop::Terminate,
        };
        Err(Failure::Stopped(stop))
    }
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
