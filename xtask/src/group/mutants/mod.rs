//! Faults planted in the core of a replicated group, each of which seeds of `landfast-group-sim` must find.

mod faults;

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;

use self::faults::FAULTS;
use crate::failure::{Failure, Outcome, Tally};
use crate::planted::{self, Fault, VARIABLE};
use crate::process::{Step, tail};

/// Options of `cargo xtask mutants-group`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Plant only the faults whose names contain this
    name: Option<String>,
    /// Seconds of seeds for each
    #[arg(long, default_value_t = 600)]
    seconds: u64,
}

/// Plants all faults in one copy of the tree, builds it once, and for each runs seeds until one fails.
pub(crate) fn run(options: &Options) -> Outcome {
    let mut tally = Tally::default();
    let release = match planted::build("mutants-group", FAULTS, &["--bin", "landfast-group-sim"])? {
        Ok(release) => release,
        Err(why) => {
            tally.count("the tree with all faults builds", Err(why));
            return Ok(tally);
        }
    };
    let simulator = release.join("landfast-group-sim");
    // Of what is planted nothing may happen that was not asked for.
    let sound = Step::new(&simulator).args(["run", "--seeds", SOUND]).finish()?;
    let is_sound = sound.status.success().then_some(()).ok_or_else(|| tail(&sound.stdout));
    tally.count("the tree with all faults asleep shows none", is_sound);
    let chosen =
        |fault: &&Fault| options.name.as_ref().is_none_or(|name| fault.name.contains(name));
    for (number, fault) in FAULTS.iter().enumerate().filter(|(_, fault)| chosen(fault)) {
        let began = Instant::now();
        let found = find(number, &simulator, options.seconds)?;
        let said = match &found {
            Ok(how) => how,
            Err(why) => why,
        };
        println!("  {}: {said}, {:.1} s", fault.name, began.elapsed().as_secs_f64());
        tally.count(fault.name, found.map(drop));
    }
    Ok(tally)
}

/// What the seed that found it said, or that none did.
fn find(number: usize, simulator: &Path, seconds: u64) -> Result<Result<String, String>, Failure> {
    let (limit, most) = (seconds.to_string(), u32::MAX.to_string());
    let finished = Step::new(simulator)
        .args(["run", "--first", "--seeds", &most, "--limit", &limit])
        .env(VARIABLE, number.to_string())
        .limit(Duration::from_secs(seconds + 60))
        .quiet()
        .finish()?;
    let fault = finished.stdout.lines().find(|line| line.starts_with("FAULT"));
    Ok(match (finished.status.code(), fault) {
        (Some(1), Some(fault)) => Ok(format!("found: {fault}")),
        (Some(0), None) => Err(format!("not found in {seconds} s")),
        _ => Err(format!("the simulator has ended early: {}", tail(&finished.stdout))),
    })
}

/// Seeds that run without a fault first.
const SOUND: &str = "200";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_places_and_asks_for_its_number() {
        planted::tests::check(FAULTS);
    }
}
