//! `landfast-group-sim`: a group of replicated volumes on virtual time. One seed, one run.
//!
//! ```text
//! landfast-group-sim run --from 0 --seeds 2000    prints each seed that fails
//! landfast-group-sim replay PLAN                  one run, with all that happened in it; PLAN is a seed, or what `run` printed
//! landfast-group-sim replay PLAN --brief          the same as a history: what went wrong, what members told and answered
//! ```
//!
//! The decisions are those of `replica::core`, as in production. Rings, volumes, labels, dirty maps, connections, the
//! witness and the clock are models here: what was not made durable may be lost, in any order, and a connection
//! delivers late, breaks at any message, or goes silent.

#![forbid(unsafe_code)]

#[path = "../chance.rs"]
#[allow(dead_code, reason = "each program uses its part")]
mod chance;
mod disk;
mod faults;
mod judge;
mod lanes;
mod member;
mod net;
mod plan;
mod shrink;
mod sums;
mod text;
mod tracks;
mod truth;
mod turns;
mod unheard;
mod ways;
mod wear;
mod wire;
mod world;
mod writers;
mod wrongs;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};

use crate::plan::Plan;
use crate::shrink::Failing;
use crate::world::{Tells, World};
use crate::wrongs::Kind;

#[derive(Parser)]
#[command(about = "A group of replicated volumes on virtual time: one seed, one run")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one")]
enum Task {
    /// Runs seeds on all cores and prints those that fail.
    Run {
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// How many seeds.
        #[arg(long, default_value_t = 2000)]
        seeds: u64,
        /// Ends at the first seed that fails.
        #[arg(long)]
        first: bool,
        /// Runs each seed twice: both runs have to be the same.
        #[arg(long)]
        twice: bool,
        /// Begins no seed after so many seconds.
        #[arg(long, value_name = "SECONDS")]
        limit: Option<u64>,
        /// Makes no plan smaller that fails.
        #[arg(long)]
        keep: bool,
    },
    /// Runs one plan and prints all that happens.
    Replay {
        /// A seed, or a plan as `run` prints it.
        plan: Plan,
        /// Prints what goes wrong, what members tell their operators, and what they answer, and nothing else.
        #[arg(long)]
        brief: bool,
    },
}

#[allow(clippy::print_stdout, reason = "that is how it reports")]
fn main() -> ExitCode {
    match Arguments::parse().task {
        Task::Run { from, seeds, first, twice, limit, keep } => {
            let until = limit.map(|limit| Instant::now() + Duration::from_secs(limit));
            run(from, seeds, &Manner { first, twice, until, keep })
        }
        Task::Replay { plan, brief } => {
            let tells = if brief { Tells::History } else { Tells::All };
            println!("{plan:?}");
            let (outcome, sums) = World::run(&plan, tells);
            println!("{sums}");
            match outcome {
                Ok(()) => ExitCode::SUCCESS,
                Err(fault) => {
                    println!("FAULT seed {plan}: {fault}");
                    ExitCode::FAILURE
                }
            }
        }
    }
}

/// How seeds are run.
struct Manner {
    first: bool,
    twice: bool,
    until: Option<Instant>,
    keep: bool,
}

#[allow(clippy::print_stdout, reason = "that is how it reports")]
fn run(from: u64, seeds: u64, manner: &Manner) -> ExitCode {
    let Manner { first, twice, until, keep } = *manner;
    let (next, faults, failing) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let sums = std::sync::Mutex::new(sums::Sums::default());
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let is_late = until.is_some_and(|until| Instant::now() >= until);
                    if at >= seeds || is_late || (first && faults.load(Ordering::Relaxed) > 0) {
                        break;
                    }
                    let seed = from + at;
                    let outcome = std::panic::catch_unwind(|| {
                        let once = World::run(&Plan::of(seed), Tells::Nothing);
                        let again = twice.then(|| World::run(&Plan::of(seed), Tells::Nothing));
                        let is_same = again.is_none_or(|again| again == once);
                        (once, is_same)
                    });
                    let fault = match outcome {
                        Ok((_, false)) => Some("two runs of it differ".to_owned()),
                        Ok(((outcome, of_seed), true)) => {
                            sums.lock().unwrap_or_else(|it| it.into_inner()).add(&of_seed);
                            outcome.err()
                        }
                        Err(_) => Some("a panic".to_owned()),
                    };
                    if let Some(fault) = fault {
                        faults.fetch_add(1, Ordering::Relaxed);
                        failing.fetch_min(seed, Ordering::Relaxed);
                        println!("FAULT seed {seed}: {fault}");
                    }
                }
            });
        }
    });
    let (ran, faults) = (next.into_inner().min(seeds), faults.into_inner());
    println!("ran {ran} seeds, {faults} failed");
    println!("{}", sums.into_inner().unwrap_or_default());
    if faults > 0 && !keep {
        shrink(failing.into_inner());
    }
    if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the smallest plan that fails as that of a seed does.
#[allow(clippy::print_stdout, reason = "that is how it reports")]
fn shrink(seed: u64) {
    let Some(failing) = Failing::of(Plan::of(seed)) else { return };
    // Each panic of a smaller plan would be told.
    std::panic::set_hook(Box::new(|_| {}));
    let Failing { plan, fault, sums, runs } = failing.shrunk();
    println!("seed {seed}, made smaller in {runs} runs: replay {plan} --brief");
    let left: Vec<String> = Kind::all()
        .filter_map(|kind| {
            let count = kind.count(&sums.wrongs);
            let happen = (0..count).filter(|number| !plan.left_out.has(kind, *number)).count();
            (happen > 0).then(|| format!("{happen} x {}", kind.name()))
        })
        .collect();
    let (members, writes) = (plan.members, sums.written);
    println!("  {members} members, {writes} writes, goes wrong: {}", left.join(", "));
    println!("  {fault}");
}
