//! The work that redb's own table of results is made of, on its own file and on our storage: keys of 24 bytes and values of
//! 150 at random, a bulk load, transactions of one row and of 1,000, reads, ranges of 10 rows, removals of half, compaction.
//!
//! ```sh
//! cargo run --release -p landfast-redb-backend --example redb_workload -- DIRECTORY [ROWS]
//! ```
//! One line for each arm and part: the arm, the part, and milliseconds, separated by tabs. `DIRECTORY` is on a disk; the
//! memory is emulated persistence in /dev/shm. Other counts shrink with ROWS, which is 5,000,000 in redb's table and
//! 250,000 here unless said otherwise.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use logged::{LocalBase, Logged, Members, Options, Place};
use pmem::LocalMemory;
use redb::{Builder, Database, ReadableDatabase as _, ReadableTableMetadata as _, TableDefinition};
use redb_backend::{LoggedBackend, MemoryBackend};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("x");
const BATCH: u64 = 1_000;
const RANGE: usize = 10;
const LOG: u64 = 64 << 20;

/// Rows that a seed decides (splitmix64).
struct Rows(u64);

impl Rows {
    fn next(&mut self) -> ([u8; 24], [u8; 150]) {
        let (mut key, mut value) = ([0; 24], [0; 150]);
        key.chunks_mut(8).chain(value.chunks_mut(8)).for_each(|piece| {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut number = self.0;
            number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let bytes = (number ^ (number >> 31)).to_le_bytes();
            piece.copy_from_slice(&bytes[..piece.len()]);
        });
        (key, value)
    }
}

/// One transaction that inserts so many rows.
fn insert(database: &Database, rows: &mut Rows, count: u64) -> Outcome<()> {
    let write = database.begin_write()?;
    {
        let mut table = write.open_table(TABLE)?;
        for _ in 0..count {
            let (key, value) = rows.next();
            table.insert(key.as_slice(), value.as_slice())?;
        }
    }
    Ok(write.commit()?)
}

fn work(arm: &str, database: &mut Database, rows_of_load: u64) -> Outcome<()> {
    let timed = |part: &str, begun: Instant| {
        println!("{arm}\t{part}\t{:.1}", begun.elapsed().as_secs_f64() * 1e3);
    };
    let mut rows = Rows(3);
    let begun = Instant::now();
    insert(database, &mut rows, rows_of_load)?;
    timed(&format!("bulk load of {rows_of_load}"), begun);
    let (single, batches) = ((rows_of_load / 250).max(100), (rows_of_load / 10_000).max(4));
    let begun = Instant::now();
    (0..single).try_for_each(|_| insert(database, &mut rows, 1))?;
    timed(&format!("{single} transactions of one row"), begun);
    let begun = Instant::now();
    (0..batches).try_for_each(|_| insert(database, &mut rows, BATCH))?;
    timed(&format!("{batches} transactions of {BATCH} rows"), begun);
    let all = rows_of_load + single + batches * BATCH;
    {
        let read = database.begin_read()?;
        let table = read.open_table(TABLE)?;
        if table.len()? != all {
            return Err(format!("{arm}: {} rows of {all}", table.len()?).into());
        }
        let (mut again, count) = (Rows(3), rows_of_load / 5);
        let begun = Instant::now();
        for _ in 0..count {
            let (key, value) = again.next();
            let found = table.get(key.as_slice())?;
            if found.is_none_or(|found| found.value() != value) {
                return Err(format!("{arm}: a row is not what was inserted").into());
            }
        }
        timed(&format!("{count} reads"), begun);
        let (mut again, count) = (Rows(3), rows_of_load / 10);
        let begun = Instant::now();
        for _ in 0..count {
            let (key, _) = again.next();
            table.range(key.as_slice()..)?.take(RANGE).try_for_each(|row| row.map(drop))?;
        }
        timed(&format!("{count} ranges of {RANGE}"), begun);
    }
    let begun = Instant::now();
    let write = database.begin_write()?;
    {
        let (mut table, mut again) = (write.open_table(TABLE)?, Rows(3));
        for _ in 0..all / 2 {
            table.remove(again.next().0.as_slice())?;
        }
    }
    write.commit()?;
    timed(&format!("{} removals", all / 2), begun);
    let begun = Instant::now();
    database.compact()?;
    timed("compaction", begun);
    Ok(())
}

fn on_log(directory: &Path, log: &Path) -> Outcome<Database> {
    let members = Members {
        places: vec![Place::Local(log.join("tail.log"))],
        len: LOG,
        emulate_persistence: true,
        given_up: logged::MemberSet::default(),
    };
    let base = Arc::new(LocalBase::open(&directory.join("logged.redb"))?);
    let side = Arc::new(LocalBase::open(&directory.join("logged.side"))?);
    let file = Logged::open(base, side, &members, &Options::default())?;
    Ok(Builder::new().create_with_backend(LoggedBackend::new(file))?)
}

fn in_memory(directory: &Path, len: u64) -> Outcome<Database> {
    let path = directory.join("memory.redb");
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(path)?;
    file.set_len(len)?;
    let medium = pmem::map_file(&file, len, pmem::OpenOptions { emulate_persistence: true })?;
    let memory = LocalMemory::new(medium, 0..len)?;
    Ok(Builder::new().create_with_backend(MemoryBackend::open(memory)?)?)
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (directory, rows): (_, u64) = match &arguments[..] {
        [directory] => (directory, 250_000),
        [directory, rows] => (directory, rows.parse()?),
        _ => return Err("usage: redb_workload DIRECTORY [ROWS]".into()),
    };
    let disk = tempfile::tempdir_in(directory)?;
    let memory = tempfile::tempdir_in("/dev/shm")?;
    let len = (rows * 2_048).next_multiple_of(4096) + (64 << 20);
    work("own file", &mut Database::create(disk.path().join("own.redb"))?, rows)?;
    work("logged file", &mut on_log(disk.path(), memory.path())?, rows)?;
    work("memory", &mut in_memory(memory.path(), len)?, rows)?;
    Ok(())
}
