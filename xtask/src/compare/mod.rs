//! Our server and Samba's smbd side by side: the same client, the same kind of directory, taking
//! turns, so that whatever else the machine does hits both.

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::{Landfast, bench_on, number};
use crate::machine::Watch;
use crate::peer::Address;
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
    /// Fail if the median latency of ours is more than this many times smbd's.
    #[arg(long)]
    pub(crate) assert_ratio: Option<f64>,
}

/// Measures both and prints the ratios. Without `--assert-ratio` only a malfunction is a failure.
pub(crate) fn run(options: &Options) -> Outcome {
    let watch = Watch::start();
    let mut tally = Tally::default();
    for placement in [Placement::Together, Placement::Apart] {
        placement.check()?;
        tally.add(compare(options, placement)?);
    }
    println!("  {}", watch.conditions());
    Ok(tally)
}

fn compare(options: &Options, placement: Placement) -> Outcome {
    let [ours, theirs] = [workspace::scratch_on_tmpfs()?, workspace::scratch_on_tmpfs()?];
    let core = placement.server();
    let landfast = Landfast::start_on(core, ours.path(), &["--emulate-persistence"])?;
    let smbd = Samba::start_on(core, theirs.path())?;
    let mut tally = Tally::default();
    println!("  p50 in us over {} rounds, client and server {placement}:", options.rounds);
    for request in REQUESTS {
        let mut samples = [Vec::new(), Vec::new()];
        for round in 0..options.rounds {
            let mut turns = [(&landfast.address, 0), (&smbd.address, 1)];
            // Who goes second finds warmer caches and a busier clock: take turns at that as well.
            if round % 2 == 1 {
                turns.reverse();
            }
            for (address, server) in turns {
                samples[server].push(p50(placement, address, request, options.seconds)?);
            }
        }
        tally.add(judge(request, &mut samples, options.assert_ratio));
    }
    Ok(tally)
}

/// One kind of 4 KiB request.
#[derive(Clone, Copy, Debug)]
struct Request {
    name: &'static str,
    write_percent: &'static str,
}

/// Median latency in microseconds of one run.
fn p50(
    placement: Placement,
    address: &Address,
    request: Request,
    seconds: f64,
) -> Result<f64, Failure> {
    let seconds = seconds.to_string();
    let shape = ["--mode", "smb", "-b", "4K", "-o", "1", "-t", "1", "-r", "--file-size", "16M"];
    let args = [&shape[..], &["-w", request.write_percent, "-d", &seconds]].concat();
    let report = bench_on(placement.client(), &address.url("compared"), &args)?;
    number(&report, &["modes", "smb", "latency_us", "p50"])
}

fn judge(request: Request, samples: &mut [Vec<f64>; 2], limit: Option<f64>) -> Tally {
    let [ours, theirs] = samples.each_mut().map(|samples| Spread::of(samples));
    let ratio = ours.median / theirs.median;
    let note = format!("{} {:.1}/{:.1} us = {ratio:.2}", request.name, ours.median, theirs.median);
    println!("    {:<12} ours {ours}   smbd {theirs}   ratio {ratio:.3}", request.name);
    let within = match limit {
        Some(limit) if ratio > limit => Err(format!("ratio {ratio:.3}, at most {limit}")),
        _ => Ok(()),
    };
    let mut tally = Tally { note, ..Tally::default() };
    tally.count(request.name, within);
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

/// What is compared. A write counts when its FLUSH is answered.
const REQUESTS: [Request; 2] = [
    Request { name: "WRITE+FLUSH", write_percent: "100" },
    Request { name: "READ", write_percent: "0" },
];

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
        assert_eq!(judge(REQUESTS[0], &mut samples, Some(1.0)).failed.len(), 1);
        assert_eq!(judge(REQUESTS[0], &mut samples, Some(1.2)).failed.len(), 0);
        assert_eq!(judge(REQUESTS[0], &mut samples, None).failed.len(), 0);
    }
}
