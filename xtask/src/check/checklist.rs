//! The rows of docs/replica-checklist.md: numbered, and shown by tests that exist.
//!
//! ```text
//! | 17 | SR, DRBD | what is documented, as it is here | `name_of_a_test`, `name_of_another` |
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use crate::check::texts::Texts;

/// What is wrong with which row.
pub(super) fn faults(texts: &Texts) -> Vec<String> {
    let Some((_, page)) = texts.0.iter().find(|(path, _)| path == Path::new(PAGE)) else {
        return vec![format!("{PAGE} is missing")];
    };
    let tests: BTreeSet<&str> = texts.with_extension("rs").flat_map(|(_, it)| tests(it)).collect();
    let rows = page.lines().filter_map(|line| {
        let (number, row) = line.strip_prefix("| ")?.split_once(" | ")?;
        Some((number.parse::<usize>().ok()?, row))
    });
    let mut found = Vec::new();
    for (expected, (number, row)) in (1..).zip(rows) {
        if number != expected {
            found.push(format!("{PAGE}: case {number} stands where {expected} should"));
        }
        let last = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        let named: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            found.push(format!("{PAGE}: case {number} names no test"));
        }
        let missing = named.into_iter().filter(|name| !tests.contains(name));
        found.extend(missing.map(|name| format!("{PAGE}: case {number}: no test `{name}`")));
    }
    found
}

/// The functions behind `#[test]` of a source.
fn tests(source: &str) -> impl Iterator<Item = &str> {
    source.split("#[test]").skip(1).filter_map(|after| {
        let (_, name) = after.split_once("fn ")?;
        name.split('(').next()
    })
}

const PAGE: &str = "docs/replica-checklist.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_without_its_test_is_found() {
        let page =
            "| 1 | SR | this | `is_there` |\n| 3 | SR | that | `is_not` |\n| 4 | SR | no |\n";
        let source = "#[test]\nfn is_there() {}\nfn is_not() {}\n";
        let texts = [(PAGE, page), ("a.rs", source)];
        let texts = Texts(texts.map(|(path, text)| (path.into(), text.to_owned())).into());
        let found = faults(&texts);
        assert_eq!(found.len(), 4, "{found:?}");
    }
}
