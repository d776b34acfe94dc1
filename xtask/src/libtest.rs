//! What libtest prints, counted.

use crate::failure::Tally;

/// Reads libtest's lines: one for each ignored test with its reason, one result for each binary; and what a
/// test itself says that finds its host lacking, past libtest's capture.
pub(crate) fn count(output: &str) -> Tally {
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
        let tally = count(output);
        assert_eq!(tally.passed, 13);
        assert_eq!(tally.failed, ["test a::breaks"]);
        let waits = "test a::waits: ignored, needs a kernel with DAX";
        assert_eq!(tally.skipped, [waits, "a::vanishes: no network namespaces"]);
    }
}
