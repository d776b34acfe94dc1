//! Whether a connection whose pages are in memory is delayed by 64 others that miss.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rdma::PollPolicy;

use crate::limited::Server;
use crate::reads::Reader;
use crate::{Failure, Outcome, Plan, at, fill};

pub(crate) fn measure(plan: &Plan, path: &Path) -> Result<(), Failure> {
    fill(path, plan.len)?;
    println!(
        "file {} MiB, budget {} MiB, {} s each; the measured connection reads {} MiB that are in memory",
        plan.len >> 20,
        plan.budget >> 20,
        plan.time.as_secs(),
        HOT >> 20
    );
    println!(
        "{:<34} {:>9} {:>8} {:>8} {:>8} {:>10}",
        "beside", "reads/s", "p50 us", "p99 us", "p99.9", "others/s"
    );
    for (name, others_len) in
        [("nobody", 0), ("64 that hit", HOT), ("64 that miss", plan.len), ("nobody, again", 0)]
    {
        let mut server = Server::start("push", path, plan.len, plan.budget, (&plan.wait, 1))?;
        let polling = if plan.wait == "spin" { PollPolicy::Spin } else { PollPolicy::Block };
        let mut measured = Reader::open_with(&mut server, 1, true, polling, false)?;
        // Twice, so that the pages are used again and stay.
        measured.touch(HOT)?;
        measured.touch(HOT)?;
        let mut others = match others_len {
            0 => None,
            _ => Some(Reader::open_with(&mut server, OTHERS, true, PollPolicy::Block, false)?),
        };
        let is_over = AtomicBool::new(false);
        let (outcome, beside) = thread::scope(|scope| -> Result<(Outcome, u64), Failure> {
            let running = others.as_mut().map(|others| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut reads = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let part = others.run(Duration::from_millis(100), others_len);
                        reads += part.map_err(|error| error.to_string())?.reads;
                    }
                    Ok::<u64, String>(reads)
                })
            });
            measured.run(plan.time / 3, HOT)?;
            let outcome = measured.run(plan.time, HOT);
            is_over.store(true, Ordering::Relaxed);
            let beside = running.map(|running| running.join().map_err(|_| "a thread panicked")?);
            Ok((outcome?, beside.transpose()?.unwrap_or(0)))
        })?;
        report(name, outcome, beside, plan.time + plan.time / 3);
        server.stop()?;
    }
    Ok(())
}

fn report(name: &str, mut outcome: Outcome, beside: u64, time: Duration) {
    outcome.latencies.sort_unstable();
    let at = |of_thousand| at(&outcome.latencies, of_thousand);
    println!(
        "{name:<34} {:>9.0} {:>8.1} {:>8.1} {:>8.1} {:>10.0}",
        outcome.reads as f64 / outcome.took.as_secs_f64(),
        at(500),
        at(990),
        at(999),
        beside as f64 / time.as_secs_f64()
    );
}

const OTHERS: usize = 64;
/// Bytes that the measured connection reads.
const HOT: u64 = 4 << 20;
