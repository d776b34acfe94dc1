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
    let sound = Step::new(&simulator).args(["run", "--keep", "--seeds", SOUND]).finish()?;
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

/// What the seed that found it said, or that none did. A seed that fails without the fault as well finds nothing: it is named,
/// and those behind it run.
fn find(number: usize, simulator: &Path, seconds: u64) -> Result<Result<String, String>, Failure> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut from = 0;
    loop {
        let left = end.saturating_duration_since(Instant::now()).as_secs().max(1);
        let (first, limit) = (from.to_string(), left.to_string());
        let most = u32::MAX.to_string();
        let finished = Step::new(simulator)
            .args([
                "run", "--first", "--keep", "--from", &first, "--seeds", &most, "--limit", &limit,
            ])
            .env(VARIABLE, number.to_string())
            .limit(Duration::from_secs(left + 60))
            .quiet()
            .finish()?;
        let fault = finished.stdout.lines().find(|line| line.starts_with("FAULT"));
        let seed = fault.and_then(seed_of);
        match (finished.status.code(), fault, seed) {
            (Some(1), Some(fault), Some(seed)) if is_sound(simulator, seed)? => {
                return Ok(Ok(format!("found: {fault}")));
            }
            (Some(1), Some(_), Some(seed)) => {
                println!("  seed {seed} fails without the fault as well");
                from = seed + 1;
            }
            (Some(0), None, _) => return Ok(Err(format!("not found in {seconds} s"))),
            _ => {
                let said = tail(&finished.stdout);
                return Ok(Err(format!("the simulator has ended early: {said}")));
            }
        }
        if Instant::now() >= end {
            return Ok(Err(format!("not found in {seconds} s")));
        }
    }
}

/// The seed that a line `FAULT seed N: ...` is of.
fn seed_of(line: &str) -> Option<u64> {
    let (number, _) = line.strip_prefix("FAULT seed ")?.split_once(':')?;
    number.parse().ok()
}

/// Whether the seed passes with all faults asleep.
fn is_sound(simulator: &Path, seed: u64) -> Result<bool, Failure> {
    let seed = seed.to_string();
    let finished = Step::new(simulator)
        .args(["run", "--keep", "--from", &seed, "--seeds", "1"])
        .quiet()
        .finish()?;
    Ok(finished.status.success())
}

/// Seeds that run without a fault first.
const SOUND: &str = "200";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_of_a_fault_is_read_from_its_line() {
        assert_eq!(seed_of("FAULT seed 3086: it does not heal: member 0"), Some(3086));
        assert_eq!(seed_of("1000 seeds"), None);
    }

    #[test]
    fn each_fault_has_its_places_and_asks_for_its_number() {
        planted::tests::check(FAULTS);
    }
}
