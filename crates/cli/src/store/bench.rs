//! Measures a region of a store, and a plain push region beside it: the arms take turns in one run.

use std::time::{Duration, Instant};

use client::{RegionSettings, SmbUrl};
use hdrhistogram::Histogram;
use serde_json::json;
use store::meta::record::Class;
use store::{Allocation, Region, Rights, Store, StoreError, StoreOptions};

use super::args::Bench;
use super::failure::StoreFailure;
use super::opened::{is_there, key};
use crate::bench::made::Made;
use crate::failure::Failure;
use crate::interrupt::{self, Asked};
use crate::{output, remote};

/// One arm: what is done, and how long each took, in nanoseconds.
struct Arm {
    name: &'static str,
    took: Histogram<u64>,
    seconds: f64,
}

impl Arm {
    fn new(name: &'static str) -> Self {
        let took = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are possible");
        Self { name, took, seconds: 0.0 }
    }
}

/// Measures in a region that it makes and removes, or with `--existing` in one that is there.
pub(super) fn run(options: &Bench) -> Result<(), Failure> {
    let which = &options.of.which;
    is_there(&which.meta)?;
    let meta = store::meta::open(&which.meta).map_err(StoreFailure::from)?;
    let key = Some(key(which.key_file.as_deref(), &which.meta)?);
    let polling = options.poll.policy();
    let opened = Store::open(StoreOptions { polling, ..StoreOptions::new(meta, key) });
    let store = opened.map_err(StoreFailure::from)?;
    let plain = options.plain.as_deref().map(remote::url).transpose()?;
    let (arms, left) = interrupt::watch(|asked| {
        make_region(&store, options)?;
        let made = Made::default();
        let arms = measure(&store, options, plain.as_ref(), &made, asked);
        let region = if options.existing { Ok(()) } else { store.free(&options.of.name) };
        let left =
            [region.map_err(|error| Failure::from(StoreFailure::from(error))), made.remove()];
        Ok((arms?, left))
    })?;
    report(options, &arms)?;
    // The measurements are valid all the same.
    left.into_iter().collect()
}

fn make_region(store: &Store, options: &Bench) -> Result<(), Failure> {
    if options.existing {
        return Ok(());
    }
    let wanted = Allocation {
        copies: options.copies,
        // Daemons remove it where this process cannot.
        ephemeral: true,
        ..Allocation::new(options.size, options.class.into())
    };
    match store.create(&options.of.name, &wanted) {
        Ok(_) => Ok(()),
        Err(StoreError::Exists(name)) => Err(StoreFailure::Measured { name }.into()),
        Err(error) => Err(StoreFailure::from(error).into()),
    }
}

