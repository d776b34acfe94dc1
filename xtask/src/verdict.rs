//! How a command of this program ends: what failed, what was skipped, one closing line, an exit code.

use crate::failure::Tally;

/// Prints what failed, what was skipped and the closing line; gives the exit code.
pub(crate) fn conclude(tally: &Tally) -> std::process::ExitCode {
    println!();
    for reason in &tally.skipped {
        println!("SKIPPED {reason}");
    }
    for fault in &tally.failed {
        println!("FAILED {fault}");
    }
    if !tally.note.is_empty() {
        println!("{}", tally.note);
    }
    println!("{}", closing_line(tally));
    if tally.failed.is_empty() { 0.into() } else { 1.into() }
}

fn closing_line(tally: &Tally) -> String {
    let mut line = format!("{} passed, {} failed", tally.passed, tally.failed.len());
    if !tally.skipped.is_empty() {
        line.push_str(&format!(", {} skipped", tally.skipped.len()));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_names_skips_only_where_there_are_any() {
        assert_eq!(closing_line(&Tally::passed("")), "1 passed, 0 failed");
        assert_eq!(
            closing_line(&Tally { skipped: vec!["why".into()], ..Tally::default() }),
            "0 passed, 0 failed, 1 skipped"
        );
    }
}
