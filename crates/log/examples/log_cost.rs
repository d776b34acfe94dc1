//! What an append and its commit cost: beside a store and fence of the same bytes, and beside a push commit.
//!
//! ```sh
//! cargo run --release -p landfast-log --example log_cost
//! ```
//! The arms take turns, and the table has the medians of each round's medians. Memory is anonymous and counts as
//! persistent memory: what is measured is the cost of the code, not of a device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{CreateOptions, LocalStore, LogError, TailLog};
use pmem::Medium;

const ROUNDS: usize = 9;
const OPERATIONS: usize = 20_000;
const CAPACITY: u64 = 16 << 20;

fn memory() -> Result<Arc<dyn Medium>, Box<dyn std::error::Error>> {
    let emulated = pmem::OpenOptions { emulate_persistence: true };
    let medium = pmem::anonymous_with(CAPACITY + 8192, emulated)?;
    medium.prepare(0, medium.len())?;
    Ok(medium)
}

fn log_of(members: usize) -> Result<TailLog, Box<dyn std::error::Error>> {
    let mut stores = Vec::new();
    for _ in 0..members {
        stores.push(Box::new(LocalStore::of_medium(memory()?)) as Box<dyn log::Store>);
    }
    Ok(TailLog::create(stores, &CreateOptions::default())?)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Times each operation, and makes room where the log is full.
fn append_commits(log: &TailLog, record: &[u8]) -> Result<Duration, LogError> {
    let mut times = Vec::with_capacity(OPERATIONS);
    while times.len() < OPERATIONS {
        let begin = Instant::now();
        match log.append_commit(record) {
            Ok(_) => times.push(begin.elapsed()),
            Err(LogError::Full { .. }) => log.trim(log.durable_lsn())?,
            Err(error) => return Err(error),
        }
    }
    Ok(median(times))
}

fn stores_and_fences(medium: &dyn Medium, record: &[u8]) -> Result<Duration, pmem::MediumError> {
    let len = u64::try_from(record.len()).unwrap_or(0).next_multiple_of(64);
    let mut times = Vec::with_capacity(OPERATIONS);
    for number in 0..OPERATIONS as u64 {
        let offset = number * len % CAPACITY;
        let begin = Instant::now();
        medium.place(offset, record)?;
        medium.persist(offset, len)?;
        times.push(begin.elapsed());
    }
    Ok(median(times))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (plain, one, two) = (memory()?, log_of(1)?, log_of(2)?);
    println!(
        "{:>6} {:>14} {:>14} {:>14}   ns, p50 of {ROUNDS} rounds",
        "bytes", "store+fence", "log", "mirror of 2"
    );
    for len in [32, 64, 256, 4096] {
        let record = vec![7; len];
        let mut columns = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            columns[0].push(stores_and_fences(&*plain, &record)?);
            columns[1].push(append_commits(&one, &record)?);
            columns[2].push(append_commits(&two, &record)?);
        }
        let [control, single, mirror] = columns.map(|times| median(times).as_nanos());
        println!("{len:>6} {control:>14} {single:>14} {mirror:>14}");
    }
    Ok(())
}
