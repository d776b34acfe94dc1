//! `landfast demo log`: a database on the tail of a log is killed and recovered, with what its commits cost.
//!
//! ```text
//!   1. measure  updates a second: redb with its file on the disk | the same with the tail of a log, in turns
//!   2. kill     a process of its own commits and says so --- SIGKILL ---> open again, every row that it told of is there
//! ```

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use logged::{LOG_LEN_DEFAULT, LocalBase, Logged, Members, Options, Place};
use redb::{Builder, Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use redb_backend::LoggedBackend;

use super::child;
use super::life::{MEMORY, kill, random_life};
use crate::args::DemoLog;
use crate::failure::Failure;
use crate::interrupt::Asked;
use crate::output;

const ROWS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");

/// Runs the demonstration.
pub(crate) fn run(options: &DemoLog, asked: &Asked) -> Result<(), Failure> {
    let base = options.directory.clone().unwrap_or_else(std::env::temp_dir);
    let disk = tempfile::Builder::new()
        .prefix("landfast-demo-")
        .tempdir_in(&base)
        .map_err(Failure::local("cannot make a directory in", &base))?;
    output::say(&format!(
        "database in {}, tail of its log ({} MiB) in memory: persistence is EMULATED, a killed program loses \
         nothing, a power failure what is in memory\n",
        disk.path().display(),
        LOG_LEN_DEFAULT >> 20,
    ))?;
    measure(disk.path(), options.duration_s, asked)?;
    for round in 1..=options.kills {
        asked.check()?;
        kill_and_check(disk.path(), round, options.kills)?;
    }
    Ok(())
}

fn measure(directory: &Path, seconds: f64, asked: &Asked) -> Result<(), Failure> {
    let plain = Database::create(directory.join("plain.redb")).map_err(failed)?;
    let (tail, _memory) =
        (open(&directory.join("measured"), true)?, Memory(directory.join("measured")));
    let turn = Duration::from_secs_f64((seconds / f64::from(2 * TURNS)).clamp(0.001, 60.0));
    let (mut of_plain, mut of_tail) = (0, 0);
    for _ in 0..TURNS {
        asked.check()?;
        of_plain += updates(&plain, turn)?;
        of_tail += updates(&tail, turn)?;
    }
    let took = (turn * TURNS).as_secs_f64();
    let rate = |count: u32| f64::from(count) / took;
    output::say(&format!(
        "updates of a row of 32 bytes, each a transaction, a second: {:.0} with redb's own file, {:.0} with the tail \
         of a log ({:.1} times)\n",
        rate(of_plain),
        rate(of_tail),
        rate(of_tail) / rate(of_plain).max(1.0),
    ))
}

fn updates(database: &Database, turn: Duration) -> Result<u32, Failure> {
    let begin = Instant::now();
    let mut count = 0_u32;
    while begin.elapsed() < turn {
        put(database, 0, &[u8::try_from(count % 251).expect("below 251"); 32])?;
        count += 1;
    }
    Ok(count)
}

fn put(database: &Database, key: u64, value: &[u8]) -> Result<(), Failure> {
    let write = database.begin_write().map_err(failed)?;
    write.open_table(ROWS).map_err(failed)?.insert(key, value).map_err(failed)?;
    write.commit().map_err(failed)
}

fn kill_and_check(directory: &Path, round: u32, kills: u32) -> Result<(), Failure> {
    let place = directory.join("killed");
    let _memory = (round == kills).then(|| Memory(place.clone()));
    let mut writer = child::command()?
        .args(["demo", "log", "--writer"])
        .arg(&place)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Failure::system("cannot start the writer"))?;
    let said = writer.stdout.take().expect("the output was asked to be piped");
    let (pid, life) = (writer.id(), random_life()?);
    let mut killer = None;
    let mut last = 0;
    for line in BufReader::new(said).lines() {
        let line = line.map_err(Failure::system("the writer's output"))?;
        last = line.parse().unwrap_or(last);
        // The moment is random on purpose, and counts from the first commit.
        killer.get_or_insert_with(|| {
            thread::spawn(move || {
                thread::sleep(life);
                kill(pid)
            })
        });
    }
    let killed = killer.map(thread::JoinHandle::join);
    writer.wait().map_err(Failure::system("the writer"))?;
    let lost = |what: String| Err(Failure::Child { process: "the writer", what });
    match killed {
        Some(Ok(outcome)) => outcome?,
        Some(Err(_)) | None => return lost("ended before it was killed".into()),
    }
    let begin = Instant::now();
    let mut database = open(&place, false)?;
    let took = begin.elapsed();
    let there = last_row(&database)?.unwrap_or(0);
    if there < last {
        return Err(Failure::Lost(format!("{last} rows were acknowledged, {there} are there")));
    }
    if !database.check_integrity().map_err(failed)? {
        return Err(Failure::Lost("the database had to be repaired".into()));
    }
    output::say(&format!(
        "kill {round} of {kills}: {last} rows acknowledged, {there} there, opened again in {:.1} ms\n",
        took.as_secs_f64() * 1e3,
    ))
}

