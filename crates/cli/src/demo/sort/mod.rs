//! `landfast demo sort`: a sort of gensort's records on one machine, shuffled through a striped store of several daemons, and,
//! as the control arm, through files.
//!
//! ```text
//!   generate --> input-0, input-1 ...                           (files)
//!   read, partition by key --> sizes of all runs --> offsets of all runs
//!   shuffle: each mapper writes its runs at their offsets, one-sidedly; each reducer reads what is its own
//!   sort --> write output-0, output-1 ... (synced) --> validate: order, number and checksum
//! ```

mod files;
mod records;
mod shuffle;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::files::{read, write};
use self::records::{Generator, RECORD, Summary, reducer, sort};
use self::shuffle::{Arm, Shuffle};
use crate::args::DemoSort;
use crate::failure::Failure;
use crate::interrupt::Asked;
use crate::output;

/// How long each part of an arm took, all workers at once.
#[derive(Clone, Copy, Debug, Default)]
struct Split {
    read: Duration,
    partition: Duration,
    shuffle: Duration,
    sort: Duration,
    write: Duration,
}

impl Split {
    fn total(&self) -> Duration {
        self.read + self.partition + self.shuffle + self.sort + self.write
    }
}

/// Sorts once for each arm; success means that every output was valid.
pub(super) fn run(options: &DemoSort, asked: &Asked) -> Result<(), Failure> {
    let base = options.directory.clone().unwrap_or_else(|| "/dev/shm".into());
    let directory = tempfile::Builder::new().prefix("landfast-sort-").tempdir_in(&base);
    let directory = directory.map_err(Failure::local("cannot make a directory in", &base))?;
    let workers = usize::try_from(options.workers).unwrap_or(1);
    let inputs: Vec<PathBuf> =
        (0..workers).map(|at| directory.path().join(format!("input-{at}"))).collect();
    let parts = parts(options.records, options.workers);
    let made = each(&inputs, |at, path| generate(path, parts[at].clone()))?;
    let wanted = made.into_iter().reduce(Summary::then).unwrap_or_default();
    let mut arms = vec![Arm::Files, Arm::Store { directory: directory.path().join("store") }];
    // Drawn, as what is removed at the end has to be nobody's.
    let on_flash = options.flash.as_ref().map(|flash| {
        let made = tempfile::Builder::new().prefix("landfast-sort-store-").tempdir_in(flash);
        made.map_err(Failure::local("cannot make a directory in", flash))
    });
    let on_flash = on_flash.transpose()?;
    if let Some(flash) = &on_flash {
        arms.push(Arm::Store { directory: flash.path().join("store") });
    }
    let mut rows = Vec::new();
    for arm in &arms {
        asked.check()?;
        let mut shuffle = Shuffle::start(arm, directory.path(), options.daemons)?;
        let (split, outputs) = sort_once(&inputs, directory.path(), &mut shuffle, asked)?;
        shuffle.end()?;
        let found = each(&outputs, |_, path| Ok(Summary::of(&read(path)?)))?;
        let found = found.into_iter().reduce(Summary::then).unwrap_or_default();
        if !found.is_of(&wanted) || !found.is_ordered {
            let (records, ordered) = (found.records, found.is_ordered);
            return Err(Failure::Lost(format!(
                "{} of {} records came out, in order: {ordered}, checksum {:x} instead of {:x}",
                records, wanted.records, found.checksum, wanted.checksum
            )));
        }
        rows.push((shuffle.name(), split));
        for path in outputs {
            fs::remove_file(&path).map_err(Failure::local("cannot remove", &path))?;
        }
    }
    report(options, &rows, wanted)
}

fn parts(records: u64, workers: u32) -> Vec<std::ops::Range<u64>> {
    let workers = u64::from(workers);
    (0..workers).map(|at| records * at / workers..records * (at + 1) / workers).collect()
}

fn generate(path: &Path, part: std::ops::Range<u64>) -> Result<Summary, Failure> {
    let mut generator = Generator::at(part.start);
    let mut bytes = Vec::new();
    part.for_each(|_| generator.push(&mut bytes));
    write(path, &bytes)?;
    Ok(Summary::of(&bytes))
}

