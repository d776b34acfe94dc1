//! Files that grew too long, and marks that were meant to be temporary.

use crate::check::texts::Texts;

/// Rust files past [`LINES_MAX`].
pub(super) fn too_long(texts: &Texts) -> Vec<String> {
    let sizes = texts.with_extension("rs").map(|(path, text)| (path, text.lines().count()));
    sizes
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(path, lines)| format!("{}: {lines} lines, {LINES_MAX} at most", path.display()))
        .collect()
}

/// Lines with a mark that says "not done yet".
pub(super) fn leftovers(texts: &Texts) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in texts.with_extension("rs") {
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(mark) = MARKS.iter().find(|mark| line.contains(**mark)) {
                found.push(format!("{}:{number}: {mark}", path.display()));
            }
        }
    }
    found
}

/// A file of this length has more than one concept in it, whatever they are.
const LINES_MAX: usize = 800;
/// Spelt in halves, so that this list is not its own first finding.
const MARKS: [&str; 5] = [
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("db", "g!("),
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_have_800_lines_and_not_one_more() {
        let texts = Texts(vec![
            ("just.rs".into(), "x\n".repeat(LINES_MAX)),
            ("over.rs".into(), "x\n".repeat(LINES_MAX + 1)),
            ("over.md".into(), "x\n".repeat(LINES_MAX + 1)),
        ]);
        assert_eq!(too_long(&texts), ["over.rs: 801 lines, 800 at most"]);
    }

    #[test]
    fn a_leftover_is_named_with_its_line() {
        let texts = Texts(vec![("a.rs".into(), format!("fine\n  {}\n", MARKS[2]))]);
        assert_eq!(leftovers(&texts), [format!("a.rs:2: {}", MARKS[2])]);
    }
}