/// The process of the demonstration that is killed: adds rows for ever, and says which are committed.
pub(super) fn write(directory: &Path) -> Result<(), Failure> {
    let database = open(directory, false)?;
    let mut out = std::io::stdout().lock();
    let mut number = last_row(&database)?.unwrap_or(0);
    loop {
        number += 1;
        put(&database, number, &number.to_le_bytes().repeat(4))?;
        writeln!(out, "{number}").map_err(Failure::system("standard output"))?;
    }
}

/// The last row, if every row up to it is there and holds what was put.
fn last_row(database: &Database) -> Result<Option<u64>, Failure> {
    let read = database.begin_read().map_err(failed)?;
    let table = match read.open_table(ROWS) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        table => table.map_err(failed)?,
    };
    let mut last = None;
    for row in table.iter().map_err(failed)? {
        let (key, value) = row.map_err(failed)?;
        let key = key.value();
        if key != last.unwrap_or(0) + 1 || value.value() != key.to_le_bytes().repeat(4) {
            return Err(Failure::Lost(format!("row {key} is not what was put")));
        }
        last = Some(key);
    }
    Ok(last)
}

/// Opens the database in `directory`, whose log is in memory.
fn open(directory: &Path, is_new: bool) -> Result<Database, Failure> {
    std::fs::create_dir_all(directory).map_err(Failure::local("cannot make", directory))?;
    let members = Members {
        places: vec![Place::Local(log_of(directory))],
        len: LOG_LEN_DEFAULT,
        emulate_persistence: true,
        given_up: logged::MemberSet::default(),
    };
    let file = |name: &str| {
        let path = directory.join(name);
        let opened = LocalBase::open(&path).map_err(Failure::local("cannot open", &path))?;
        Ok::<Arc<dyn logged::Base>, Failure>(Arc::new(opened))
    };
    let options = Options { give_up_log: is_new, ..Options::default() };
    let file = Logged::open(file("rows.redb")?, file("rows.log-state")?, &members, &options);
    let file = file.map_err(failed)?;
    Builder::new().create_with_backend(LoggedBackend::new(file)).map_err(failed)
}

/// The log of the database in a directory: a file in memory whose name no other directory has.
fn log_of(directory: &Path) -> PathBuf {
    let name = directory.to_string_lossy().replace('/', "-");
    Path::new(MEMORY).join(format!("landfast-demo-log{name}"))
}

/// Removes the log in memory at the end.
#[derive(Debug)]
struct Memory(PathBuf);

impl Drop for Memory {
    fn drop(&mut self) {
        // What is left over is a file of a demonstration.
        let _ = std::fs::remove_file(log_of(&self.0));
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Child { process: "the database", what: format!("failed: {error}") }
}

/// How often the two take turns.
const TURNS: u32 = 5;
