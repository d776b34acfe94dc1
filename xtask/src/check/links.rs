//! Links in Markdown files that lead nowhere, and mentions of places outside the repository.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::check::texts::Texts;

/// Relative links whose file or heading does not exist.
pub(super) fn broken(texts: &Texts) -> Vec<String> {
    let files: BTreeSet<&Path> = texts.0.iter().map(|(path, _)| path.as_path()).collect();
    let exists = |path: &Path| files.contains(path) || files.iter().any(|f| f.starts_with(path));
    let mut found = Vec::new();
    for (path, text) in texts.with_extension("md") {
        for target in targets(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { path.clone() } else { resolved(path, file) };
            let shown = path.display();
            if !exists(&file) {
                found.push(format!("{shown}: {target}: no such file"));
            } else if !heading.is_empty() && !has_heading(texts, &file, heading) {
                found.push(format!("{shown}: {target}: no such heading"));
            }
        }
    }
    found
}

/// Lines that name a place which exists on somebody's machine only.
pub(super) fn strays(texts: &Texts) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in &texts.0 {
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(place) = OUTSIDE.iter().find(|place| line.contains(**place)) {
                found.push(format!("{}:{number}: {place}", path.display()));
            }
        }
    }
    found
}

/// The targets of `[text](target)`, outside code.
fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Every second piece between backticks is code.
        for prose in line.split('`').step_by(2) {
            for piece in prose.split("](").skip(1) {
                found.extend(piece.split_once(')').map(|(target, _)| target.to_owned()));
            }
        }
        // A link whose text is code: [`name`](target) is cut apart above.
        for piece in line.split("`](").skip(1) {
            found.extend(piece.split_once(')').map(|(target, _)| target.to_owned()));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn has_heading(texts: &Texts, file: &Path, wanted: &str) -> bool {
    let Some((_, text)) = texts.0.iter().find(|(path, _)| path == file) else { return false };
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).any(|name| name == wanted)
}

/// The anchor a Markdown renderer makes of a heading: lower case, spaces to hyphens, no punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// `target` as seen from the directory of `from`. A path that climbs out of the repository keeps
/// its `..` and so is found in no list of files.
fn resolved(from: &Path, target: &str) -> PathBuf {
    let mut path = from.parent().map_or_else(PathBuf::new, Path::to_owned);
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir if path.pop() => {}
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// Spelt in halves, so that this list is not its own first finding.
const OUTSIDE: [&str; 4] = [
    concat!("../", "shared/"),
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(readme: &str) -> Texts {
        Texts(vec![
            ("README.md".into(), readme.to_owned()),
            ("docs/a.md".into(), "# One thing, & two\n[up](../README.md)\n".to_owned()),
        ])
    }

    #[test]
    fn links_to_files_directories_and_headings_are_followed() {
        let readme = "[a](docs/a.md) [b](docs/) [`c`](docs/a.md#one-thing--two) [w](https://x.y/z)";
        assert_eq!(broken(&repository(readme)), [""; 0]);
    }

    #[test]
    fn links_to_nowhere_are_found() {
        let readme = "[a](docs/b.md) [b](docs/a.md#three) [c](../a.md)\n```\n[d](e)\n```\n`[f](g)`";
        assert_eq!(broken(&repository(readme)).len(), 3, "{:?}", broken(&repository(readme)));
    }

    #[test]
    fn a_path_of_somebodys_machine_is_found() {
        let stray = format!("see {}me/x", OUTSIDE[3]);
        assert_eq!(strays(&repository(&stray)).len(), 1);
    }
}
