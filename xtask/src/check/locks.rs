//! Locks without a rank, in the crates whose locks have an order (`basics::ordered`).
//!
//! The rule looks at production code. Locks of tokio are taken over an await, and are none of these.

use std::path::Path;

use crate::check::environment::code;
use crate::check::texts::Texts;

/// Imports and uses of `std`'s locks.
pub(super) fn unranked(texts: &Texts) -> Vec<String> {
    let is_in = |path: &Path| CRATES.iter().any(|of| path.starts_with(of));
    let mut found = Vec::new();
    for (path, text) in texts.with_extension("rs").filter(|(path, _)| is_in(path)) {
        let code: Vec<_> = code(path, text).collect();
        for (at, (number, line)) in code.iter().enumerate() {
            let Some(begin) = line.find(STD) else { continue };
            // An import may go over several lines.
            let rest = std::iter::once(&line[begin + STD.len()..])
                .chain(code[at + 1..].iter().map(|(_, line)| *line));
            let mut named = String::new();
            for part in rest {
                named.push_str(part);
                if part.contains(';') || !line.trim_start().starts_with("use ") {
                    break;
                }
            }
            let named = named.split(';').next().unwrap_or_default();
            let mut words = named.split(|letter: char| !letter.is_alphanumeric());
            if let Some(lock) = words.find(|word| LOCKS.contains(word)) {
                found.push(format!(
                    "{}:{number}: {STD}{lock}: a lock here has a rank (basics::ordered)",
                    path.display()
                ));
            }
        }
    }
    found
}

const CRATES: [&str; 2] = ["crates/server/src", "crates/tree/src"];
const STD: &str = "std::sync::";
const LOCKS: [&str; 3] = ["Mutex", "RwLock", "Condvar"];

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        unranked(&Texts(vec![(path.into(), text.to_owned())]))
    }

    #[test]
    fn a_lock_without_a_rank_is_found_however_it_is_imported() {
        let texts = [
            "use std::sync::Mutex;\n",
            "use std::sync::{\n    Arc,\n    RwLock,\n};\n",
            "struct A(std::sync::Condvar);\n",
        ];
        for text in texts {
            assert_eq!(found("crates/tree/src/a.rs", text).len(), 1, "{text}");
            assert_eq!(found("crates/rdma/src/a.rs", text), [""; 0]);
            assert_eq!(found("crates/server/src/tests.rs", text), [""; 0]);
        }
    }

    #[test]
    fn locks_with_a_rank_and_those_of_tokio_are_none_of_these() {
        let text = "use std::sync::Arc;\nuse basics::ordered::Mutex;\nuse tokio::sync::{Notify, RwLock};\n";
        assert_eq!(found("crates/server/src/a.rs", text), [""; 0]);
    }
}
