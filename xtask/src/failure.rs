//! What a task hands back: a tally of what it checked, or a failure that says what to do next.

use std::fmt;
use std::path::Path;

/// The result of a task that could be carried out, whatever it found.
pub(crate) type Outcome = Result<Tally, Failure>;

/// How many things a task looked at and what became of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tally {
    /// Checks that held.
    pub(crate) passed: u32,
    /// Checks that did not hold, each with its evidence.
    pub(crate) failed: Vec<String>,
    /// Checks that were not made, each with the reason.
    pub(crate) skipped: Vec<String>,
    /// One line for the summary table: sizes, rates, counts.
    pub(crate) note: String,
}

impl Tally {
    /// A task that is one check, which held.
    pub(crate) fn passed(note: impl Into<String>) -> Self {
        Self { passed: 1, note: note.into(), ..Self::default() }
    }

    /// Counts one check by its result.
    pub(crate) fn count(&mut self, name: &str, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(evidence) => self.failed.push(format!("{name}: {evidence}")),
        }
    }

    /// Adds what another task found to this one. The notes are joined.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
        if !other.note.is_empty() {
            if !self.note.is_empty() {
                self.note.push_str("; ");
            }
            self.note.push_str(&other.note);
        }
    }
}

/// A task could not be carried out. Says what went wrong and, where it is known, what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    remedy: Option<String>,
}

impl Failure {
    /// A failure described in one sentence.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: None }
    }

    /// The same failure with what was seen of it.
    pub(crate) fn evidence(mut self, seen: &str) -> Self {
        self.what.push_str(seen);
        self
    }

    /// The same failure with the next thing to try.
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Turns an I/O error into a failure that names the action and the path.
    pub(crate) fn io(action: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let place = format!("{action} {}", path.display());
        move |error| Self::new(format!("{place}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n  what to do: {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}
