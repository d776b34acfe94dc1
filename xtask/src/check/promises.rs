//! The rows of SPECIFICATION.md: short, in order, and with proofs that exist.
//!
//! ```text
//! | D4a | promise | bound | `name_of_a_test`, `rdma/tests/engines/deferred.rs`, `xtask kill9`, **pending** |
//!   ^ letter of the section, number, letter of a later row        ^ below crates/
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use crate::check::texts::Texts;

/// What is wrong with which row.
pub(super) fn faults(texts: &Texts) -> Vec<String> {
    let Some((_, page)) = texts.0.iter().find(|(path, _)| path == Path::new(PAGE)) else {
        return vec![format!("{PAGE} is missing")];
    };
    let proofs = Proofs::of(texts);
    let mut found = Vec::new();
    let mut before = None;
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #")) {
        let length = line.chars().count();
        if length > ROW_MAX {
            found.push(format!("{PAGE}: {line}: {length} characters, {ROW_MAX} at most"));
        }
        let Some(row) = Row::parse(line) else {
            found.push(format!("{PAGE}: {line}: no row of number, promise, bound and proof"));
            continue;
        };
        if before.is_some_and(|before| row.place.follows_wrongly(before)) {
            found.push(format!("{PAGE}: {}: out of order", row.name));
        }
        before = Some(row.place);
        let missing = row.missing(&proofs).into_iter();
        found.extend(missing.map(|proof| format!("{PAGE}: {}: no {proof}", row.name)));
    }
    found
}

/// One promise.
struct Row<'a> {
    name: &'a str,
    place: Place,
    proof: &'a str,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let cells = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim);
        let [name, _promise, _bound, proof] = cells.collect::<Vec<_>>()[..] else { return None };
        Some(Self { name, place: Place::parse(name)?, proof })
    }

    /// The proofs it names that do not exist.
    fn missing(&self, proofs: &Proofs<'_>) -> Vec<String> {
        if self.proof.is_empty() {
            return vec!["proof, not even **pending**".to_owned()];
        }
        // Every second piece between backticks is code.
        let named = self.proof.split('`').skip(1).step_by(2);
        let named = named.filter(|name| !COMMANDS.iter().any(|start| name.starts_with(start)));
        named.flat_map(alternatives).filter(|name| !proofs.have(name)).collect()
    }
}

/// Where a row belongs: `D4a` is section D, number 4, and behind `D4`.
#[derive(Clone, Copy)]
struct Place {
    section: char,
    in_section: (u32, Option<char>),
}

impl Place {
    fn parse(name: &str) -> Option<Self> {
        let section = name.chars().next().filter(char::is_ascii_uppercase)?;
        let rest = name.strip_prefix(section)?;
        let number = rest.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let mut later = rest.strip_prefix(number)?.chars();
        let in_section = (number.parse().ok()?, later.next());
        later.next().is_none().then_some(Self { section, in_section })
    }

    fn follows_wrongly(self, before: Self) -> bool {
        self.section == before.section && self.in_section <= before.in_section
    }
}

/// What a row can name as its proof: a function, or a file with a test in it or an example.
struct Proofs<'a> {
    functions: BTreeSet<&'a str>,
    files: BTreeSet<&'a Path>,
}

impl<'a> Proofs<'a> {
    fn of(texts: &'a Texts) -> Self {
        let sources = texts.with_extension("rs").flat_map(|(_, text)| text.split("fn ").skip(1));
        let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let functions = sources.filter_map(|rest| rest.split(is_end).next()).collect();
        let proves = |path: &Path, text: &str| {
            TESTS.iter().any(|mark| text.contains(mark)) || path.iter().any(|p| p == "examples")
        };
        let files = texts.with_extension("rs").filter(|(path, text)| proves(path, text));
        Self { functions, files: files.map(|(path, _)| path.as_path()).collect() }
    }

    fn have(&self, name: &str) -> bool {
        if !name.contains('/') {
            return self.functions.contains(name);
        }
        let path = Path::new("crates").join(name);
        self.files.iter().any(|file| file.starts_with(&path))
    }
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn alternatives(name: &str) -> Vec<String> {
    let parts = name.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?)));
    let Some((head, (middle, tail))) = parts else { return vec![name.to_owned()] };
    middle.split(',').map(|choice| format!("{head}{choice}{tail}")).collect()
}

const PAGE: &str = "SPECIFICATION.md";
/// A row that is longer holds two promises, or a story.
const ROW_MAX: usize = 200;
/// By one of these a file of tests is known.
const TESTS: [&str; 3] = ["#[test]", "::test]", "::test("];
/// Proofs that are programs to run, and tests of Samba's.
const COMMANDS: [&str; 4] = ["xtask ", "cargo ", "landfast ", "smb2."];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &str) -> Vec<String> {
        faults(&Texts(vec![
            (PAGE.into(), format!("| # | promise | bound | proof |\n|---|---|---|---|\n{rows}\n")),
            ("crates/a/tests/b.rs".into(), "#[test]\nfn it_is_so() {}".to_owned()),
            ("crates/a/tests/c.rs".into(), "#[tokio::test]".to_owned()),
            ("crates/a/src/e.rs".into(), "mod tests;".to_owned()),
            ("crates/a/examples/f.rs".into(), String::new()),
        ]))
    }

    #[test]
    fn a_row_may_have_200_characters_and_not_one_more() {
        let row = |len: usize| format!("| D1 | {} | | `xtask a` |", "ä".repeat(len - 23));
        assert_eq!(of(&row(ROW_MAX)), [""; 0]);
        let found = of(&row(ROW_MAX + 1));
        assert!(found.len() == 1 && found[0].ends_with("201 characters, 200 at most"), "{found:?}");
    }

    #[test]
    fn rows_are_in_order_within_their_section() {
        let rows = |names: [&str; 3]| names.map(|n| format!("| {n} | x | | D1 |")).join("\n");
        assert_eq!(of(&rows(["P9", "P9a", "P10"])), [""; 0]);
        assert_eq!(of(&rows(["S12", "P1", "P2"])), [""; 0]);
        assert_eq!(of(&rows(["P10", "P9", "P11"])), [format!("{PAGE}: P9: out of order")]);
        assert_eq!(of(&rows(["P1", "P1", "P2"])), [format!("{PAGE}: P1: out of order")]);
    }

    #[test]
    fn proofs_that_exist_are_found() {
        let proof = "`it_is_so`, `a/tests/{b,c}.rs`, `a/tests`, `a/examples/f.rs`, `xtask kill9`, **pending**";
        assert_eq!(of(&format!("| D1 | x | 3 | {proof} |")), [""; 0]);
    }

    #[test]
    fn a_proof_that_does_not_exist_is_named_with_its_row() {
        for proof in ["it_was_so", "a/tests/d.rs", "a/te", "a/src/e.rs"] {
            let found = of(&format!("| D1 | x | | `{proof}` |"));
            assert_eq!(found, [format!("{PAGE}: D1: no {proof}")]);
        }
        assert_eq!(of("| D1 | x | | |").len(), 1);
    }

    #[test]
    fn a_row_of_another_form_is_found() {
        assert_eq!(of("| D1 | x | D2 |\n| d1 | x | | D2 |\n| D1aa | x | | D2 |").len(), 3);
    }
}
