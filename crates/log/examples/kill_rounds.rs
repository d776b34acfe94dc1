//! Eight writers on a mirrored log with an archive, killed again and again: nothing acknowledged is lost, torn or out of
//! order, in the tail or in the archive.
//!
//! ```sh
//! cargo run --release -p landfast-log --example kill_rounds -- 500
//! ```
//! The members are files in /dev/shm whose persistence is emulated, which is what SIGKILL can test; the archive is a file
//! on the disk of the working directory. Each round starts a process of its own, which says each acknowledgement through a
//! pipe.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use log::{
    Archive, CreateOptions, DestageOptions, Destager, DeviceStore, LocalStore, OpenOptions, Store,
    TailLog,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const WRITERS: usize = 8;
const RING: u64 = 256 << 10;
const ARCHIVE: u64 = 1 << 30;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("write") => write(Path::new(&args[1]), Path::new(&args[2]), &args[3..]),
        rounds => run(rounds.map_or(Ok(20), str::parse)?),
    }
}

fn members(memory: &Path) -> Outcome<Vec<Box<dyn Store>>> {
    let emulated = pmem::OpenOptions { emulate_persistence: true };
    let open = |name| LocalStore::open(&memory.join(name), 8192 + RING, emulated);
    Ok(vec![Box::new(open("first")?), Box::new(open("second")?)])
}

fn archive(disk: &Path) -> Outcome<Box<dyn Store>> {
    Ok(Box::new(DeviceStore::file(&disk.join("archive"), ARCHIVE)?))
}

/// The process that is killed.
fn write(memory: &Path, disk: &Path, next: &[String]) -> Outcome<()> {
    let log = Arc::new(TailLog::open(members(memory)?, &OpenOptions::default())?);
    let _destager = Destager::start(Arc::clone(&log), archive(disk)?, DestageOptions::default())?;
    std::thread::scope(|scope| {
        for (writer, next) in next.iter().enumerate() {
            let log = &log;
            scope.spawn(move || -> Result<(), String> {
                let mut number: u64 = next.parse().map_err(|_| "no number".to_owned())?;
                loop {
                    let record = record(writer, number);
                    let lsn = log.append_when_room(&record).map_err(|error| error.to_string())?;
                    log.commit(lsn).map_err(|error| error.to_string())?;
                    let mut said = [0; 9];
                    said[0] = u8::try_from(writer).map_err(|_| "few writers".to_owned())?;
                    said[1..].copy_from_slice(&number.to_le_bytes());
                    // One write of a few bytes to a pipe is never mixed with another.
                    std::io::stdout().write_all(&said).map_err(|error| error.to_string())?;
                    std::io::stdout().flush().map_err(|error| error.to_string())?;
                    number += 1;
                }
            });
        }
    });
    Ok(())
}

fn record(writer: usize, number: u64) -> Vec<u8> {
    let len = 16 + usize::try_from(number * 37 % 500).unwrap_or(0);
    let mut bytes = vec![number.to_le_bytes()[0]; len];
    bytes[..8].copy_from_slice(&(writer as u64).to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn run(rounds: u32) -> Outcome<()> {
    let (memory, disk) = (tempfile::tempdir_in("/dev/shm")?, tempfile::tempdir_in(".")?);
    drop(TailLog::create(members(memory.path())?, &CreateOptions::default())?);
    let mut next = [0_u64; WRITERS];
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut acknowledged, mut from_archive, mut found) = (0, 0, 0);
    for round in 1..=rounds {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let lives = Duration::from_micros(20_000 + (seed >> 40) % 150_000);
        let said = killed(memory.path(), disk.path(), next, lives)?;
        let mut acked = next;
        for (said, _) in said.as_chunks::<9>().0.iter().zip(0_u64..) {
            let number = u64::from_le_bytes(said[1..].try_into()?);
            acked[usize::from(said[0])] = acked[usize::from(said[0])].max(number + 1);
            acknowledged += 1;
        }
        let (archived, all) = check(memory.path(), disk.path(), &mut next)
            .map_err(|error| format!("round {round}: {error}"))?;
        (from_archive, found) = (from_archive + archived, found + all);
        for (writer, (has, acked)) in next.iter().zip(acked).enumerate() {
            if *has < acked {
                return Err(format!(
                    "round {round}: writer {writer} was told of {acked}, {has} are there"
                )
                .into());
            }
        }
    }
    println!(
        "{rounds} rounds: {acknowledged} acknowledged, {found} found, of these {from_archive} in the archive"
    );
    Ok(())
}

fn killed(memory: &Path, disk: &Path, next: [u64; WRITERS], lives: Duration) -> Outcome<Vec<u8>> {
    let program: PathBuf = std::env::current_exe()?;
    let mut child = Command::new(program)
        .args(["write".as_ref(), memory.as_os_str(), disk.as_os_str()])
        .args(next.map(|number| number.to_string()))
        .stdout(Stdio::piped())
        .spawn()?;
    let mut pipe = child.stdout.take().ok_or("no pipe")?;
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        pipe.read_to_end(&mut said).map(|_| said)
    });
    std::thread::sleep(lives);
    child.kill()?;
    child.wait()?;
    Ok(reader.join().map_err(|_| "the reader panicked")??)
}

/// Looks at every record, and forgets all of them.
fn check(memory: &Path, disk: &Path, next: &mut [u64; WRITERS]) -> Outcome<(u64, u64)> {
    let log = Arc::new(TailLog::open(members(memory)?, &OpenOptions::default())?);
    let (start, mut archived, mut all) = (log.start_lsn(), 0, 0);
    let mut look = |bytes: &[u8]| -> Outcome<()> {
        let writer = usize::try_from(u64::from_le_bytes(bytes[..8].try_into()?))?;
        let number = u64::from_le_bytes(bytes[8..16].try_into()?);
        if number != next[writer] || bytes != record(writer, number) {
            return Err(format!("writer {writer}: {number} where {} follows", next[writer]).into());
        }
        next[writer] += 1;
        all += 1;
        Ok(())
    };
    // A process that was killed early has made no archive yet.
    if let Ok(mut archive) = Archive::open(archive(disk)?, None) {
        let first = archive.start();
        for found in archive.replay(first) {
            let (lsn, bytes) = found?;
            if lsn < start {
                look(&bytes)?;
                archived += 1;
            }
        }
    }
    for found in log.replay(start)? {
        look(&found?.1)?;
    }
    let destager = Destager::start(Arc::clone(&log), archive(disk)?, DestageOptions::default())?;
    destager.forget(destager.drain()?)?;
    Ok((archived, all))
}
