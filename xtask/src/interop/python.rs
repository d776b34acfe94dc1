//! The Python clients smbprotocol and impacket against the server, by scripts of ours that print
//! one line a check.

use std::time::Duration;

use crate::deps;
use crate::failure::{Outcome, Tally};
use crate::peer::{Address, Against, PASSWORD, Peer, SHARE, USER};
use crate::process::{Step, tail};
use crate::workspace;

/// Both clients, one after the other, against one server.
pub(crate) fn run(against: Against) -> Outcome {
    let interpreter = deps::python()?;
    let scratch = workspace::scratch()?;
    let mut peer = Peer::start(against, scratch.path())?;
    let mut tally = Tally::default();
    for script in SCRIPTS {
        let Address { smb, .. } = peer.address();
        let finished = Step::new(&interpreter)
            .arg(workspace::root().join("tests/interop").join(script))
            .args(["--host", &smb.ip().to_string(), "--port", &smb.port().to_string()])
            .args(["--share", SHARE, "--user", USER])
            .secret_env("LANDFAST_PASSWORD", PASSWORD)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .limit(Duration::from_secs(180))
            .tee()?;
        let found = read(&finished.stdout);
        if !finished.status.success() && found.failed.is_empty() {
            let evidence = format!("{}{}", finished.status, tail(&finished.stdout));
            tally.count(script, Err(evidence));
        }
        tally.add(found);
        peer.still_runs()?;
    }
    tally.note = format!("{} scripts", SCRIPTS.len());
    Ok(tally)
}

/// Counts the lines a script printed (tests/interop/report.py).
fn read(output: &str) -> Tally {
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

/// The scripts, in tests/interop.
const SCRIPTS: [&str; 2] = ["smbprotocol_client.py", "impacket_client.py"];

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
