//! Eight writers on a mirrored log with an archive, killed again and again: nothing acknowledged is lost, torn or out of
//! order, in the tail or in the archive.
//!
//! ```sh
//! cargo run --release -p landfast-log --example kill_rounds -- 500
//! cargo run --release -p landfast-log --example kill_rounds -- members 500
//! cargo run --release -p landfast-log --example kill_rounds -- alone 500
//! ```
//! With `members` the second member is a region of a server, a process of its own: two of three rounds kill it while the
//! owner writes, who goes on without it, and is killed later. It is in sync again before the next round.
//! With `alone` there is one member, where the writers place their records side by side.
//! The members are files in /dev/shm whose persistence is emulated, which is what SIGKILL can test; the archive is a file
//! on the disk of the working directory. Each round starts a process of its own, which says each acknowledgement through a
//! pipe.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{ConnectOptions, RegionSettings, SmbUrl, blocking};
use log::{
    Archive, CreateOptions, DestageOptions, Destager, DeviceStore, LocalStore, LogError,
    OpenOptions, RemoteStore, Store, TailLog,
};
use server::{Server, ServerConfig, ShareConfig, Users};
use smb::push::{Durability, PushRequest, Rights};

type Outcome<T> = Result<T, Box<dyn Error>>;

const WRITERS: usize = 8;
const RING: u64 = 256 << 10;
const ARCHIVE: u64 = 1 << 30;
/// In place of a server's port: there is no second member.
const ALONE: u16 = 1;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("write") => {
            write(Path::new(&args[1]), Path::new(&args[2]), args[3].parse()?, &args[4..])
        }
        Some("serve") => serve(Path::new(&args[1])),
        Some(how @ ("members" | "alone")) => {
            let rounds = args.get(1).map_or(Ok(20), |rounds| rounds.parse())?;
            run(rounds, how == "members", if how == "alone" { ALONE } else { 0 })
        }
        rounds => run(rounds.map_or(Ok(20), str::parse)?, false, 0),
    }
}

/// Two files, one, or a file and a region of the server at a port.
fn members(memory: &Path, port: u16) -> Outcome<Vec<Box<dyn Store>>> {
    let emulated = pmem::OpenOptions { emulate_persistence: true };
    let open = |name| LocalStore::open(&memory.join(name), 8192 + RING, emulated);
    if port == ALONE {
        return Ok(vec![Box::new(open("first")?)]);
    }
    let second: Box<dyn Store> = if port == 0 { Box::new(open("second")?) } else { remote(port)? };
    Ok(vec![Box::new(open("first")?), second])
}

