//! Two clients that take a file from each other: one pushes into it, the other opens it meanwhile.
//!
//! ```text
//! rivals URL --rounds N --seed N [--kind yes]
//!
//!   holder: maps, writes, commits, reads ... <--its lease is asked back--  commits what it still can, closes
//!   rival:                          opens -------------------------------> looks, writes, ... looks again
//! ```
//!
//! The file has [`plan::FILE_LEN`] bytes and is there already; a page on each side of the region is nobody's. In each
//! round:
//!
//! - What the holder reads is what it wrote last.
//! - When the rival's open is answered, each word of each block is of the last acknowledged write of the block or of a
//!   later one; if the pointer names a write, that write counts as acknowledged.
//! - What is not there then never comes: no late byte, and no byte written again, follows what the rival writes.
//! - A commit that is acknowledged later was there, and a region that broke names the blocks that were not.
//! - No byte beside the region changes.
//!
//! Requests may fail, connections end and servers die; a round that cannot come on for long is a fault. With `--kind`
//! nothing may fail, and the holder must push. Exit status 1 if there was any fault, 3 if the disk has failed a flush of
//! the file: its server, as long as it lives, flushes it no more.

mod history;
mod holder;
mod plan;
mod rival;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use basics::SeededRandom;
use client::ClientError;

use crate::history::History;
use crate::holder::Holder;
use crate::plan::{ATTEMPTS, Contest, PAUSE, Random};
use crate::rival::Rival;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<ExitCode, Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, options @ ..] = words.as_slice() else {
        return Err("rivals URL --rounds N --seed N [--kind yes]".into());
    };
    let options: BTreeMap<&str, &str> =
        options.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    let number = |name: &str| -> Result<u64, Failure> {
        Ok(options.get(name).ok_or_else(|| format!("{name} is missing"))?.parse()?)
    };
    let contest = Contest { url: url.parse()?, is_kind: options.contains_key("--kind") };
    let (rounds, seed) = (number("--rounds")?, number("--seed")?);
    let random = Random(SeededRandom::new(seed));
    let mut written = 0;
    let mut faults = Vec::new();
    for round in 0..rounds {
        if let Err(found) = play(&contest, &random, &mut written) {
            if found == [rival::POISONED] {
                println!("{}", rival::POISONED);
                return Ok(ExitCode::from(3));
            }
            faults.extend(found.into_iter().map(|fault| format!("round {round}: {fault}")));
            break;
        }
    }
    for fault in &faults {
        println!("FAULT {fault}");
    }
    println!("{} faults", faults.len());
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One round. `written` is the number of the latest write of all rounds.
fn play(contest: &Contest, random: &Random, written: &mut u64) -> Result<(), Vec<String>> {
    let mut rival = Rival::new(contest, random.fork());
    rival.claim(written).map_err(|fault| vec![fault])?;
    let history = Mutex::new(History::new(*written, rival.numbers()));
    let mut holder = Holder::map(contest, random.fork(), &history).map_err(|fault| vec![fault])?;
    // The claim is over before the holder asks for the whole lease.
    let outcome = std::thread::scope(|scope| {
        let held = scope.spawn(|| {
            holder.work();
            holder.end()
        });
        let taken = rival.take(&history);
        let ended = held.join().unwrap_or_else(|_| Err("the holder panicked".to_owned()));
        taken.and(ended)
    });
    drop(holder);
    let outcome = outcome.and_then(|()| rival.look_again());
    let history = history.into_inner().unwrap_or_else(PoisonError::into_inner);
    *written = history.written();
    if !history.faults.is_empty() {
        history.done.iter().for_each(|step| eprintln!("  {step}"));
    }
    match outcome {
        Ok(()) if history.faults.is_empty() => Ok(()),
        Ok(()) => Err(history.faults),
        Err(fault) => Err(history.faults.into_iter().chain([fault]).collect()),
    }
}

impl Contest {
    /// Tries until it succeeds.
    fn repeat<T>(
        &self,
        what: &str,
        mut attempt: impl FnMut() -> Result<T, ClientError>,
    ) -> Result<T, String> {
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(error) if self.is_kind => return Err(format!("{what}: {error}")),
                Err(error) => last = error.to_string(),
            }
            std::thread::sleep(PAUSE);
        }
        Err(format!("{what} does not succeed: {last}"))
    }
}
