//! `landfast-group-sim`: a group of replicated volumes on virtual time. One seed, one run.
//!
//! ```text
//! landfast-group-sim run --from 0 --seeds 2000    prints each seed that fails
//! landfast-group-sim replay SEED                  one run, with all that happened in it
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
mod tracks;
mod truth;
mod turns;
mod unheard;
mod ways;
mod wear;
mod wire;
mod world;
mod writers;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};

use crate::plan::Plan;
use crate::world::World;

#[derive(Parser)]
#[command(about = "A group of replicated volumes on virtual time: one seed, one run")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
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
    },
    /// Runs one seed and prints all that happens.
    Replay {
        /// The seed.
        seed: u64,
    },
}

#[allow(clippy::print_stdout, reason = "that is how it reports")]
fn main() -> ExitCode {
    match Arguments::parse().task {
        Task::Run { from, seeds, first, twice, limit } => {
            let until = limit.map(|limit| Instant::now() + Duration::from_secs(limit));
            run(from, seeds, &Manner { first, twice, until })
        }
        Task::Replay { seed } => {
            let plan = Plan::of(seed);
            println!("{plan:?}");
            let (outcome, sums) = World::run(&plan, true);
            println!("{sums}");
            match outcome {
                Ok(()) => ExitCode::SUCCESS,
                Err(fault) => {
                    println!("FAULT seed {seed}: {fault}");
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
}

#[allow(clippy::print_stdout, reason = "that is how it reports")]
fn run(from: u64, seeds: u64, manner: &Manner) -> ExitCode {
    let Manner { first, twice, until } = *manner;
    let (next, faults) = (AtomicU64::new(0), AtomicU64::new(0));
    let sums = std::sync::Mutex::new(world::Sums::default());
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
                        let once = World::run(&Plan::of(seed), false);
                        let again = twice.then(|| World::run(&Plan::of(seed), false));
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
                        println!("FAULT seed {seed}: {fault}");
                    }
                }
            });
        }
    });
    let (ran, faults) = (next.into_inner().min(seeds), faults.into_inner());
    println!("ran {ran} seeds, {faults} failed");
    println!("{}", sums.into_inner().unwrap_or_default());
    if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