/// The region, once the server has noticed that its last owner is dead.
fn remote(port: u16) -> Outcome<Box<dyn Store>> {
    let url: SmbUrl = format!("smb://user:secret@127.0.0.1:{port}/share").parse()?;
    let push = PushRequest {
        rights: Rights::READ | Rights::WRITE | Rights::FLUSH | Rights::ATOMIC_WRITE,
        durability: Durability::ANY,
        accept_emulated: true,
        regions_max: 1,
    };
    let begun = Instant::now();
    loop {
        let client = blocking::Client::connect(&url, &ConnectOptions::default())?;
        let options = client::OpenOptions::read_write().with_push(push);
        let region = client.map("tail", &options, 0..8192 + RING, RegionSettings::default())?;
        match RemoteStore::new(region) {
            Ok(store) => return Ok(Box::new(store)),
            Err(error) if begun.elapsed() > Duration::from_secs(20) => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The process of the second member.
fn serve(share: &Path) -> Outcome<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut config = ServerConfig::new("127.0.0.1:0".parse()?);
    config.rdma_listen = Some("127.0.0.1:0".parse()?);
    let mut exported = ShareConfig::new("share", share);
    exported.emulate_persistence = true;
    config.shares.push(exported);
    config.users = Users::with_passwords([("user", "secret")]);
    let running = runtime.block_on(Server::start(config))?;
    println!("{}", running.tcp_address().port());
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}

struct Member {
    process: Child,
    port: u16,
}

impl Member {
    fn start(share: &Path) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg(share)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let said = process.stdout.take().ok_or("no pipe")?;
        BufReader::new(said).read_line(&mut line)?;
        Ok(Self { process, port: line.trim().parse()? })
    }

    fn kill(&mut self) -> Outcome<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn archive(disk: &Path) -> Outcome<Box<dyn Store>> {
    Ok(Box::new(DeviceStore::file(&disk.join("archive"), ARCHIVE)?))
}

/// The process that is killed.
fn write(memory: &Path, disk: &Path, port: u16, next: &[String]) -> Outcome<()> {
    let log = Arc::new(TailLog::open(members(memory, port)?, &OpenOptions::default())?);
    let _destager = Destager::start(Arc::clone(&log), archive(disk)?, DestageOptions::default())?;
    std::thread::scope(|scope| {
        for (writer, next) in next.iter().enumerate() {
            let log = &log;
            scope.spawn(move || -> Result<(), String> {
                let mut number: u64 = next.parse().map_err(|_| "no number".to_owned())?;
                loop {
                    let record = record(writer, number);
                    loop {
                        match log.append_commit(&record) {
                            Err(LogError::Full { .. }) => log
                                .wait_for_room(record.len())
                                .map_err(|error| error.to_string())?,
                            outcome => {
                                outcome.map_err(|error| error.to_string())?;
                                break;
                            }
                        }
                    }
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

fn run(rounds: u32, kills_members: bool, no_member: u16) -> Outcome<()> {
    let (memory, disk) = (tempfile::tempdir_in("/dev/shm")?, tempfile::tempdir_in(".")?);
    let share = memory.path().join("share");
    std::fs::create_dir(&share)?;
    std::fs::File::create(share.join("tail"))?.set_len(8192 + RING)?;
    let mut member = if kills_members { Some(Member::start(&share)?) } else { None };
    let port = |member: &Option<Member>| member.as_ref().map_or(no_member, |member| member.port);
    drop(TailLog::create(members(memory.path(), port(&member))?, &CreateOptions::default())?);
    let mut members_killed = 0;
    let mut next = [0_u64; WRITERS];
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut acknowledged, mut from_archive, mut found) = (0, 0, 0);
    for round in 1..=rounds {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let lives = Duration::from_micros(20_000 + (seed >> 40) % 150_000);
        let owner = Owner::start(memory.path(), disk.path(), port(&member), next)?;
        let mut lives = lives;
        if let Some(member) = member.as_mut().filter(|_| round % 3 != 0) {
            std::thread::sleep(lives / 2);
            lives /= 2;
            member.kill()?;
            members_killed += 1;
        }
        let said = owner.killed(lives)?;
        if kills_members && round % 3 != 0 {
            member = Some(Member::start(&share)?);
        }
        let mut acked = next;
        for (said, _) in said.as_chunks::<9>().0.iter().zip(0_u64..) {
            let number = u64::from_le_bytes(said[1..].try_into()?);
            acked[usize::from(said[0])] = acked[usize::from(said[0])].max(number + 1);
            acknowledged += 1;
        }
        let (archived, all) = check(memory.path(), disk.path(), port(&member), &mut next)
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
        "{rounds} rounds, {members_killed} of them killed a member, too: {acknowledged} acknowledged, {found} found, of these {from_archive} in the archive"
    );
    Ok(())
}

struct Owner {
    process: Child,
    reader: JoinHandle<std::io::Result<Vec<u8>>>,
}

impl Owner {
    fn start(memory: &Path, disk: &Path, port: u16, next: [u64; WRITERS]) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["write".as_ref(), memory.as_os_str(), disk.as_os_str()])
            .arg(port.to_string())
            .args(next.map(|number| number.to_string()))
            .stdout(Stdio::piped())
            .spawn()?;
        let mut pipe = process.stdout.take().ok_or("no pipe")?;
        let reader = std::thread::spawn(move || {
            let mut said = Vec::new();
            pipe.read_to_end(&mut said).map(|_| said)
        });
        Ok(Self { process, reader })
    }

    fn killed(mut self, lives: Duration) -> Outcome<Vec<u8>> {
        std::thread::sleep(lives);
        self.process.kill()?;
        self.process.wait()?;
        Ok(self.reader.join().map_err(|_| "the reader panicked")??)
    }
}

/// Looks at every record, and forgets all of them.
fn check(memory: &Path, disk: &Path, port: u16, next: &mut [u64; WRITERS]) -> Outcome<(u64, u64)> {
    let log = Arc::new(TailLog::open(members(memory, port)?, &OpenOptions::default())?);
    if log.status().in_sync.len() != if port == ALONE { 1 } else { 2 } {
        return Err("a member is not in sync".into());
    }
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
