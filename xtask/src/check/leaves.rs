//! Leaves to change a share, given by the deciding code alone.
//!
//! The functions that change a share take leaves as traits (`tree::rights`), and any type may implement a
//! public trait. This rule keeps what visibility would keep within one crate: only the file whose leaves cannot
//! be made without a decision implements the traits.

use std::path::Path;

use crate::check::texts::Texts;

/// Leaves to wait ([`tree::MayWait`]) that other files give than those that bring work to a thread that may wait.
pub(super) fn given_to_wait(texts: &Texts) -> Vec<String> {
    let others = texts.with_extension("rs").filter(|(path, _)| {
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests" || stem == "rig");
        !is_test && path != Path::new(file!()) && !WAIT.iter().any(|one| path == Path::new(one))
    });
    let mut found = Vec::new();
    for (path, text) in others {
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in (1..).zip(product.lines()) {
            if line.contains("MayWait::here()") {
                found.push(format!("{}:{number}: nobody knows that it may wait", path.display()));
            }
        }
    }
    found
}

/// Implementations of the traits in other files, and other files that name the traits' module.
pub(super) fn forged(texts: &Texts) -> Vec<String> {
    let mut found = Vec::new();
    let others = texts.with_extension("rs").filter(|(path, _)| {
        path != Path::new(GIVES) && path != Path::new(NAMES) && path != Path::new(file!())
    });
    for (path, text) in others {
        for (number, line) in (1..).zip(text.lines()) {
            let is_comment = line.trim_start().starts_with("//");
            let implements = LEAVES.iter().any(|leave| {
                line.contains(&format!("{leave} for ")) && line.trim_start().starts_with("impl")
            });
            let is_below = path.starts_with(TREE);
            if !is_comment && (implements || (line.contains(MODULE) && !is_below)) {
                found.push(format!("{}:{number}: {GIVES} alone gives leaves", path.display()));
            }
        }
    }
    found
}

/// Those who give leaves to wait: each in a closure for a thread of the pool.
const WAIT: [&str; 9] = [
    "crates/server/src/dispatch/call.rs",
    "crates/server/src/dispatch/tree.rs",
    "crates/server/src/fuzzing.rs",
    "crates/server/src/reload.rs",
    "crates/server/src/server.rs",
    "crates/server/src/service.rs",
    "crates/server/src/state/corrections.rs",
    "crates/server/src/transport/served.rs",
    "crates/server/src/upkeep/scavenge.rs",
];
const LEAVES: [&str; 4] = ["MayAdd", "MayRemove", "MayWrite", "MaySet"];
/// The file with the types that only a decision can make.
const GIVES: &str = "crates/server/src/access/leave.rs";
/// The file with the traits, and with leaves for tests beside it.
const NAMES: &str = "crates/tree/src/rights.rs";
const TREE: &str = "crates/tree/src";
const MODULE: &str = "tree::rights";

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        forged(&Texts(vec![(path.into(), text.to_owned())])).len()
    }

    #[test]
    fn a_leave_to_wait_that_nobody_knows_of_is_found() {
        let given = "let leave = MayWait::here();\n";
        let found = |path: &str, text: &str| {
            given_to_wait(&Texts(vec![(path.into(), text.to_owned())])).len()
        };
        assert_eq!(found("crates/server/src/dispatch/write.rs", given), 1);
        assert_eq!(found("crates/server/src/dispatch/call.rs", given), 0);
        assert_eq!(found("crates/server/src/a.rs", &format!("#[cfg(test)]\n{given}")), 0);
    }

    #[test]
    fn a_leave_that_is_given_outside_of_the_decisions_is_found() {
        let forged = "// impl MaySet for A {}\nimpl MaySet for A {}\n";
        assert_eq!(found("crates/server/src/state/open.rs", forged), 1);
        assert_eq!(found("crates/tree/src/entry.rs", forged), 1);
        assert_eq!(found(GIVES, forged), 0);
        assert_eq!(found("crates/cli/src/main.rs", &format!("use {MODULE}::MaySet as A;")), 1);
        assert_eq!(found("crates/tree/src/entry.rs", &format!("use {MODULE}::MaySet;")), 0);
    }
}
