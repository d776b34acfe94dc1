//! What the server says of itself, over its control socket, and the system of its process.

use std::fmt;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use server::report::LongTurns;
use server::{Report, Status};

use crate::Siege;
use crate::honest::PATIENCE;

/// Turns that took longer than a millisecond, by command.
pub(crate) struct Turns(Vec<LongTurns>);

impl Turns {
    /// Those that came after `earlier`; the longest of all times is told of each command.
    pub(crate) fn since(mut self, earlier: &Self) -> Self {
        for row in &mut self.0 {
            let before = earlier.0.iter().find(|before| before.command == row.command);
            row.turns -= before.map_or(0, |before| before.turns);
        }
        self.0.retain(|row| row.turns > 0);
        self
    }
}

impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, LongTurns { command, turns, longest_us }) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{command}:{turns}:{longest_us}")?;
        }
        Ok(())
    }
}

impl Siege {
    /// Numbers of the server.
    pub(crate) fn status(&self) -> Status {
        self.report().counters
    }

    pub(crate) fn long_turns(&self) -> Turns {
        Turns(self.report().long_turns)
    }

    fn report(&self) -> Report {
        let mut stream = UnixStream::connect(&self.control).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"{\"landfast\":1,\"ask\":\"status\",\"rows_max\":1}\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        let mut answer: serde_json::Value = serde_json::from_str(&line).unwrap();
        serde_json::from_value(answer["status"].take()).unwrap()
    }

    /// Looks at the server until it is as wanted.
    pub(crate) fn watch(&self, what: &str, mut is_wanted: impl FnMut(&Status) -> bool) -> Status {
        let begin = Instant::now();
        loop {
            let status = self.status();
            if is_wanted(&status) {
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "{what}: {status:?}");
        }
    }

    /// Waits until nothing of a line is left.
    pub(crate) fn wait_for_end(&self, name: &str) {
        self.watch(name, |status| {
            let Status { connections, sessions, opens, locks, regions, .. } = *status;
            let Status { push_connections, jobs, answer_bytes, request_bytes, .. } = *status;
            let held = [connections, sessions, opens, locks, regions, push_connections, jobs];
            held.iter().all(|count| *count == 0) && answer_bytes == 0 && request_bytes == 0
        });
    }

    /// What the server has fitted to its descriptors, as `Limits::fit` does: files of guests, and connections of guests
    /// or strangers.
    pub(crate) fn fitted(&self) -> (usize, usize) {
        let (opens, connections) = self.descriptors();
        ((opens / 7 * 2).min(16_384), (connections / 3).min(1_024))
    }

    /// Files of one user, fitted likewise.
    pub(crate) fn user_opens_max(&self) -> usize {
        (self.descriptors().0 / 7 * 4).min(32_768)
    }

    // Those of all for files, and for connections.
    fn descriptors(&self) -> (usize, usize) {
        let descriptors = self.descriptors_max();
        let rest = descriptors - (descriptors / 4).min(8_192);
        let opens = (rest - (rest / 9 * 2).min(16_384)).min(57_344);
        (opens, rest - opens)
    }

    fn descriptors_max(&self) -> usize {
        let text = fs::read_to_string(format!("/proc/{}/limits", self.pid)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    pub(crate) fn resident_kib(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}
