//! `landfast bench`: several modes on equal files, measured in turns within one run.
//!
//! ```text
//!  main thread                 worker threads (-t), each with one connection per mode
//!  for every slice:            .--------------------------------------------.
//!    for every mode:   ------> | run the mode's arm until the slice is over |
//!      read CPU counters       '--------------------------------------------'
//!      add up        <-------- latencies
//! ```
//!
//! Turns are short, so that noise of the machine affects all modes alike; an arm outside its turn
//! is idle, and its adaptive engines sleep.

mod arm;
mod cores;
pub(crate) mod files;
pub(crate) mod floor;
pub(crate) mod made;
mod pace;
pub(crate) mod plan;
pub(crate) mod process;
mod push;
pub(crate) mod report;
mod smb;

use std::io::{IsTerminal, Write as _};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use client::SmbUrl;

use self::arm::{Arm, Recording};
use self::cores::Placed;
use self::made::Made;
use self::plan::{Operations, Plan};
use self::process::Usage;
use self::report::{Conditions, Measurement, Report};
use crate::args::{Bench, Mode};
use crate::failure::Failure;
use crate::interrupt::{self, Asked};
use crate::{output, remote};

/// Runs the benchmark and prints its report.
pub(crate) fn run(options: &Bench) -> Result<(), Failure> {
    let report = interrupt::watch(|asked| measure(options, asked))?;
    match options.json {
        true => output::say(&format!("{:#}\n", report.json())),
        false => output::say(&report.table()),
    }
}

/// Runs the benchmark, unless a signal ends it.
pub(crate) fn measure(options: &Bench, asked: &Asked) -> Result<Report, Failure> {
    let named = |failure: Failure| match remote::url(&options.url) {
        Ok(url) => failure.about("cannot measure", &url),
        Err(_) => failure,
    };
    measure_unnamed(options, asked).map_err(named)
}

fn measure_unnamed(options: &Bench, asked: &Asked) -> Result<Report, Failure> {
    let plan = Plan::new(options)?;
    let mut url = remote::url(&options.url)?;
    if url.path.is_empty() {
        url.path = FILE.into();
    }
    let responder = if plan.modes.contains(&Mode::Floor) && options.floor.is_none() {
        Some(floor::Responder::start(plan.poll)?)
    } else {
        None
    };
    let floor = options.floor.or_else(|| responder.as_ref().map(floor::Responder::address));
    let addresses = Addresses { server: remote::address(&url)?, floor };
    let servers: Vec<Option<u32>> =
        plan.modes.iter().map(|mode| addresses.of(*mode).and_then(process::listener)).collect();
    let placed = Placed::put(plan.placement, &servers)?;
    let made = Made::default();
    let measured = thread::scope(|scope| {
        let workers: Vec<Worker> = (0..plan.threads)
            .map(|index| {
                let (turns, inbox) = sync_channel(1);
                let (outbox, results) = sync_channel(1);
                let run = Run { plan: &plan, url: &url, floor, made: &made, asked };
                scope.spawn(move || serve_turns(run, index, &inbox, &outbox));
                Worker { turns, results }
            })
            .collect();
        take_turns(&plan, &servers, &workers, !options.json, asked)
    });
    if let Err(failure) = made.remove() {
        // The measurements are valid all the same.
        let _ = writeln!(std::io::stderr(), "landfast: {failure}: it is left there");
    }
    let measurements = measured?;
    let placement = placed.description.clone();
    // Dropped before the conditions are written down: these count the cores that this process may
    // use.
    drop(placed);
    Ok(Report { measurements, conditions: conditions(&plan, placement) })
}

/// The addresses of the processes under test.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    server: SocketAddr,
    floor: Option<SocketAddr>,
}

impl Addresses {
    fn of(self, mode: Mode) -> Option<SocketAddr> {
        if mode == Mode::Floor { self.floor } else { Some(self.server) }
    }
}

/// The main thread's end of a worker.
struct Worker {
    turns: SyncSender<Turn>,
    results: Receiver<Result<Recording, Failure>>,
}

/// The order to run this arm for that time.
#[derive(Clone, Copy, Debug)]
struct Turn {
    mode: usize,
    length: Duration,
}

fn take_turns(
    plan: &Plan,
    servers: &[Option<u32>],
    workers: &[Worker],
    talk: bool,
    asked: &Asked,
) -> Result<Vec<Measurement>, Failure> {
    let mut measurements: Vec<Measurement> =
        plan.modes.iter().map(|mode| Measurement::new(name(*mode))).collect();
    for (mode, _) in plan.modes.iter().enumerate() {
        // One turn that is not counted: connections, page faults and branch predictors warm up.
        one_turn(workers, Turn { mode, length: WARM_UP }, None, &mut Measurement::new("warm-up"))?;
    }
    for slice in 0..plan.slices {
        for (mode, measurement) in measurements.iter_mut().enumerate() {
            asked.check()?;
            progress(talk, slice, plan.slices, measurement.name);
            one_turn(workers, Turn { mode, length: plan.slice }, servers[mode], measurement)?;
        }
    }
    progress(talk, plan.slices, plan.slices, "");
    Ok(measurements)
}

