//! Faults planted in server, client and engine, each of which seeds of the simulator must find.

mod faults;

use std::time::{Duration, Instant};

use clap::Args;

use self::faults::FAULTS;
use super::{PROGRAMS, Simulator};
use crate::failure::{Failure, Outcome, Tally};
use crate::planted::{self, Fault, VARIABLE};
use crate::workspace;

/// Options of `cargo xtask mutants-sim`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Plant only the faults whose names contain this
    name: Option<String>,
    /// Seconds of seeds for each
    #[arg(long, default_value_t = 600)]
    seconds: u64,
}

/// Plants all faults in one copy of the tree, each behind a question for its number, builds it once, and for each runs
/// seeds until one fails.
pub(crate) fn run(options: &Options) -> Outcome {
    workspace::build_of(["--bin", "landfast-sim"]).run()?;
    let mut tally = Tally::default();
    let chosen =
        |fault: &&Fault| options.name.as_ref().is_none_or(|name| fault.name.contains(name));
    let targets = [&["--bin", "landfast"][..], &PROGRAMS].concat();
    let release = match planted::build("mutants-sim", FAULTS, &targets)? {
        Ok(release) => release,
        Err(why) => {
            tally.count("the tree with all faults builds", Err(why));
            return Ok(tally);
        }
    };
    let simulator = Simulator {
        own: workspace::target().join("release/landfast-sim"),
        landfast: release.join("landfast"),
        programs: release,
        is_quiet: false,
    };
    // Of what is planted nothing may happen that was not asked for.
    let sound = simulator.run(0, SOUND, &[])?;
    tally.count("the tree with all faults asleep shows none", super::judged(&sound));
    for (number, fault) in FAULTS.iter().enumerate().filter(|(_, fault)| chosen(fault)) {
        let began = Instant::now();
        let found = find(number, &simulator, options.seconds)?;
        println!("  {}: {}, {} s", fault.name, verdict(&found), began.elapsed().as_secs());
        tally.count(fault.name, found.map(drop));
    }
    Ok(tally)
}

fn verdict(found: &Result<String, String>) -> &str {
    match found {
        Ok(how) => how,
        Err(why) => why,
    }
}

// What the seed that found it said, or that none did. A seed that fails without the fault as well finds nothing: it is named,
// and those behind it run.
fn find(
    number: usize,
    simulator: &Simulator,
    seconds: u64,
) -> Result<Result<String, String>, Failure> {
    let asked = format!("{VARIABLE}={number}");
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut from = 0;
    loop {
        let left = end.saturating_duration_since(Instant::now()).as_secs().max(1).to_string();
        let more = ["--first", "--keep", "--limit", &left, "--variable", &asked];
        let finished = simulator.run(from, u64::from(u32::MAX), &more)?;
        let mut said = finished.stdout.lines().skip_while(|line| !line.starts_with("fault"));
        let (plan, fault) = (said.next(), said.next());
        match (finished.status.code(), plan, fault, plan.and_then(seed_of)) {
            (Some(1), Some(plan), Some(fault), Some(seed)) => {
                if simulator.run(seed, 1, &[])?.status.success() {
                    return Ok(Ok(format!("found: {} ({plan})", fault.trim())));
                }
                println!("  seed {seed} fails without the fault as well");
                from = seed + 1;
            }
            (Some(0), ..) => return Ok(Err(format!("not found in {seconds} s"))),
            _ => {
                let said = crate::process::tail(&finished.stdout);
                return Ok(Err(format!("the simulator has ended early: {said}")));
            }
        }
        if Instant::now() >= end {
            return Ok(Err(format!("not found in {seconds} s")));
        }
    }
}

/// The seed that a line `fault seed=N,...` is of.
fn seed_of(line: &str) -> Option<u64> {
    let plan = line.strip_prefix("fault seed=")?;
    plan.split(',').next()?.parse().ok()
}

/// Seeds that run without a fault first.
const SOUND: u64 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_of_a_fault_is_read_from_its_plan() {
        assert_eq!(seed_of("fault seed=490,work=rivals,clients=1"), Some(490));
        assert_eq!(seed_of("1000 seeds"), None);
    }

    #[test]
    fn each_fault_has_its_places_and_asks_for_its_number() {
        planted::tests::check(FAULTS);
    }
}
