//! A group of replicated volumes as real processes, whose source is killed, paused, cut off and exchanged under load.
//!
//! ```text
//!   writers (load) --NBD--> landfast replica serve alpha  <--- links through namespaces --->  beta, gamma
//!                              ^
//!   rounds: kill -9, SIGSTOP, cuts, reversals ...; then all in sync, all blocks judged (ledger);
//!           every few rounds, at rest: the volumes of all members byte by byte, and `verify`
//! ```
//!
//! A seed decides what befalls the group and what the writers want; how processes and packets meet is up to the machine.
//! Times are shown, never judged.

mod client;
mod etcd;
mod ledger;
mod load;
mod members;
mod network;
mod random;
mod rounds;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;

use self::etcd::Etcd;
use self::load::Load;
use self::members::{Group, NAMES, Plan, VOLUMES};
use self::network::Network;
use self::random::Random;
use self::rounds::{Came, Fate, Stage, draw};
use crate::failure::{Failure, Outcome, Tally};
use crate::process::{Step, tail};
use crate::workspace;

/// Options of `cargo xtask failovers`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How often something befalls the group
    #[arg(long, default_value_t = 500)]
    rounds: u32,
    /// How many members
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=3))]
    members: u8,
    /// What repeats the same intentions
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// End after so many seconds, whatever the rounds
    #[arg(long)]
    seconds: Option<u64>,
    /// Three etcd processes: members are promoted by themselves
    #[arg(long)]
    etcd: bool,
    /// Records go from log to log by RDMA (provider soft)
    #[arg(long)]
    rdma: bool,
    /// Connections of each link between members
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8), conflicts_with = "rdma")]
    connections: u8,
    /// Keep logs and volumes on the disk instead of in memory
    #[arg(long)]
    disk: bool,
    /// Only what is called so, or has this in its name: "suspended", "reversal", "kill -9 of the source"
    #[arg(long)]
    only: Option<String>,
    /// Run `landfast demo replica` before
    #[arg(long)]
    demo: bool,
}

impl Options {
    /// What the suite has time for.
    pub(crate) fn short() -> Self {
        Self {
            rounds: 50,
            members: 3,
            seed: 1,
            seconds: Some(40),
            etcd: false,
            rdma: false,
            connections: 1,
            disk: false,
            only: None,
            demo: true,
        }
    }
}

/// Runs the rounds, and says what they came to.
pub(crate) fn run(options: &Options) -> Outcome {
    let mut tally = Tally::default();
    if options.demo {
        let step = Step::new(workspace::landfast()?).args(["demo", "replica", "-d", "1"]);
        let finished = step.limit(Duration::from_secs(120)).tee()?;
        let done = match finished.status.success() {
            true => Ok(()),
            false => Err(format!("{}{}", finished.status, tail(&finished.stdout))),
        };
        tally.count("landfast demo replica", done);
    }
    let scratch = match options.disk {
        true => workspace::scratch()?,
        false => workspace::scratch_on_tmpfs()?,
    };
    let mut run = Run::start(options, scratch.path())?;
    tally.skipped.append(&mut run.stage.group.network.lacking);
    let done = run.all_rounds();
    run.table.print(&run.stage.load, run.began.elapsed());
    if done.is_err() {
        let place = workspace::kept("failovers")?.join(format!("seed-{}", options.seed));
        run.stage.group.keep(&place)?;
        println!("  what the members said is in {}", place.display());
    }
    let seed = options.seed;
    let done = done.map_err(|failure| format!("seed {seed}, round {}: {failure}", run.round));
    tally.count("answered writes are there, and no other", done);
    tally.passed += run.table.rounds();
    tally.note = run.table.note(&run.stage.load);
    Ok(tally)
}

/// A group under load, and what has befallen it.
struct Run<'o> {
    options: &'o Options,
    began: Instant,
    round: u32,
    stage: Stage,
    table: Table,
    _etcd: Option<Etcd>,
}

