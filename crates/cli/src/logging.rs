//! Logs, on standard error: whoever reads them, and whether anybody does, is nothing a server depends on.
//!
//! ```text
//!  a command:  event -------------------------> standard error; what cannot be written is gone
//!  a server:   event -> 4,096 lines -> thread -> standard error; what finds no place is gone, and counted
//! ```
//!
//! A pipe whose reader does not read, or a terminal that was stopped, would hold the thread that writes: anybody
//! who can make the server log something, with a wrong password, would hold the server.

use std::io::{self, IsTerminal as _, Write};
use std::sync::OnceLock;

use tracing::warn;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Begins to log; `RUST_LOG` overrides `verbose`, the number of `-v`.
pub(crate) fn start(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        // It would show what a password can be guessed from.
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let colours = io::stderr().is_terminal();
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    // It would say with `eprintln!` that it cannot write, which panics where that cannot be written either.
    logs.log_internal_errors(false).with_writer(Lines).init();
}

/// From now on a thread of its own writes the lines, until this is dropped: then it has at most a second for those
/// that are left.
#[derive(Debug)]
pub(crate) struct Aside {
    dropped: ErrorCounter,
    _thread: WorkerGuard,
}

impl Aside {
    /// Starts the thread. At most once in a process: after a change of user, which threads would not take part in.
    pub(crate) fn start() -> Self {
        let writer = NonBlockingBuilder::default().buffered_lines_limit(LINES_MAX).lossy(true);
        let (writer, thread) = writer.thread_name("log").finish(Stderr);
        let dropped = writer.error_counter();
        let _ = ASIDE.set(writer);
        Self { dropped, _thread: thread }
    }

    /// Says how many lines are missing, if there are.
    pub(crate) fn own_up(&self) {
        let lines = self.dropped.dropped_lines();
        if lines > 0 {
            warn!(lines, "lines of the log were dropped, as nobody took them from standard error");
        }
    }
}

/// Where lines go.
#[derive(Debug)]
struct Lines;

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        ASIDE.get().cloned().map_or(Line::Here(Stderr), Line::Aside)
    }
}

#[derive(Debug)]
enum Line {
    Here(Stderr),
    Aside(NonBlocking),
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Self::Here(here) => here.write(line),
            Self::Aside(aside) => aside.write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard error, where it can be written.
#[derive(Debug)]
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

static ASIDE: OnceLock<NonBlocking> = OnceLock::new();
/// Lines that wait to be written: a few hundred KiB.
const LINES_MAX: usize = 4096;
