//! What a script says it found: one line a check (tests/interop/report.py, tests/guest/report.sh).

use crate::failure::Tally;

/// Counts the lines a script printed.
pub(crate) fn read(output: &str) -> Tally {
    let mut tally = Tally::default();
    for line in output.lines() {
        match line.split_once(' ') {
            Some(("ok", _)) => tally.passed += 1,
            Some(("FAIL", evidence)) => tally.failed.push(evidence.to_owned()),
            Some(("gap", reason)) => tally.skipped.push(format!("known gap: {reason}")),
            _ => {}
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_and_a_gap_are_told_apart() {
        let tally = read("ok a\nFAIL b: because\ngap c: not yet\nnoise\n");
        assert_eq!((tally.passed, tally.failed.len(), tally.skipped.len()), (1, 1, 1));
        assert_eq!(tally.skipped[0], "known gap: c: not yet");
    }
}
