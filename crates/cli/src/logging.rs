//! Logs, on standard error: a server does not depend on the reader of its log, nor on whether there is
//! one.
//!
//! ```text
//!   a command:  event -------------------------> standard error; a line that cannot be written is lost
//!   a server:   event -> 4,096 lines -> thread -> standard error; a line beyond those is lost, and counted
//! ```
//!
//! A pipe whose reader does not read, or a stopped terminal, would block the thread that writes: a client that
//! can make the server log something, with a wrong password, could block the server.

use std::io::{self, IsTerminal as _, Write};
use std::sync::OnceLock;

use tracing::warn;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Begins to log; `RUST_LOG` overrides `verbose`, the number of `-v`.
pub(crate) fn start(verbose: u8) {
    let default = match verbose {
        // `fuser` warns that a file system is unmounted which we have unmounted.
        0 => "warn,fuser=error",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let colours = io::stderr().is_terminal();
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    // The library would report a failed write by `eprintln!`, which panics if standard error cannot be
    // written.
    logs.log_internal_errors(false).with_writer(Lines).init();
}

/// From now on a thread of its own writes the lines, until this value is dropped: then the thread has at most a
/// second for the lines that are left.
#[derive(Debug)]
pub(crate) struct Aside {
    dropped: ErrorCounter,
    _thread: WorkerGuard,
}

impl Aside {
    /// Starts the thread. At most once in a process, and after a change of user, which would not include the
    /// thread.
    pub(crate) fn start() -> Self {
        let writer = NonBlockingBuilder::default().buffered_lines_limit(LINES_MAX).lossy(true);
        let (writer, thread) = writer.thread_name("log").finish(Stderr);
        let dropped = writer.error_counter();
        let _ = ASIDE.set(writer);
        Self { dropped, _thread: thread }
    }

    /// Reports how many lines were lost, if any.
    pub(crate) fn own_up(&self) {
        let lines = self.dropped.dropped_lines();
        if lines > 0 {
            warn!(lines, "lines of the log were dropped, as nobody took them from standard error");
        }
    }
}

/// The destination of log lines.
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

/// Standard error, as far as it can be written.
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
