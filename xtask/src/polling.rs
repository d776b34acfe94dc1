//! What each way of waiting costs: queue depths and pauses, against latency and processor time.
//!
//! ```text
//!   for every depth and pause, in rounds:
//!     poll | block | fixed 50 us | adaptive     a server and a client, each on its core, same policy
//! ```
//!
//! Adaptive polling is held against the others by the gap between two arrivals, pause / depth.
//! A server that spins would take its core from the servers of the other arms, so each turn has a
//! server of its own.

use clap::Args;
use serde_json::Value;

use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::{Landfast, bench_on, number};
use crate::machine::Watch;
use crate::placement::Placement;
use crate::workspace;

/// Options of `cargo xtask polling`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How often everything is measured; the middle value counts.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Seconds of each turn.
    #[arg(long, default_value_t = 0.5)]
    pub(crate) seconds: f64,
    /// Operations outstanding.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16, 64])]
    pub(crate) depths: Vec<u32>,
    /// Mean pauses in microseconds.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 20, 100, 500, 3000])]
    pub(crate) thinks: Vec<u32>,
    /// Fail if adaptive polling misses its goals.
    #[arg(long)]
    pub(crate) assert: bool,
}

impl Options {
    /// Shows that every arm works, and a first impression.
    pub(crate) fn short() -> Self {
        let (depths, thinks) = (vec![1], vec![0, 3000]);
        Self { rounds: 1, seconds: 0.3, depths, thinks, assert: false }
    }
}

/// Measures 4 KiB write + commit on tmpfs with persistence emulated.
pub(crate) fn run(options: &Options) -> Outcome {
    let placement = Placement::Apart;
    placement.check()?;
    let share = workspace::scratch_on_tmpfs()?;
    let watch = Watch::start();
    let mut tally = Tally::default();
    println!("  {:>5} {:>8}  {:<12} {HEADINGS}", "depth", "think us", "arm");
    for depth in &options.depths {
        for think in &options.thinks {
            let mut cells: [Vec<Cell>; ARMS.len()] = Default::default();
            for _ in 0..options.rounds {
                for (arm, cells) in ARMS.iter().zip(&mut cells) {
                    let server = Landfast::start_on(
                        placement.server(),
                        share.path(),
                        &["--emulate-persistence", "--poll", arm.flag],
                    )?;
                    let (seconds, depth) = (options.seconds.to_string(), depth.to_string());
                    let think = think.to_string();
                    let shape = ["--mode", "push", "-o", &depth, "-r", "--file-size", "4M"];
                    let more = ["-d", &seconds, "--poll", arm.flag, "--think", &think];
                    let url = server.address.url("polling");
                    let args = [&shape[..], &more[..]].concat();
                    cells.push(Cell::of(&bench_on(placement.client(), &url, &args)?)?);
                }
            }
            let medians = cells.map(|cells| Cell::median(&cells));
            for (arm, cell) in ARMS.iter().zip(&medians) {
                println!("  {depth:>5} {think:>8}  {:<12} {cell}", arm.name);
            }
            judge(&mut tally, options.assert, *depth, *think, &medians);
        }
    }
    println!("  {}", watch.conditions());
    Ok(tally)
}

/// Adaptive polling against the best of the others. What an engine waits for is the next of all
/// that are open: 64 places that pause 500 us each leave a gap of 8 us.
fn judge(tally: &mut Tally, assert: bool, depth: u32, think: u32, medians: &[Cell; ARMS.len()]) {
    let [others @ .., adaptive] = medians;
    let against = |value: fn(&Cell) -> f64| {
        value(adaptive) / others.iter().map(value).fold(f64::INFINITY, f64::min)
    };
    let gap = think / depth;
    let (what, ratio) = if gap <= SHORT_US {
        ("p50", against(|cell| cell.p50_us))
    } else if gap >= LONG_US {
        ("server CPU", against(|cell| cell.server_cpu_us))
    } else {
        // Between them it is a matter of taste: latency of one, processor time of the other.
        return;
    };
    let name = format!("depth {depth}, gap {gap} us: adaptive {what} / best {what}");
    println!("  {name} {ratio:.2}, at most {BOUND:.2}");
    let verdict = if ratio <= BOUND || !assert { Ok(()) } else { Err(format!("{ratio:.2}")) };
    tally.count(&name, verdict);
}

/// A way of waiting.
struct Arm {
    name: &'static str,
    flag: &'static str,
}

const ARMS: [Arm; 4] = [
    Arm { name: "poll", flag: "spin" },
    Arm { name: "block", flag: "block" },
    Arm { name: "fixed 50 us", flag: "fixed" },
    Arm { name: "adaptive", flag: "adaptive" },
];

/// What one turn showed.
#[derive(Clone, Copy, Debug)]
struct Cell {
    iops: f64,
    p50_us: f64,
    p90_us: f64,
    client_cpu_us: f64,
    server_cpu_us: f64,
}

impl Cell {
    fn of(report: &Value) -> Result<Self, Failure> {
        let number = |path: &[&str]| number(report, &[&["modes", "push"], path].concat());
        Ok(Self {
            iops: number(&["iops"])?,
            p50_us: number(&["latency_us", "p50"])?,
            p90_us: number(&["latency_us", "p90"])?,
            client_cpu_us: number(&["cpu_us_per_op", "client"])?,
            server_cpu_us: number(&["cpu_us_per_op", "server"])?,
        })
    }

    fn median(cells: &[Self]) -> Self {
        let median = |value: fn(&Self) -> f64| {
            let mut values: Vec<f64> = cells.iter().map(value).collect();
            values.sort_unstable_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
        };
        Self {
            iops: median(|cell| cell.iops),
            p50_us: median(|cell| cell.p50_us),
            p90_us: median(|cell| cell.p90_us),
            client_cpu_us: median(|cell| cell.client_cpu_us),
            server_cpu_us: median(|cell| cell.server_cpu_us),
        }
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { iops, p50_us, p90_us, client_cpu_us, server_cpu_us } = self;
        write!(
            f,
            "{iops:>9.0} {p50_us:>9.1} {p90_us:>9.1} {client_cpu_us:>11.1} {server_cpu_us:>11.1}"
        )
    }
}

const HEADINGS: &str = "     IOPS    p50 us    p90 us  client CPU  server CPU (us/op)";
/// Gaps up to this long are short: a sleep and a wake-up take that long.
const SHORT_US: u32 = 30;
/// Gaps from here on are long: spinning through them costs many times a sleep.
const LONG_US: u32 = 500;
/// Adaptive polling may cost a tenth more than the better arm.
const BOUND: f64 = 1.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_each_column_counts() {
        let cell = |value: f64| Cell {
            iops: value,
            p50_us: 10.0 - value,
            p90_us: value,
            client_cpu_us: value,
            server_cpu_us: value,
        };
        let median = Cell::median(&[cell(3.0), cell(1.0), cell(2.0)]);
        assert!((median.iops - 2.0).abs() < f64::EPSILON);
        assert!((median.p50_us - 8.0).abs() < f64::EPSILON);
    }
}
