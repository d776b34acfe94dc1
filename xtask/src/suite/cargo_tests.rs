//! `cargo test` of the workspace as a step: what libtest prints, counted.

use std::time::Duration;

use crate::failure::{Outcome, Tally};
use crate::process::Step;
use crate::workspace;

/// All tests of the workspace, counted from what libtest prints.
pub(super) fn run() -> Outcome {
    let args = ["test", "--workspace", "--release", "--no-fail-fast"];
    Step::new("cargo").args(args).arg("--no-run").dir(&workspace::root()).builds().run()?;
    let run = Step::new("cargo").args(args).dir(&workspace::root()).limit(TESTS_LIMIT);
    let finished = run.tee()?;
    let mut tally = count_tests(&finished.stdout);
    if !finished.status.success() && tally.failed.is_empty() {
        tally.failed.push(format!("`cargo {}` ended with {}", args.join(" "), finished.status));
    }
    Ok(tally)
}

/// Reads libtest's lines: one for each ignored test with its reason, one result for each binary; and what a
/// test itself says that finds its host lacking, past libtest's capture.
fn count_tests(output: &str) -> Tally {
    let mut tally = Tally::default();
    let mut binaries = 0;
    for line in output.lines() {
        if let Some(result) = line.strip_prefix("test result: ") {
            binaries += 1;
            tally.passed += counted(result, "passed");
        } else if let Some(reason) = line.strip_prefix("skipped: ") {
            tally.skipped.push(reason.to_owned());
        } else if let Some((name, verdict)) =
            line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        {
            match verdict.split(',').next() {
                Some("FAILED") => tally.failed.push(format!("test {name}")),
                Some("ignored") => tally.skipped.push(format!("test {name}: {verdict}")),
                _ => {}
            }
        }
    }
    tally.note = format!("{binaries} test binaries");
    tally
}

/// The number before `word` in `ok. 12 passed; 0 failed; ...`.
fn counted(result: &str, word: &str) -> u32 {
    let words: Vec<&str> = result.split([' ', ';']).collect();
    let pair = words.windows(2).find(|pair| pair[1] == word);
    pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

/// Longest the tests may run: six times what they take on two quiet cores.
const TESTS_LIMIT: Duration = Duration::from_secs(1800);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_all_binaries_are_counted() {
        let output = "\
running 3 tests
test a::holds ... ok
test a::breaks ... FAILED
test a::waits ... ignored, needs a kernel with DAX
test a::vanishes ...
skipped: a::vanishes: no network namespaces
ok
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
";
        let tally = count_tests(output);
        assert_eq!(tally.passed, 13);
        assert_eq!(tally.failed, ["test a::breaks"]);
        let waits = "test a::waits: ignored, needs a kernel with DAX";
        assert_eq!(tally.skipped, [waits, "a::vanishes: no network namespaces"]);
    }
}
