//! Cells in which a server does not do what the table says.
//!
//! What is known of another server stands in a file: a line for each row and kind, `KIND ROW: REASON`, or for all
//! rows that begin so, `KIND ROW*: REASON`. A line that nothing bears out any more is reported like a difference that no line explains.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

/// In which way a cell is wrong.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    /// An open was granted that the table refuses.
    Opens,
    /// An open was refused that the table grants.
    RefusesOpen,
    /// A request was answered with success that the table refuses.
    Allows,
    /// A request was refused that the table allows.
    Refuses,
    /// Something changed on the disk though the request was refused.
    ChangesAnyway,
    /// What changed on the disk is not what the row says.
    ChangesOtherwise,
    /// Instead of an answer the connection ended.
    Disconnects,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Opens => "opens",
            Self::RefusesOpen => "refuses-open",
            Self::Allows => "allows",
            Self::Refuses => "refuses",
            Self::ChangesAnyway => "changes-anyway",
            Self::ChangesOtherwise => "changes-otherwise",
            Self::Disconnects => "disconnects",
        })
    }
}

/// All that was tried, and what was wrong.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Cells that were tried.
    pub(crate) cells: u64,
    /// Of these, how many the table says yes to.
    pub(crate) yes: u64,
    wrong: BTreeMap<(Kind, String), Vec<String>>,
}

impl Findings {
    pub(crate) fn add(&mut self, kind: Kind, row: &str, cell: String) {
        self.wrong.entry((kind, row.to_owned())).or_default().push(cell);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.cells += other.cells;
        self.yes += other.yes;
        for (key, cells) in other.wrong {
            self.wrong.entry(key).or_default().extend(cells);
        }
    }

    /// What neither the table nor the file explains, and lines of the file that explain nothing.
    /// The lines for rows of CREATE belong to one table, the others to the other.
    pub(crate) fn unexplained(&self, differences: Option<&Path>, of_creates: bool) -> Vec<String> {
        let text = differences.map(|path| fs::read_to_string(path).unwrap()).unwrap_or_default();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let known: BTreeSet<&str> = lines
            .map(|line| {
                let (what, reason) = line.rsplit_once(": ").expect("KIND ROW: REASON");
                assert!(!reason.trim().is_empty(), "no reason: {line}");
                what
            })
            .filter(|what| what.contains(" CREATE ") == of_creates)
            .collect();
        let mut used = BTreeSet::new();
        let mut said = Vec::new();
        for ((kind, row), cells) in &self.wrong {
            let key = format!("{kind} {row}");
            let explains = |line: &&&str| match line.strip_suffix('*') {
                Some(beginning) => key.starts_with(beginning),
                None => key == **line,
            };
            match known.iter().find(explains) {
                Some(line) => {
                    used.insert(*line);
                }
                None => {
                    let shown = cells.iter().take(CELLS_SHOWN).map(String::as_str);
                    let shown: Vec<_> = shown.collect();
                    let count = cells.len();
                    said.push(format!("{key} ({count} cells)\n    {}", shown.join("\n    ")));
                }
            }
        }
        said.extend(known.difference(&used).map(|line| format!("{line}: is no difference")));
        said
    }
}

/// Of each row.
const CELLS_SHOWN: usize = 6;
