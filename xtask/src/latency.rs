//! The promise of push mode as ratios within one interleaved run: near the floor, far from SMB,
//! and faster the more is outstanding. Client and server have a core each.

use std::net::SocketAddr;

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::{Floor, Landfast, bench_on, number};
use crate::machine::Watch;
use crate::placement::Placement;
use crate::workspace;

/// Options of `cargo xtask latency`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How often everything is measured; the middle ratio counts.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Seconds of each mode in each round.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Fail if a ratio misses its goal.
    #[arg(long)]
    pub(crate) assert: bool,
}

/// Measures on tmpfs with persistence emulated, so that no disk hides the protocol.
pub(crate) fn run(options: &Options) -> Outcome {
    let share = workspace::scratch_on_tmpfs()?;
    let placement = Placement::Apart;
    placement.check()?;
    let core = placement.server();
    let server = Landfast::start_on(core, share.path(), &["--emulate-persistence"])?;
    let floor = Floor::start_on(core, share.path())?;
    let ends = Ends { placement, url: server.address.url("latency"), floor: floor.address };
    let watch = Watch::start();
    let mut samples: [Vec<f64>; GOALS.len()] = Default::default();
    for round in 1..=options.rounds {
        let ratios = measure(&ends, options.seconds)?;
        println!("  round {round}: {ratios:.3?}");
        samples.iter_mut().zip(ratios).for_each(|(samples, ratio)| samples.push(ratio));
    }
    let mut tally = Tally::default();
    for (goal, samples) in GOALS.iter().zip(&mut samples) {
        samples.sort_unstable_by(f64::total_cmp);
        let median = samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN);
        println!("  {:<28} {median:>6.2}   {}", goal.name, goal.bound);
        let verdict = match goal.bound.holds(median) || !options.assert {
            true => Ok(()),
            false => Err(format!("{median:.2}, {}", goal.bound)),
        };
        tally.count(goal.name, verdict);
        let separator = if tally.note.is_empty() { "" } else { ", " };
        tally.note.push_str(&format!("{separator}{} {median:.2}", goal.name));
    }
    println!("  {}", watch.conditions());
    Ok(tally)
}

/// What a measurement runs between.
struct Ends {
    placement: Placement,
    url: String,
    floor: SocketAddr,
}

/// The ratios in the order of [`GOALS`].
fn measure(ends: &Ends, seconds: f64) -> Result<[f64; GOALS.len()], Failure> {
    let (seconds, floor) = (seconds.to_string(), ends.floor.to_string());
    let run = |mode: &str, outstanding: &str| {
        let shape = ["--mode", mode, "-o", outstanding, "-b", "4K", "-t", "1", "-w", "100", "-r"];
        let more = ["-d", &seconds, "--floor", &floor];
        bench_on(ends.placement.client(), &ends.url, &[&shape[..], &more[..]].concat())
    };
    let one = run("floor,smb,push", "1")?;
    let p50 = |mode: &str| number(&one, &["modes", mode, "latency_us", "p50"]);
    let push = p50("push")?;
    let deep = number(&run("push", "16")?, &["modes", "push", "iops"])?;
    Ok([push / p50("floor")?, push / p50("smb")?, deep / number(&one, &["modes", "push", "iops"])?])
}

/// A ratio and what it should be.
struct Goal {
    name: &'static str,
    bound: Bound,
}

/// On which side of a number a ratio should lie.
#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(limit) => ratio <= limit,
            Self::AtLeast(limit) => ratio >= limit,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "at most {limit:.2}"),
            Self::AtLeast(limit) => write!(f, "at least {limit:.2}"),
        }
    }
}

/// What push mode must show for a 4 KiB write and commit.
const GOALS: [Goal; 3] = [
    Goal { name: "push p50 / floor p50", bound: Bound::AtMost(1.4) },
    Goal { name: "push p50 / smb p50", bound: Bound::AtMost(1.0 / 3.0) },
    Goal { name: "push depth 16 / depth 1", bound: Bound::AtLeast(3.0) },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_that_is_no_number_meets_no_goal() {
        assert!(GOALS.iter().all(|goal| !goal.bound.holds(f64::NAN)));
        assert!(Bound::AtMost(1.4).holds(1.4) && Bound::AtLeast(3.0).holds(3.0));
    }
}
