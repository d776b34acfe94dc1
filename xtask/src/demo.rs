//! The README's first command, as a newcomer types it but shorter.

use std::time::Duration;

use crate::failure::{Outcome, Tally};
use crate::process::{Step, tail};
use crate::workspace;

/// Runs the demo with half a second a mode and one kill.
pub(crate) fn run() -> Outcome {
    let finished = Step::new(workspace::landfast()?)
        .args(["demo", "-d", "0.5", "--kills", "1"])
        .limit(Duration::from_secs(90))
        .tee()?;
    let mut tally = Tally::default();
    let sound = match finished.status.success() {
        true => Ok(()),
        false => Err(format!("{}{}", finished.status, tail(&finished.stdout))),
    };
    tally.count("landfast demo", sound);
    Ok(tally)
}