/// Lets all workers run one arm and adds their measurements to `measurement`.
fn one_turn(
    workers: &[Worker],
    turn: Turn,
    server: Option<u32>,
    measurement: &mut Measurement,
) -> Result<(), Failure> {
    let client_before = Usage::of(std::process::id());
    let server_before = server.map(Usage::of);
    let started = Instant::now();
    for worker in workers {
        // A worker that has ended has left its error in the results.
        let _ = worker.turns.send(turn);
    }
    for worker in workers {
        let recording = worker.results.recv().map_err(|_| Failure::Child {
            process: "a bench thread",
            what: "ended before its turn".into(),
        })??;
        measurement
            .latency_ns
            .add(&recording.latency_ns)
            .expect("all histograms have the same bounds");
        measurement.bytes += recording.bytes;
        measurement.durability = recording.durability;
        measurement.commit = recording.commit;
    }
    measurement.elapsed += started.elapsed();
    measurement.client.add(Usage::of(std::process::id()).since(client_before));
    if let (Some(pid), Some(before)) = (server, server_before) {
        measurement.server.get_or_insert_default().add(Usage::of(pid).since(before));
    }
    Ok(())
}

/// The thread of a worker: connects every arm, then runs the arm of each turn.
fn serve_turns(
    run: Run<'_>,
    index: usize,
    inbox: &Receiver<Turn>,
    outbox: &SyncSender<Result<Recording, Failure>>,
) {
    let connect = |mode: &Mode| -> Result<Box<dyn Arm>, Failure> {
        run.open(*mode, &own_file(run.url, *mode, index))
    };
    let mut arms: Vec<(Box<dyn Arm>, Operations)> = Vec::new();
    for mode in &run.plan.modes {
        match connect(mode) {
            Ok(arm) => arms.push((arm, run.plan.operations(index))),
            Err(failure) => {
                let _ = outbox.send(Err(failure));
                return;
            }
        }
    }
    while let Ok(turn) = inbox.recv() {
        let (arm, operations) = &mut arms[turn.mode];
        let mut recording = Recording::new(arm.durability(), arm.commit());
        let outcome = arm.run(operations, Instant::now() + turn.length, &mut recording);
        if outbox.send(outcome.map(|()| recording)).is_err() {
            return;
        }
    }
}

/// Every arm of every thread has a file of its own, because push mode needs the lease of the file
/// for itself.
fn own_file(url: &SmbUrl, mode: Mode, thread: usize) -> SmbUrl {
    SmbUrl { path: format!("{}.{}.{thread}", url.path, name(mode)), ..url.clone() }
}

/// What all workers measure.
#[derive(Clone, Copy, Debug)]
struct Run<'a> {
    plan: &'a Plan,
    url: &'a SmbUrl,
    floor: Option<SocketAddr>,
    made: &'a Made,
    asked: &'a Asked,
}

impl Run<'_> {
    fn open(self, mode: Mode, url: &SmbUrl) -> Result<Box<dyn Arm>, Failure> {
        let Self { plan, floor, .. } = self;
        if mode != Mode::Floor {
            self.made.prepare(url, plan, self.asked)?;
        }
        match mode {
            Mode::Floor => {
                let address = floor.expect("a responder was started or named for the floor mode");
                Ok(Box::new(floor::Floor::connect(address, plan)?))
            }
            Mode::Smb => Ok(Box::new(smb::Smb::over_tcp(url, plan)?)),
            Mode::SmbDirect => Ok(Box::new(smb::Smb::over_smb_direct(url, plan)?)),
            Mode::Push => Ok(Box::new(push::Push::connect(url, plan)?)),
        }
    }
}

fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Floor => "floor",
        Mode::Smb => "smb",
        Mode::SmbDirect => "smb-direct",
        Mode::Push => "push",
    }
}

fn conditions(plan: &Plan, placement: String) -> Conditions {
    let line = |path| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    Conditions {
        block: plan.block,
        threads: plan.threads,
        outstanding: plan.outstanding,
        write_percent: plan.write_percent,
        committed: !plan.uncommitted,
        think_us: plan.think.as_micros(),
        random: plan.random,
        rdma_provider: plan.rdma_provider.name(),
        poll: format!("{:?}", plan.poll).to_lowercase(),
        placement,
        cores: thread::available_parallelism().map_or(1, usize::from),
        kernel: line("/proc/sys/kernel/osrelease"),
        load_average: line("/proc/loadavg"),
    }
}

/// A line that rewrites itself, only if standard error is a terminal.
fn progress(talk: bool, done: u32, total: u32, mode: &str) {
    let mut out = std::io::stderr();
    if talk && out.is_terminal() {
        let _ = write!(out, "\r\x1b[K");
        if done < total {
            let _ = write!(out, "slice {} of {total}: {mode}", done + 1);
        }
        let _ = out.flush();
    }
}

// The file of a URL that names only a share.
const FILE: &str = "landfast-bench.dat";
const WARM_UP: Duration = Duration::from_millis(200);
