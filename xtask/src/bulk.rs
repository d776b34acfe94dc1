//! How much the software iWARP moves over loopback, next to what plain TCP moves.
//!
//! iperf3 and `crates/rdma/examples/perf.rs` take turns: one stream, server and client on a core each.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::announced;
use crate::machine::Watch;
use crate::peer::free_port;
use crate::placement::Placement;
use crate::process::{Running, Step};
use crate::workspace;

/// Options of `cargo xtask bulk`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How often everything is measured.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Seconds of each turn.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) seconds: f64,
    /// Only the kinds of transfer whose name begins so.
    #[arg(long, default_value = "")]
    pub(crate) only: String,
    /// The same program of another build, which takes turns with this one and is not judged.
    #[arg(long)]
    pub(crate) against: Option<PathBuf>,
    /// Fail if a goal is missed in any round.
    #[arg(long)]
    pub(crate) assert: bool,
}

impl Options {
    /// Shows that everything works, and a first impression.
    pub(crate) fn short() -> Self {
        Self { rounds: 1, seconds: 1.0, only: String::new(), against: None, assert: false }
    }
}

/// Measures all shapes in rounds and prints the middle and the worst of each.
pub(crate) fn run(options: &Options) -> Outcome {
    let placement = Placement::Apart;
    placement.check()?;
    let ends = Ends { placement, seconds: options.seconds.max(1.0) };
    let perf = built()?;
    let shapes = SHAPES.iter().filter(|shape| shape.name.starts_with(&options.only));
    let mut rows: Vec<Row> = shapes.map(Row::new).collect();
    let watch = Watch::start();
    let mut plain = Vec::new();
    for _ in 0..options.rounds {
        let floor = ends.iperf3()?;
        plain.push(floor);
        for row in &mut rows {
            row.ours.push(row.shape.value(ends.perf(&perf, row.shape)?, floor));
            if let Some(other) = &options.against {
                row.theirs.push(row.shape.value(ends.perf(other, row.shape)?, floor));
            }
        }
    }
    println!("  iperf3, one stream: {:.2} GB/s", middle(&plain) / 1e9);
    let mut tally = Tally::default();
    for row in &rows {
        let (name, goal) = (row.shape.name, row.shape.goal);
        println!("  {row}");
        let worst = smallest(&row.ours);
        let met = worst >= goal || !options.assert;
        let why = format!("{worst:.2} {} in the worst round, goal {goal:.2}", row.shape.unit());
        tally.count(name, if met { Ok(()) } else { Err(why) });
        let separator = if tally.note.is_empty() { "" } else { ", " };
        tally.note.push_str(&format!("{separator}{name} {:.2}", middle(&row.ours)));
    }
    println!("  {}", watch.conditions());
    Ok(tally)
}

/// What the rounds showed of one shape.
struct Row {
    shape: &'static Shape,
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Row {
    fn new(shape: &'static Shape) -> Self {
        Self { shape, ours: Vec::new(), theirs: Vec::new() }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shape, ours, theirs } = self;
        let (name, unit, goal) = (shape.name, shape.unit(), shape.goal);
        let (middling, worst) = (middle(ours), smallest(ours));
        write!(f, "{name:<20} {middling:>6.2} {unit}, worst round {worst:.2}, goal {goal:.2}")?;
        if theirs.is_empty() {
            return Ok(());
        }
        // Each round against itself: what the machine did meanwhile met both.
        let quotients: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
        let (middling, worst) = (middle(theirs), smallest(theirs));
        let quotient = middle(&quotients);
        write!(f, "; the other {middling:.2}, worst {worst:.2}; this / other {quotient:.2}")
    }
}

/// One kind of transfer, 16 of them open (64 of the small ones).
struct Shape {
    name: &'static str,
    operation: &'static str,
    size: u32,
    crc: bool,
    /// A part of iperf3's rate, or million messages a second.
    goal: f64,
}

impl Shape {
    /// Of bytes and messages per second, what the goal is about.
    fn value(&self, [bytes, messages]: [f64; 2], floor: f64) -> f64 {
        if self.counts_messages() { messages / 1e6 } else { bytes / floor }
    }