/// One sort, and the paths of its outputs.
fn sort_once(
    inputs: &[PathBuf],
    directory: &Path,
    shuffle: &mut Shuffle,
    asked: &Asked,
) -> Result<(Split, Vec<PathBuf>), Failure> {
    let mut split = Split::default();
    let reducers = inputs.len();
    let read = timed(&mut split.read, || each(inputs, |_, path| read(path)))?;
    let runs =
        timed(&mut split.partition, || each(&read, |_, bytes| Ok(partition(bytes, reducers))))?;
    drop(read);
    asked.check()?;
    let begun = Instant::now();
    let sizes: Vec<Vec<u64>> =
        runs.iter().map(|runs| runs.iter().map(|run| wide(run.len())).collect()).collect();
    shuffle.plan(&sizes)?;
    each(&runs, |mapper, runs| shuffle.put(mapper, runs))?;
    drop(runs);
    let numbers: Vec<usize> = (0..reducers).collect();
    let mine = each(&numbers, |_, reducer| shuffle.take(*reducer))?;
    split.shuffle = begun.elapsed();
    asked.check()?;
    let sorted = timed(&mut split.sort, || each(&mine, |_, bytes| Ok(sort(bytes))))?;
    drop(mine);
    let outputs: Vec<PathBuf> =
        numbers.iter().map(|at| directory.join(format!("output-{at}"))).collect();
    timed(&mut split.write, || each(&sorted, |at, bytes| write(&outputs[at], bytes)))?;
    Ok((split, outputs))
}

fn partition(bytes: &[u8], reducers: usize) -> Vec<Vec<u8>> {
    let room = bytes.len() / reducers + bytes.len() / reducers / 8 + RECORD;
    let mut runs: Vec<Vec<u8>> = (0..reducers).map(|_| Vec::with_capacity(room)).collect();
    for record in bytes.chunks_exact(RECORD) {
        runs[reducer(record, reducers)].extend_from_slice(record);
    }
    runs
}

/// Works on each item in a thread of its own.
fn each<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(usize, &T) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    thread::scope(|scope| {
        let started: Vec<_> = items
            .iter()
            .enumerate()
            .map(|(at, item)| {
                let work = &work;
                scope.spawn(move || work(at, item))
            })
            .collect();
        started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn timed<T>(took: &mut Duration, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    *took = begun.elapsed();
    done
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).expect("usize has at most 64 bits here")
}

fn report(options: &DemoSort, rows: &[(String, Split)], of: Summary) -> Result<(), Failure> {
    let bytes = of.records * wide(RECORD);
    if options.json {
        let row = |(name, split): &(String, Split)| {
            json!({ "arm": name, "read_s": split.read.as_secs_f64(), "partition_s": split.partition.as_secs_f64(),
                    "shuffle_s": split.shuffle.as_secs_f64(), "sort_s": split.sort.as_secs_f64(),
                    "write_s": split.write.as_secs_f64(), "total_s": split.total().as_secs_f64() })
        };
        let arms: Vec<Value> = rows.iter().map(row).collect();
        let (workers, daemons) = (options.workers, options.daemons);
        return output::say(&format!(
            "{}\n",
            json!({ "records": of.records, "bytes": bytes, "workers": workers, "daemons": daemons,
                    "checksum": format!("{:x}", of.checksum), "valid": true, "arms": arms })
        ));
    }
    let mut text = format!(
        "{} records, {bytes} bytes, {} workers, {} daemons; seconds\n{:<34} {:>7} {:>9} {:>8} {:>7} {:>7} {:>7}\n",
        of.records,
        options.workers,
        options.daemons,
        "arm",
        "read",
        "partition",
        "shuffle",
        "sort",
        "write",
        "total"
    );
    for (name, split) in rows {
        let [read, partition, shuffle, sort, write, total] =
            [split.read, split.partition, split.shuffle, split.sort, split.write, split.total()]
                .map(|time| time.as_secs_f64());
        text.push_str(&format!(
            "{name:<34} {read:>7.3} {partition:>9.3} {shuffle:>8.3} {sort:>7.3} {write:>7.3} {total:>7.3}\n"
        ));
    }
    text.push_str("every output is valid: all records, in order, the checksum of the input\n");
    text.push_str("Ray's own shuffle is no arm of this command: python -m landfast.sort has it (docs/python.md)\n");
    output::say(&text)
}
