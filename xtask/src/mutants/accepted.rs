//! The list of mutants that no test has to find, each with its reason.
//!
//! ```text
//!   crates/iwarp/src/a.rs | replace < with <= in len | both are the same for an even length
//!   file                    the change, without its line     why it is accepted
//! ```
//!
//! A change that a file has several times has a line for each that is accepted.

use std::collections::BTreeMap;

use crate::failure::Failure;
#[cfg(test)]
use crate::workspace;

/// The accepted mutants, and how many there are of each.
#[derive(Debug, Default)]
pub(super) struct Accepted(BTreeMap<(String, String), usize>);

impl Accepted {
    /// The list that is checked in.
    pub(super) fn read() -> Result<Self, Failure> {
        Self::parse(LIST)
    }

    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let mut accepted = Self::default();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let wrong = || Failure::new(format!("not `file | change | reason`: {line}"));
            // A change may have the separator in it: an operator, or patterns.
            let parts = line.split_once(" | ").and_then(|(file, rest)| {
                let (change, reason) = rest.rsplit_once(" | ")?;
                (!reason.trim().is_empty()).then_some((file, change))
            });
            let Some((file, change)) = parts else {
                return Err(wrong());
            };
            *accepted.0.entry((file.to_owned(), change.to_owned())).or_default() += 1;
        }
        Ok(accepted)
    }

    /// Those of `missed` that are not on the list.
    pub(super) fn without(&self, missed: &[String]) -> Vec<String> {
        let mut left = self.0.clone();
        let mut unlisted = missed.to_vec();
        unlisted.retain(|mutant| {
            let Some(count) = key(mutant).and_then(|key| left.get_mut(&key)) else { return true };
            let is_listed = *count > 0;
            *count -= usize::from(is_listed);
            !is_listed
        });
        unlisted
    }
}

// `file:line:column: change` as the file and the change.
fn key(mutant: &str) -> Option<(String, String)> {
    let (place, change) = mutant.split_once(": ")?;
    Some((place.split(':').next()?.to_owned(), change.to_owned()))
}

const LIST: &str = include_str!("accepted.txt");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_accepted_as_often_as_it_is_listed() {
        let accepted = Accepted::parse("# why\n\na.rs | one | it is equal, really\n").unwrap();
        let missed = ["a.rs:1:2: one", "a.rs:9:9: one", "b.rs:1:2: one"].map(str::to_owned);
        assert_eq!(accepted.without(&missed), missed[1..]);
    }

    #[test]
    fn an_accepted_change_may_be_one_of_an_or() {
        let accepted =
            Accepted::parse("a.rs | replace | with ^ in f | no bit is in both\n").unwrap();
        assert!(accepted.without(&["a.rs:1:2: replace | with ^ in f".to_owned()]).is_empty());
    }

    #[test]
    fn a_line_without_a_reason_is_refused() {
        for line in ["a.rs | one", "a.rs | one | ", "a.rs"] {
            assert!(Accepted::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn each_listed_mutant_is_in_a_file_that_exists() {
        for (file, change) in Accepted::read().unwrap().0.into_keys() {
            assert!(workspace::root().join(&file).is_file(), "{file}: {change}");
        }
    }
}
