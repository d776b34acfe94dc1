//! What an append and its commit cost at a server, beside a push commit of the same bytes, and at two; and how fast a log
//! is read.
//!
//! ```sh
//! cargo run --release -p landfast-log --example log_remote [ROUNDS [OPERATIONS]]
//! ```
//! The arms take turns, and the table has the medians of each round's medians, and of the rounds' ratios. The servers are
//! threads of this process, their files are in /dev/shm and count as persistent memory: what is measured is the cost of the
//! code, not of a network or a device.

use std::error::Error;
use std::time::{Duration, Instant};

use client::{ConnectOptions, OpenOptions, Region, RegionSettings, SmbUrl, blocking};
use log::{CreateOptions, LocalStore, LogError, RemoteStore, Store, TailLog};
use server::{Running, Server, ServerConfig, ShareConfig, Users};
use smb::push::{Durability, PushRequest, Rights};

type Failure = Box<dyn Error>;

/// A server with files for logs.
struct Host {
    running: Running,
    client: blocking::Client,
    _share: tempfile::TempDir,
}

impl Host {
    fn start(runtime: &tokio::runtime::Runtime) -> Result<Self, Failure> {
        let share = tempfile::tempdir_in("/dev/shm")?;
        for name in NAMES {
            std::fs::File::create(share.path().join(name))?.set_len(LEN)?;
        }
        let mut config = ServerConfig::new("127.0.0.1:0".parse()?);
        config.rdma_listen = Some("127.0.0.1:0".parse()?);
        let mut exported = ShareConfig::new("share", share.path());
        exported.emulate_persistence = true;
        config.shares.push(exported);
        config.users = Users::with_passwords([("user", "secret")]);
        let running = runtime.block_on(Server::start(config))?;
        let port = running.tcp_address().port();
        let url: SmbUrl = format!("smb://user:secret@127.0.0.1:{port}/share").parse()?;
        let client = blocking::Client::connect(&url, &ConnectOptions::default())?;
        Ok(Self { running, client, _share: share })
    }

    fn region(&self, name: &str) -> Result<Region, Failure> {
        let options = OpenOptions::read_write().with_push(PushRequest {
            rights: Rights::READ | Rights::WRITE | Rights::FLUSH | Rights::ATOMIC_WRITE,
            durability: Durability::ANY,
            accept_emulated: true,
            regions_max: 1,
        });
        Ok(self.client.map(name, &options, 0..LEN, RegionSettings::default())?)
    }

    fn store(&self, name: &str) -> Result<Box<dyn Store>, Failure> {
        Ok(Box::new(RemoteStore::new(self.region(name)?)?))
    }
}

fn median<T: Copy + PartialOrd>(mut values: Vec<T>) -> T {
    values.sort_unstable_by(|one, other| one.partial_cmp(other).expect("numbers"));
    values[values.len() / 2]
}

fn push_commits(region: &mut Region, record: &[u8], operations: usize) -> Result<f64, Failure> {
    // As long as the log's record is, with its header.
    let bytes = vec![7; (record.len() + 32).next_multiple_of(64)];
    let room = LEN / bytes.len() as u64;
    let mut times = Vec::with_capacity(operations);
    for number in 0..operations as u64 {
        let begin = Instant::now();
        region.write_commit(number % room * bytes.len() as u64, &bytes)?;
        times.push(begin.elapsed());
    }
    Ok(micros(median(times)))
}

fn append_commits(log: &TailLog, record: &[u8], operations: usize) -> Result<f64, Failure> {
    let mut times = Vec::with_capacity(operations);
    while times.len() < operations {
        let begin = Instant::now();
        match log.append_commit(record) {
            Ok(_) => times.push(begin.elapsed()),
            Err(LogError::Full { .. }) => log.trim(log.durable_lsn())?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(micros(median(times)))
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Bytes of the ring that a replay reads in a second, in GB.
fn replay_rate(len: usize) -> Result<f64, Failure> {
    let emulated = pmem::OpenOptions { emulate_persistence: true };
    let store = LocalStore::of_medium(pmem::anonymous_with(REPLAYED, emulated)?);
    let log = TailLog::create(vec![Box::new(store)], &CreateOptions::default())?;
    let record = vec![7; len];
    let mut count = 0;
    loop {
        match log.append_commit(&record) {
            Ok(_) => count += 1,
            Err(LogError::Full { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let begin = Instant::now();
    let mut found = 0;
    for one in log.replay(log.start_lsn())? {
        found += usize::from(one?.1 == record);
    }
    let seconds = begin.elapsed().as_secs_f64();
    if found != count {
        return Err(format!("{found} records of {count}").into());
    }
    Ok(log.durable_lsn().since(log.start_lsn()) as f64 / seconds / 1e9)
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse());
    let (rounds, operations) = (number(7)?, number(5_000)?);
    let runtime = tokio::runtime::Runtime::new()?;
    let hosts = [Host::start(&runtime)?, Host::start(&runtime)?];
    let [first, second] = &hosts;
    let mut region = first.region("plain")?;
    let one = TailLog::create(vec![first.store("one")?], &CreateOptions::default())?;
    let both = vec![first.store("two")?, second.store("two")?];
    let two = TailLog::create(both, &CreateOptions::default())?;
    println!("p50 in µs, {rounds} rounds of {operations} in turns; ratios: medians of the rounds'");
    println!(
        "{:>6} {:>12} {:>8} {:>12} {:>9} {:>9}",
        "bytes", "push commit", "log", "mirror of 2", "log/push", "two/one"
    );
    for len in [64, 256, 4096] {
        let record = vec![7; len];
        let mut columns = [const { Vec::new() }; 5];
        for _ in 0..rounds {
            let control = push_commits(&mut region, &record, operations)?;
            let single = append_commits(&one, &record, operations)?;
            let mirror = append_commits(&two, &record, operations)?;
            let values = [control, single, mirror, single / control, mirror / single];
            columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
        }
        let [control, single, mirror, to_push, to_one] = columns.map(median);
        println!(
            "{len:>6} {control:>12.2} {single:>8.2} {mirror:>12.2} {to_push:>9.2} {to_one:>9.2}"
        );
    }
    for len in [64, 256, 4096] {
        let rates: Result<Vec<f64>, Failure> = (0..rounds).map(|_| replay_rate(len)).collect();
        println!("replay of records of {len} bytes: {:.2} GB/s of the ring", median(rates?));
    }
    drop((region, one, two));
    for host in hosts {
        drop(host.client);
        runtime.block_on(host.running.shutdown());
    }
    Ok(())
}

/// Files at each server.
const NAMES: [&str; 3] = ["plain", "one", "two"];
/// Bytes of each.
const LEN: u64 = 8192 + (16 << 20);
/// Bytes of the memory of the log that is replayed.
const REPLAYED: u64 = 8192 + (128 << 20);