impl<'o> Run<'o> {
    fn start(options: &'o Options, directory: &Path) -> Result<Self, Failure> {
        let members = usize::from(options.members);
        let mut random = Random::new(options.seed);
        let network = Network::new(members, directory)?;
        let etcd = options.etcd.then(|| Etcd::start(&network, directory)).transpose()?;
        let (values, tables) = match &etcd {
            Some(etcd) => (String::new(), etcd.table()),
            None => ("witness_file = \"witness\"".to_owned(), String::new()),
        };
        let values = format!("{values}\nconnections = {}", options.connections);
        let log_size = random.one(&["4M", "16M", "64M"]);
        println!(
            "  seed {}: {members} members, logs of {log_size}, {}{}",
            options.seed,
            if network.can_cut() { "each in a network namespace" } else { "on loopback" },
            if options.etcd { ", three etcd, promoted by themselves" } else { "" },
        );
        let plan = Plan { members, log_size, values, rdma: options.rdma, tables };
        let mut group = Group::create(directory, &plan, network)?;
        for member in 0..members {
            group.start(member)?;
        }
        let source = random.index(members);
        group.order(source, &["promote", "--force"])?;
        group.wait_in_sync(source)?;
        if options.rdma {
            group.wait("records go by RDMA", |group| {
                Ok(group.status(source).is_some_and(|status| {
                    let replicas = status["replicas"].as_array().map(Vec::as_slice);
                    let goes = |it: &serde_json::Value| {
                        it["transport"].as_str().is_some_and(|by| by.starts_with("rdma"))
                    };
                    replicas.unwrap_or_default().iter().all(goes)
                }))
            })?;
        }
        let sockets = (0..members).map(|member| group.socket(member)).collect();
        let load = Load::start(sockets, source, options.seed);
        let is_automatic = options.etcd;
        let stage = Stage { group, load, random, source, is_automatic, mark: 0 };
        let table = Table::default();
        Ok(Self { options, began: Instant::now(), round: 0, stage, table, _etcd: etcd })
    }

    fn all_rounds(&mut self) -> Result<(), Failure> {
        for round in 1..=self.options.rounds {
            let is_late = |limit| self.began.elapsed() >= Duration::from_secs(limit);
            if self.options.seconds.is_some_and(is_late) {
                break;
            }
            self.round = round;
            let began = Instant::now();
            let drawn = draw(&mut self.stage, self.options.only.as_deref())?;
            let source = NAMES[self.stage.source];
            let came = self.stage.befall(drawn.fate);
            if came.is_err() {
                println!("  round {round}, source {source}: {}", drawn.name);
            }
            let came = came?;
            self.table.add(drawn.fate, drawn.name, came, began.elapsed());
            let blocks = self.stage.load.check()?;
            self.table.judged += blocks;
            if round % COMPARED_EVERY == 0 {
                self.compare()?;
            }
            if let Some(panic) = self.stage.group.panicked() {
                return Err(Failure::new(panic));
            }
            if std::env::var_os("LANDFAST_FAILOVERS_LOG").is_some() {
                println!(
                    "  {round:>4} {source} -> {}: {} ({} ms, first answer {:?} ms)",
                    NAMES[self.stage.source],
                    drawn.name,
                    began.elapsed().as_millis(),
                    came.took.map(|took| took.as_millis()),
                );
            }
            self.stage.load.work();
        }
        self.stage.load.check()?;
        self.compare()
    }

