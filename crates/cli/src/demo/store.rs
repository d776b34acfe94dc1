//! `landfast demo store`: daemons of a striped store, one of which is killed under load.
//!
//! ```text
//!   3 daemons -> region of 2 copies -> numbered writes, each acknowledged --- SIGKILL of one daemon ---> they go on
//!   every acknowledged number is there -> the lost copies are filled on the third daemon -> there still
//! ```

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use basics::Environment;
use store::meta::record::Class;
use store::{Allocation, Region, Rights, Store, StoreKey, StoreOptions};

use super::child;
use crate::args::DemoStore;
use crate::failure::Failure;
use crate::interrupt::Asked;
use crate::output;
use crate::store::StoreFailure;

/// A daemon as a child process, which ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Daemon(Child);

impl Daemon {
    /// Ends it now.
    pub(super) fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs the demonstration; success means that every check held.
pub(super) fn run(options: &DemoStore, asked: &Asked) -> Result<(), Failure> {
    let base = options.directory.clone().unwrap_or_else(|| "/dev/shm".into());
    let directory = tempfile::Builder::new().prefix("landfast-store-").tempdir_in(&base);
    let directory = directory.map_err(Failure::local("cannot make a directory in", &base))?;
    let place = directory.path().join("meta");
    let place = place.to_string_lossy().into_owned();
    let meta = store::meta::open(&place).map_err(StoreFailure::from)?;
    let key = StoreKey::read_or_make(&Path::new(&place).join("key"), &Environment::host());
    let key = key.map_err(StoreFailure::from)?;
    let mut daemons = Vec::new();
    for name in SERVERS {
        daemons.push(Some(start(&directory.path().join(name), name, &place)?));
    }
    let store = Store::open(StoreOptions::new(Arc::clone(&meta), Some(key)));
    let store = store.map_err(StoreFailure::from)?;
    let class = *store
        .servers()
        .map_err(StoreFailure::from)?
        .values()
        .map(|server| &server.class)
        .next()
        .unwrap_or(&Class::Volatile);
    let wanted = Allocation { unit: 64 << 10, copies: 2, ..Allocation::new(SIZE, class) };
    store.create("demo", &wanted).map_err(StoreFailure::from)?;
    let region = store.map("demo", Rights::READ | Rights::WRITE).map_err(StoreFailure::from)?;
    output::say(&format!(
        "3 servers, class {class}, a region of {SIZE} bytes with 2 copies, writes of {BLOCK} bytes\n"
    ))?;
    let mut ledger = Ledger::new();
    let turn = Duration::from_secs_f64(options.duration_s);
    let before = ledger.write_for(&region, turn, asked)?;
    output::say(&format!(
        "{} writes acknowledged, the longest took {}\n",
        before.count,
        ms(before.longest)
    ))?;
    let mut longest = Duration::ZERO;
    for round in 0..options.kills {
        let index = usize::try_from(round).unwrap_or(0) % SERVERS.len();
        drop(daemons[index].take());
        let after = ledger.write_for(&region, turn, asked)?;
        longest = longest.max(after.longest);
        output::say(&format!(
            "kill -9 of {}: {} more writes acknowledged, the longest took {}\n",
            SERVERS[index],
            after.count,
            ms(after.longest)
        ))?;
        ledger.verify(&region)?;
        daemons[index] =
            Some(start(&directory.path().join(SERVERS[index]), SERVERS[index], &place)?);
        let done = store.rebuild("demo").map_err(StoreFailure::from)?;
        ledger.verify(&region)?;
        output::say(&format!(
            "every acknowledged write is there; {} copies filled again, {} bytes copied; all still there\n",
            done.copies, done.bytes
        ))?;
    }
    output::say(&format!("nothing acknowledged was lost; clients went on within {}\n", ms(longest)))
}

/// What was acknowledged: the number in each block.
struct Ledger {
    numbers: Vec<u64>,
    next: u64,
}

/// A turn of writes.
struct Written {
    count: u64,
    longest: Duration,
}

impl Ledger {
    fn new() -> Self {
        Self { numbers: vec![0; usize::try_from(SIZE).expect("16 MiB") / BLOCK], next: 0 }
    }

    fn write_for(
        &mut self,
        region: &Region,
        turn: Duration,
        asked: &Asked,
    ) -> Result<Written, Failure> {
        let (begun, mut longest, mut count) = (Instant::now(), Duration::ZERO, 0);
        while begun.elapsed() < turn {
            asked.check()?;
            self.next += 1;
            let index = usize::try_from(self.next.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20)
                .expect("44 bits")
                % self.numbers.len();
            let bytes = self.next.to_le_bytes().repeat(BLOCK / 8);
            let start = Instant::now();
            region.write(offset(index), &bytes).map_err(StoreFailure::from)?;
            longest = longest.max(start.elapsed());
            self.numbers[index] = self.next;
            count += 1;
        }
        Ok(Written { count, longest })
    }

    fn verify(&self, region: &Region) -> Result<(), Failure> {
        // Twice: reads take turns between the copies.
        for _ in 0..2 {
            for (index, number) in self.numbers.iter().enumerate() {
                let mut bytes = vec![0; BLOCK];
                region.read(offset(index), &mut bytes).map_err(StoreFailure::from)?;
                if bytes != number.to_le_bytes().repeat(BLOCK / 8) {
                    let found = bytes.get(..8).map(|word| format!("{word:02x?}"));
                    return Err(Failure::Lost(format!(
                        "block {index} holds {found:?} and not write {number}"
                    )));
                }
            }
        }
        Ok(())
    }
}

pub(super) fn start(directory: &Path, name: &str, meta: &str) -> Result<Daemon, Failure> {
    let mut child = child::command()?
        .args(["store", "serve", "--name", name, "--meta", meta])
        .arg(directory)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Failure::system("cannot start a daemon"))?;
    let output = child.stdout.take().expect("the output was asked to be piped");
    let daemon = Daemon(child);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).map_err(Failure::system("a daemon's output"))?;
    if !line.starts_with("store server") {
        let what = format!("said {line:?} instead of its addresses");
        return Err(Failure::Child { process: "the daemon", what });
    }
    Ok(daemon)
}

fn offset(index: usize) -> u64 {
    u64::try_from(index * BLOCK).expect("usize has at most 64 bits here")
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

const SERVERS: [&str; 3] = ["one", "two", "three"];
const SIZE: u64 = 16 << 20;
const BLOCK: usize = 4096;
