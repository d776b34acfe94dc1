//! Our server and Samba's smbd, or an earlier build of ours, side by side: the same client, the same kind of
//! directory, taking turns, so that whatever else the machine does hits both.
//!
//! - At a glance: 4 KiB requests, one at a time, on tmpfs, client and server on one core and on two.
//! - `--full`: the work of file servers (`work`), on tmpfs and on the disk, plain, signed and encrypted, on two cores.

mod work;

use std::path::PathBuf;

use clap::Args;
use tempfile::TempDir;

use self::work::{PROTECTIONS, Work, full, glance};
use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::Landfast;
use crate::machine::Watch;
use crate::peer::Peer;
use crate::placement::Placement;
use crate::samba::Samba;
use crate::workspace;

/// Options of `cargo xtask compare-smbd`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How often the two servers take turns.
    #[arg(long, default_value_t = 7)]
    pub(crate) rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) seconds: f64,
    /// Fail if ours takes more than this many times as long as the other, in the median.
    #[arg(long)]
    pub(crate) assert_ratio: Option<f64>,
    /// Everything file servers do, not only 4 KiB requests: with 3 rounds of 0.5 s about 15 minutes.
    #[arg(long)]
    pub(crate) full: bool,
    /// With `--full`: only work whose name contains this.
    #[arg(long, requires = "full", default_value = "")]
    pub(crate) only: String,
    /// With `--full`: files that are created, looked at, renamed, listed and deleted.
    #[arg(long, requires = "full", default_value_t = 10_000)]
    pub(crate) files: u32,
    /// In place of smbd: another build of the program `landfast`, such as one of the commit before a change
    #[arg(long, value_name = "LANDFAST")]
    pub(crate) before: Option<PathBuf>,
}

impl Options {
    /// What the other server is called.
    fn other(&self) -> &'static str {
        if self.before.is_some() { "before" } else { "smbd" }
    }

    /// What the test command runs.
    pub(crate) fn short() -> Self {
        let (only, files) = (String::new(), 0);
        let (assert_ratio, before) = (None, None);
        Self { rounds: 3, seconds: 0.5, assert_ratio, full: false, only, files, before }
    }
}

/// Measures both and prints the ratios. Without `--assert-ratio` only a malfunction is a failure.
pub(crate) fn run(options: &Options) -> Outcome {
    let watch = Watch::start();
    let mut tally = Tally::default();
    if options.full {
        Placement::Apart.check()?;
        for medium in [Medium::Tmpfs, Medium::Disk] {
            for protection in PROTECTIONS {
                let place = format!("{}, {protection}", medium.name());
                let work = full(protection, options);
                tally.add(compare(options, Placement::Apart, medium, &place, &work)?);
            }
        }
    } else {
        for placement in [Placement::Together, Placement::Apart] {
            placement.check()?;
            tally.add(compare(options, placement, Medium::Tmpfs, "tmpfs, signed", &glance())?);
        }
    }
    println!("  {}", watch.conditions());
    Ok(tally)
}

/// Where the files lie.
#[derive(Clone, Copy, Debug)]
enum Medium {
    Tmpfs,
    Disk,
}

impl Medium {
    fn name(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Disk => "disk",
        }
    }

    fn scratch(self) -> Result<TempDir, Failure> {
        match self {
            Self::Tmpfs => workspace::scratch_on_tmpfs(),
            Self::Disk => workspace::scratch(),
        }
    }
}

fn compare(
    options: &Options,
    placement: Placement,
    medium: Medium,
    place: &str,
    work: &[Work],
) -> Outcome {
    let [ours, theirs] = [medium.scratch()?, medium.scratch()?];
    let core = placement.server();
    // Who is signed and who is not is the client's choice, as with smbd's defaults.
    let extra = ["--emulate-persistence", "--signing", "when-asked"];
    let landfast = Landfast::start_on(core, ours.path(), &extra)?;
    let other = match &options.before {
        Some(build) => {
            Peer::Landfast(Landfast::start_build_on(build, core, theirs.path(), &extra)?)
        }
        None => Peer::Smbd(Samba::start_on(core, theirs.path())?),
    };
    let mut tally = Tally::default();
    let rounds = options.rounds;
    println!("  {place}, {rounds} rounds, client and server {placement}:");
    for work in work.iter().filter(|work| work.name.contains(&options.only)) {
        let mut samples = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            let mut turns = [(&landfast.address, 0), (other.address(), 1)];
            // Who goes second finds warmer caches and a busier clock: take turns at that as well.
            if round % 2 == 1 {
                turns.reverse();
            }
            for (address, server) in turns {
                samples[server].push(work.measure(placement, address, options.seconds)?);
            }
        }
        for (phase, name) in work.phases.iter().enumerate() {
            let of = |server: usize| samples[server].iter().map(|sample| sample[phase]).collect();
            let name = format!("{}{name}", work.name);
            tally.add(judge(&name, options.other(), &mut [of(0), of(1)], options.assert_ratio));
        }
    }
    if options.full {
        // One line for each of hundreds would hide the rest.
        tally.note.clear();
    }
    Ok(tally)
}

fn judge(name: &str, other: &str, samples: &mut [Vec<f64>; 2], limit: Option<f64>) -> Tally {
    let [ours, theirs] = samples.each_mut().map(|samples| Spread::of(samples));
    let ratio = ours.median / theirs.median;
    let note = format!("{name} {:.1}/{:.1} us = {ratio:.2}", ours.median, theirs.median);
    println!("    {name:<18} ours {ours} us   {other} {theirs} us   ratio {ratio:.3}");
    let within = match limit {
        Some(limit) if ratio > limit => Err(format!("ratio {ratio:.3}, at most {limit}")),
        _ => Ok(()),
    };
    let mut tally = Tally { note, ..Tally::default() };
    tally.count(name, within);
    tally
}

/// Smallest, middle and largest of some samples.
#[derive(Clone, Copy, Debug)]
struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

impl Spread {
    fn of(samples: &mut [f64]) -> Self {
        samples.sort_unstable_by(f64::total_cmp);
        let at = |index: usize| samples.get(index).copied().unwrap_or(f64::NAN);
        let middle = samples.len() / 2;
        let median = if samples.len() % 2 == 1 {
            at(middle)
        } else {
            (at(middle.wrapping_sub(1)) + at(middle)) / 2.0
        };
        Self { least: at(0), median, most: at(samples.len().wrapping_sub(1)) }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} ({:.1}..{:.1})", self.median, self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(Spread::of(&mut [4.0, 1.0, 2.0, 9.0]).median.to_bits(), 3.0_f64.to_bits());
        assert_eq!(Spread::of(&mut [4.0, 1.0, 9.0]).median.to_bits(), 4.0_f64.to_bits());
    }

    #[test]
    fn a_ratio_over_the_limit_is_a_failed_check() {
        let mut samples = [vec![11.0], vec![10.0]];
        assert_eq!(judge("READ", "smbd", &mut samples, Some(1.0)).failed.len(), 1);
        assert_eq!(judge("READ", "smbd", &mut samples, Some(1.2)).failed.len(), 0);
        assert_eq!(judge("READ", "smbd", &mut samples, None).failed.len(), 0);
    }
}