fn measure(
    store: &Store,
    options: &Bench,
    plain: Option<&SmbUrl>,
    made: &Made,
    asked: &Asked,
) -> Result<[Arm; 5], Failure> {
    let region = store.map(&options.of.name, Rights::READ | Rights::WRITE);
    let region = region.map_err(StoreFailure::from)?;
    let (block, len) = (options.block, region.len());
    if block == 0 || block > len {
        return Err(StoreFailure::Block { block, len }.into());
    }
    let mut plain = match plain {
        Some(url) => {
            let len = len.min(PLAIN_MAX);
            made.prepare_file(url, len, options.existing, asked)?;
            let polling = options.poll.policy();
            let settings =
                RegionSettings { polling, same_host: false, ..RegionSettings::default() };
            Some(remote::map(url, 0..len, settings)?)
        }
        None => None,
    };
    let durable = region.record().class != Class::Volatile;
    let mut arms = [
        Arm::new("store read"),
        Arm::new("store write"),
        Arm::new("store write, durable"),
        Arm::new("plain read"),
        Arm::new("plain write, committed"),
    ];
    let turn = options.seconds;
    for _ in 0..options.rounds {
        asked.check()?;
        of_store(&mut arms[0], &region, options, turn, What::Read)?;
        of_store(&mut arms[1], &region, options, turn, What::Write { durable: false })?;
        if durable {
            of_store(&mut arms[2], &region, options, turn, What::Write { durable: true })?;
        }
        if let Some(plain) = &mut plain {
            of_plain(&mut arms[3], plain, options, turn, false)?;
            of_plain(&mut arms[4], plain, options, turn, true)?;
        }
    }
    Ok(arms)
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum What {
    Read,
    Write { durable: bool },
}

fn of_store(
    arm: &mut Arm,
    region: &Region,
    options: &Bench,
    turn: Duration,
    what: What,
) -> Result<(), Failure> {
    let block = usize::try_from(options.block).unwrap_or(usize::MAX);
    let (payload, mut answer) = (vec![0x5a; block], vec![0; block]);
    let mut places = Places::new(region.len(), options.block);
    let begun = Instant::now();
    if options.outstanding <= 1 {
        while begun.elapsed() < turn {
            let (at, start) = (places.next(), Instant::now());
            let done = match what {
                What::Read => region.read(at, &mut answer),
                What::Write { durable: false } => region.write(at, &payload),
                What::Write { durable: true } => region.write_durable(at, &payload),
            };
            done.map_err(StoreFailure::from)?;
            arm.took.saturating_record(nanoseconds(start));
        }
    } else {
        let mut issued = std::collections::HashMap::new();
        while begun.elapsed() < turn || !issued.is_empty() {
            while issued.len() < options.outstanding && begun.elapsed() < turn {
                let (at, start) = (places.next(), Instant::now());
                let ticket = match what {
                    What::Read => region.submit_read(at, block),
                    What::Write { durable } => region.submit_write(at, &payload, durable),
                };
                issued.insert(ticket.map_err(StoreFailure::from)?, start);
            }
            let done =
                region.next_completion(Duration::from_secs(60)).map_err(StoreFailure::from)?;
            done.outcome.map_err(StoreFailure::from)?;
            if let Some(start) = issued.remove(&done.ticket) {
                arm.took.saturating_record(nanoseconds(start));
            }
        }
    }
    arm.seconds += begun.elapsed().as_secs_f64();
    Ok(())
}

fn of_plain(
    arm: &mut Arm,
    region: &mut client::Region,
    options: &Bench,
    turn: Duration,
    writes: bool,
) -> Result<(), Failure> {
    let block = usize::try_from(options.block).unwrap_or(usize::MAX);
    let (payload, mut answer) = (vec![0x5a; block], vec![0; block]);
    let mut places = Places::new(region.len(), options.block);
    let begun = Instant::now();
    while begun.elapsed() < turn {
        let (at, start) = (places.next(), Instant::now());
        if writes {
            region.write_commit(at, &payload)?
        } else {
            region.read(at, &mut answer)?
        }
        arm.took.saturating_record(nanoseconds(start));
    }
    arm.seconds += begun.elapsed().as_secs_f64();
    Ok(())
}

/// Blocks of a region in an order that no readahead follows.
struct Places {
    blocks: u64,
    block: u64,
    state: u64,
}

impl Places {
    fn new(len: u64, block: u64) -> Self {
        Self { blocks: len / block, block, state: 0x9e37_79b9_7f4a_7c15 }
    }

    fn next(&mut self) -> u64 {
        // xorshift64
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % self.blocks) * self.block
    }
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn report(options: &Bench, arms: &[Arm]) -> Result<(), Failure> {
    let measured = || arms.iter().filter(|arm| !arm.took.is_empty());
    let us = |ns: u64| ns as f64 / 1000.0;
    if options.json {
        let arms: Vec<_> = measured()
            .map(|arm| {
                json!({ "arm": arm.name, "operations": arm.took.len(), "seconds": arm.seconds,
                        "p50_us": us(arm.took.value_at_quantile(0.5)),
                        "p99_us": us(arm.took.value_at_quantile(0.99)) })
            })
            .collect();
        let all =
            json!({ "block": options.block, "outstanding": options.outstanding, "arms": arms });
        return output::say(&format!("{all}\n"));
    }
    let mut text = format!(
        "blocks of {} bytes, {} outstanding (plain arms: 1)\n{:<24} {:>12} {:>10} {:>10} {:>10}\n",
        options.block, options.outstanding, "arm", "per second", "p50 us", "p99 us", "MiB/s"
    );
    for arm in measured() {
        let rate = arm.took.len() as f64 / arm.seconds;
        text.push_str(&format!(
            "{:<24} {:>12.0} {:>10.2} {:>10.2} {:>10.0}\n",
            arm.name,
            rate,
            us(arm.took.value_at_quantile(0.5)),
            us(arm.took.value_at_quantile(0.99)),
            rate * options.block as f64 / 1_048_576.0
        ));
    }
    output::say(&text)
}

/// The plain file is no longer than this, whatever the region is.
const PLAIN_MAX: u64 = 256 << 20;
/// A minute: what takes longer counts as so long.
const LONGEST_NS: u64 = 60_000_000_000;
