//! The NBD server next to nbdkit's memory plugin: fio's nbd engine against both, in turns.
//!
//! Ours serves a volume of mode block in memory, whose every write is one that survives a crash as far as the memory
//! does; nbdkit serves memory alone. Both listen on unix sockets, with the server on one core and fio on another.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::failure::{Failure, Outcome, Tally};
use crate::machine::Watch;
use crate::nbd_server::{NbdServer, Volume};
use crate::placement::Placement;
use crate::process::{Running, Step};
use crate::workspace;

/// Options of `cargo xtask nbd-bench`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How often everything is measured.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Seconds of each turn.
    #[arg(long, default_value_t = 2)]
    pub(crate) seconds: u32,
    /// Fail if ours is slower than nbdkit in the middle of the rounds.
    #[arg(long)]
    pub(crate) assert: bool,
}

/// Measures all shapes in rounds and prints the middle of each.
pub(crate) fn run(options: &Options) -> Outcome {
    let placement = Placement::Apart;
    placement.check()?;
    let memory = workspace::scratch_on_tmpfs()?;
    let volume = Volume::create(&memory.path().join("volume"), "256M", &[])?;
    let ours = NbdServer::start_on(&volume, placement.server())?;
    let theirs = Nbdkit::start(memory.path(), placement.server())?;
    let bench =
        Bench { seconds: options.seconds, directory: memory.path(), core: placement.client() };
    let mut rows: Vec<(&Shape, Vec<f64>, Vec<f64>)> =
        SHAPES.iter().map(|shape| (shape, Vec::new(), Vec::new())).collect();
    for uri in [ours.uri(), theirs.uri.clone()] {
        // Memory that nobody has touched costs faults.
        bench.measure(&FILL, &uri)?;
    }
    let watch = Watch::start();
    for _ in 0..options.rounds {
        for (shape, of_ours, of_theirs) in &mut rows {
            of_ours.push(bench.measure(shape, &ours.uri())?);
            of_theirs.push(bench.measure(shape, &theirs.uri)?);
        }
    }
    let mut tally = Tally::default();
    for (shape, of_ours, of_theirs) in &rows {
        let quotients: Vec<f64> = of_ours.iter().zip(of_theirs).map(|(a, b)| a / b).collect();
        let quotient = middle(&quotients);
        println!(
            "  {:<26} landfast {:>9.0} /s, nbdkit {:>9.0} /s, ratio {quotient:.2}",
            shape.name,
            middle(of_ours),
            middle(of_theirs)
        );
        let met = quotient >= 1.0 || !options.assert;
        tally.count(shape.name, if met { Ok(()) } else { Err(format!("{quotient:.2} of nbdkit")) });
        let separator = if tally.note.is_empty() { "" } else { ", " };
        tally.note.push_str(&format!("{separator}{} {quotient:.2}", shape.name));
    }
    println!("  {}", watch.conditions());
    Ok(tally)
}

/// One kind of transfer.
struct Shape {
    name: &'static str,
    pattern: &'static str,
    block: &'static str,
    depth: &'static str,
}

const SHAPES: [Shape; 6] = [
    Shape { name: "4 KiB writes, 1 at a time", pattern: "randwrite", block: "4k", depth: "1" },
    Shape { name: "4 KiB reads, 1 at a time", pattern: "randread", block: "4k", depth: "1" },
    Shape { name: "4 KiB writes, 32", pattern: "randwrite", block: "4k", depth: "32" },
    Shape { name: "4 KiB reads, 32", pattern: "randread", block: "4k", depth: "32" },
    Shape { name: "128 KiB writes, 8", pattern: "write", block: "128k", depth: "8" },
    Shape { name: "128 KiB reads, 8", pattern: "read", block: "128k", depth: "8" },
];
const FILL: Shape = Shape { name: "fill", pattern: "write", block: "1m", depth: "4" };

struct Bench<'d> {
    seconds: u32,
    directory: &'d Path,
    core: usize,
}

impl Bench<'_> {
    /// Operations a second.
    fn measure(&self, shape: &Shape, uri: &str) -> Result<f64, Failure> {
        let Shape { pattern, block, depth, .. } = shape;
        let job = [
            "--name=bench".to_owned(),
            "--ioengine=nbd".to_owned(),
            format!("--uri={uri}"),
            format!("--rw={pattern}"),
            format!("--bs={block}"),
            format!("--iodepth={depth}"),
            "--size=192M".to_owned(),
            "--time_based".to_owned(),
            format!("--runtime={}", self.seconds),
            "--output-format=json".to_owned(),
        ];
        let step = Step::new("fio").args(&job).dir(self.directory).on_core(self.core).quiet();
        let output = step.limit(Duration::from_secs(120)).output()?;
        // fio writes notes before the JSON.
        let json = output.find('{').map_or("", |at| &output[at..]);
        let report: Value = serde_json::from_str(json).unwrap_or_default();
        let job = &report["jobs"][0];
        let rate = |way: &str| job[way]["iops"].as_f64().unwrap_or_default();
        let rate = rate("read") + rate("write");
        if rate > 0.0 {
            Ok(rate)
        } else {
            Err(Failure::new(format!("fio measured nothing: {output}")))
        }
    }
}

/// The control.
struct Nbdkit {
    _running: Running,
    uri: String,
}

impl Nbdkit {
    fn start(directory: &Path, core: usize) -> Result<Self, Failure> {
        let socket = directory.join("nbdkit.sock");
        let step = Step::new("nbdkit").args(["--foreground", "--unix"]).arg(&socket);
        let log = directory.join("nbdkit.log");
        let running = step.args(["memory", "256M"]).on_core(core).serve(&log, false)?;
        for _ in 0..START_TRIES {
            if socket.exists() {
                let uri = format!("nbd+unix:///?socket={}", socket.display());
                return Ok(Self { _running: running, uri });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(Failure::new("nbdkit does not listen").remedy("apt-get install nbdkit"))
    }
}

fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Looks for the control's socket, 20 ms apart.
const START_TRIES: usize = 250;