    /// Nobody writes: all members hold the same bytes, and say so.
    fn compare(&mut self) -> Result<(), Failure> {
        let Stage { group, source, .. } = &mut self.stage;
        group.wait_in_sync(*source)?;
        group.wait_at_rest(*source)?;
        for (volume, (name, _)) in VOLUMES.iter().enumerate() {
            let read = |member| {
                let path = group.volume(member, volume);
                fs::read(&path).map_err(Failure::io("reading", &path))
            };
            let wanted = read(*source)?;
            for member in group.others(*source) {
                let found = read(member)?;
                if let Some(at) = differing(&wanted, &found) {
                    let (one, other) = (NAMES[*source], NAMES[member]);
                    return Err(Failure::new(format!(
                        "volume {name} differs between {one} and {other}, at byte {at}"
                    )));
                }
            }
        }
        group.order(*source, &["verify"])?;
        group.wait_at_rest(*source)?;
        for member in group.others(*source) {
            let status = group.status(member).unwrap_or_default();
            let name = NAMES[member];
            if status["verified"].as_u64().unwrap_or(0) == 0 {
                return Err(Failure::new(format!("{name} has verified nothing: {status}")));
            }
            if status["differences"] != 0 {
                return Err(Failure::new(format!("{name} found differences: {status}")));
            }
        }
        self.table.compared += 1;
        Ok(())
    }
}

fn differing(one: &[u8], other: &[u8]) -> Option<usize> {
    if one.len() != other.len() {
        return Some(one.len().min(other.len()));
    }
    one.iter().zip(other).position(|(one, other)| one != other)
}

/// What the rounds came to.
#[derive(Default)]
struct Table {
    rows: BTreeMap<Fate, Row>,
    /// Blocks that were read after rounds.
    judged: u64,
    compared: u32,
}

#[derive(Default)]
struct Row {
    name: &'static str,
    rounds: u32,
    changes: u32,
    /// From the end of a source to the first answer of the next one.
    took: Vec<Duration>,
    lasted: Vec<Duration>,
}

impl Table {
    fn add(&mut self, fate: Fate, name: &'static str, came: Came, lasted: Duration) {
        let row = self.rows.entry(fate).or_default();
        row.name = name;
        row.rounds += 1;
        row.changes += u32::from(came.changed);
        row.took.extend(came.took);
        row.lasted.push(lasted);
    }

    fn rounds(&self) -> u32 {
        self.rows.values().map(|row| row.rounds).sum()
    }

    fn changes(&self) -> u32 {
        self.rows.values().map(|row| row.changes).sum()
    }

    fn print(&self, load: &Load, lasted: Duration) {
        println!(
            "  {:<42} {:>6} {:>8} {:>10}   {:>24}",
            "what befell the group", "rounds", "changes", "round p50", "first answer p50/p99/max"
        );
        for row in self.rows.values() {
            println!(
                "  {:<42} {:>6} {:>8} {:>7} ms   {}",
                row.name,
                row.rounds,
                row.changes,
                ms(&row.lasted, 50),
                three(&row.took)
            );
        }
        let counts = load.counts();
        println!(
            "  in all {} rounds in {} s, {} changes of the source, all members compared {} times; {} writes answered, \
             {} in doubt, {} reads judged, {} blocks judged after rounds",
            self.rounds(),
            lasted.as_secs(),
            self.changes(),
            self.compared,
            counts.writes,
            counts.in_doubt,
            counts.reads,
            self.judged,
        );
    }

    fn note(&self, load: &Load) -> String {
        let killed = self.rows.get(&Fate::KillSource).map_or(&[][..], |row| &row.took);
        format!(
            "{} rounds, {} changes of the source, {} writes answered; SIGKILL to the next answer {}",
            self.rounds(),
            self.changes(),
            load.counts().writes,
            three(killed)
        )
    }
}

fn three(times: &[Duration]) -> String {
    if times.is_empty() {
        return "-".to_owned();
    }
    format!("{} / {} / {} ms", ms(times, 50), ms(times, 99), ms(times, 100))
}

fn ms(times: &[Duration], percent: usize) -> u128 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).map_or(0, Duration::as_millis)
}

/// Rounds after which all bytes of all members are compared.
const COMPARED_EVERY: u32 = 5;
