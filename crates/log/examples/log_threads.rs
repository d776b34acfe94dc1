//! What appends with their commits cost when several threads make them at once, beside threads that share nothing.
//!
//! ```sh
//! cargo run --release -p landfast-log --example log_threads
//! ```
//! Anonymous memory that counts as persistent; rounds in turns, the middle one.

use std::error::Error;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use log::{CreateOptions, LocalStore, LogError, TailLog};

const ROUNDS: usize = 5;
const TURN: Duration = Duration::from_millis(400);

fn log() -> Result<TailLog, Box<dyn Error>> {
    let emulated = pmem::OpenOptions { emulate_persistence: true };
    let medium = pmem::anonymous_with(64 << 20, emulated)?;
    let stores = vec![Box::new(LocalStore::of_medium(medium)) as _];
    Ok(TailLog::create(stores, &CreateOptions::default())?)
}

/// Records a second of so many threads, each with the log of its number modulo how many there are.
fn rate(logs: &[TailLog], threads: usize, len: usize) -> Result<f64, LogError> {
    let start = Barrier::new(threads);
    let counted = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let (log, start) = (&logs[number % logs.len()], &start);
                scope.spawn(move || -> Result<(u64, Duration), LogError> {
                    let record = vec![7; len];
                    start.wait();
                    let begun = Instant::now();
                    let mut count = 0;
                    while begun.elapsed() < TURN {
                        match log.append_commit(&record) {
                            Err(LogError::Full { .. }) => match log.trim(log.durable_lsn()) {
                                Ok(()) | Err(LogError::NoRecord { .. }) => {}
                                Err(error) => return Err(error),
                            },
                            done => count += done.map(|_| 1)?,
                        }
                    }
                    Ok((count, begun.elapsed()))
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|one| one.join().unwrap_or(Err(LogError::Broken)))
            .collect::<Vec<_>>()
    });
    let mut sum = 0.0;
    for one in counted {
        let (count, took) = one?;
        sum += f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / took.as_secs_f64();
    }
    Ok(sum)
}

fn main() -> Result<(), Box<dyn Error>> {
    let logs = [log()?, log()?, log()?, log()?];
    for len in [64, 256, 4096] {
        let arms: [(&str, usize, usize); 4] = [
            ("one thread", 1, 1),
            ("two, one log", 1, 2),
            ("four, one log", 1, 4),
            ("four, a log each", 4, 4),
        ];
        let mut rates = vec![Vec::new(); arms.len()];
        for _ in 0..ROUNDS {
            for ((_, shared, threads), rates) in arms.iter().zip(&mut rates) {
                rates.push(rate(&logs[..*shared], *threads, len)?);
            }
        }
        let middle = |rates: &mut Vec<f64>| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        };
        let middles: Vec<f64> = rates.iter_mut().map(middle).collect();
        for ((name, ..), rate) in arms.iter().zip(&middles) {
            println!(
                "{len:>5} B, {name:<18} {rate:>10.0} a second, {:.2} of one thread",
                rate / middles[0]
            );
        }
    }
    Ok(())
}
