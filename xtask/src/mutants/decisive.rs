//! The functions in which every mutant has to be found: those that decide rights, verify signatures, flush, drain or replay.
//!
//! ```text
//!   rights | crates/server/src/access/ | *                  all of a folder, or of a file
//!   flush | crates/pmem/src/medium.rs | persist try_persist  functions of a file
//! ```

use crate::failure::Failure;

/// The list that is checked in.
#[derive(Debug)]
pub(super) struct Decisive(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    path: &'static str,
    /// All if there are none.
    functions: Vec<&'static str>,
}

impl Decisive {
    pub(super) fn read() -> Result<Self, Failure> {
        let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(entry).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a function, as cargo-mutants names it, is on the list.
    pub(super) fn has(&self, file: &str, function: &str) -> bool {
        let last = function.rsplit("::").next().unwrap_or(function);
        // Text for people decides nothing.
        let is_text = last == "fmt" && function.contains("<impl");
        let names = |entry: &Entry| entry.functions.is_empty() || entry.functions.contains(&last);
        !is_text && self.0.iter().any(|entry| file.starts_with(entry.path) && names(entry))
    }
}

fn entry(line: &'static str) -> Result<Entry, Failure> {
    let mut parts = line.split(" | ");
    let (Some(what), Some(path), Some(functions), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Failure::new(format!("not `what | path | functions`: {line}")));
    };
    if !WHAT.contains(&what) {
        return Err(Failure::new(format!("{what} is none of {}: {line}", WHAT.join(", "))));
    }
    let functions = functions.split(' ').filter(|name| *name != "*").collect();
    Ok(Entry { path, functions })
}

const LIST: &str = include_str!("decisive.txt");
const WHAT: [&str; 5] = ["rights", "signatures", "flush", "drain", "replay"];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::workspace;

    #[test]
    fn each_listed_function_exists() {
        for Entry { path, functions } in Decisive::read().unwrap().0 {
            let place = workspace::root().join(path);
            assert!(place.exists(), "{path}");
            for name in functions {
                let text = fs::read_to_string(&place).unwrap();
                assert!(text.contains(&format!("fn {name}")), "{path}: {name}");
            }
        }
    }

    #[test]
    fn a_function_is_listed_by_its_file_or_by_its_name() {
        let decisive = Decisive(vec![
            entry("rights | crates/a/src/access/ | *").unwrap(),
            entry("flush | crates/a/src/b.rs | persist drain").unwrap(),
        ]);
        assert!(decisive.has("crates/a/src/access/x.rs", "T::any"));
        assert!(decisive.has("crates/a/src/b.rs", "<impl T for S>::drain"));
        assert!(!decisive.has("crates/a/src/b.rs", "other"));
        assert!(!decisive.has("crates/a/src/access/x.rs", "<impl fmt::Display for T>::fmt"));
        entry("grace | a.rs | *").unwrap_err();
        entry("flush | a.rs").unwrap_err();
    }
}