    fn unit(&self) -> &'static str {
        if self.counts_messages() { "million messages/s" } else { "of iperf3" }
    }

    fn counts_messages(&self) -> bool {
        self.size < 1024
    }
}

const SHAPES: [Shape; 9] = [
    Shape { name: "write 64 KiB, CRC", operation: "write", size: 64 << 10, crc: true, goal: 0.7 },
    Shape { name: "write 1 MiB, CRC", operation: "write", size: 1 << 20, crc: true, goal: 0.7 },
    Shape { name: "write 64 KiB", operation: "write", size: 64 << 10, crc: false, goal: 0.85 },
    Shape { name: "write 1 MiB", operation: "write", size: 1 << 20, crc: false, goal: 0.85 },
    Shape { name: "read 64 KiB, CRC", operation: "read", size: 64 << 10, crc: true, goal: 0.7 },
    Shape { name: "read 1 MiB, CRC", operation: "read", size: 1 << 20, crc: true, goal: 0.7 },
    Shape { name: "read 64 KiB", operation: "read", size: 64 << 10, crc: false, goal: 0.85 },
    Shape { name: "read 1 MiB", operation: "read", size: 1 << 20, crc: false, goal: 0.85 },
    Shape { name: "send 64 B, CRC", operation: "send", size: 64, crc: true, goal: 1.0 },
];

struct Ends {
    placement: Placement,
    seconds: f64,
}

impl Ends {
    /// Bytes per second of one TCP stream.
    fn iperf3(&self) -> Result<f64, Failure> {
        let port = free_port()?.to_string();
        let log = workspace::kept("logs")?.join("iperf3.log");
        let server = ["--server", "--one-off", "--bind", "127.0.0.1", "--port", &port];
        let server = Step::new("iperf3").args(server).arg("--forceflush");
        let mut running = server.on_core(self.placement.server()).quiet().serve(&log, true)?;
        announced(&mut running, &log, |line| line.contains("listening").then_some(()))?;
        let seconds = format!("{:.0}", self.seconds.ceil());
        let client = ["--client", "127.0.0.1", "--port", &port, "--time", &seconds, "--json"];
        let client = Step::new("iperf3").args(client).on_core(self.placement.client()).quiet();
        let report: Value = serde_json::from_str(&client.limit(LIMIT).output()?)
            .map_err(|error| Failure::new(format!("iperf3 printed no JSON: {error}")))?;
        let bits = report.pointer("/end/sum_received/bits_per_second").and_then(Value::as_f64);
        bits.map(|bits| bits / 8.0).ok_or_else(|| Failure::new("iperf3 said no rate"))
    }

    /// Bytes and messages per second.
    fn perf(&self, perf: &Path, shape: &Shape) -> Result<[f64; 2], Failure> {
        let crc = if shape.crc { "crc" } else { "nocrc" };
        let log = workspace::kept("logs")?.join("rdma-perf.log");
        let server = Step::new(perf).args(["serve", crc]).hold_input();
        let mut running: Running =
            server.on_core(self.placement.server()).quiet().serve(&log, true)?;
        let address = announced(&mut running, &log, |line| Some(line.trim().to_owned()))?;
        let depth = if shape.counts_messages() { "64" } else { "16" };
        let (size, seconds) = (shape.size.to_string(), self.seconds.to_string());
        let client = [shape.operation, &address, &size, depth, &seconds, crc];
        let client = Step::new(perf).args(client).on_core(self.placement.client()).quiet();
        let line = client.limit(LIMIT).output()?;
        let field = |name: &str| {
            let mut pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
            let found = pairs.find(|(key, _)| *key == name)?;
            found.1.parse::<f64>().ok()
        };
        match (field("bytes_per_s"), field("messages_per_s")) {
            (Some(bytes), Some(messages)) => Ok([bytes, messages]),
            _ => Err(Failure::new(format!("perf printed {line:?}"))),
        }
    }
}

fn built() -> Result<PathBuf, Failure> {
    workspace::build_of(["--quiet", "--example", "perf"]).run()?;
    Ok(workspace::target().join(Path::new("release/examples/perf")))
}

fn middle(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn smallest(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::INFINITY, f64::min)
}

const LIMIT: Duration = Duration::from_secs(60);
