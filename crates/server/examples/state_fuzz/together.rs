//! Clients that work on the same few files at once, and what holds whatever they do.
//!
//! ```text
//!  a run    clients at one time, with a seed of their own
//!    round    each client does some things                   grants are compatible (`books`),
//!             all wait for each other                        caches are as the files (`actor`)
//!             nobody changes anything: all look              names lead to the files that are open
//!    end      all close what they have open                  what was to be deleted has gone, all else is there
//! ```
//!
//! A seed gives the clients the same intentions again; which of them meet is up to the scheduler.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use smb::create::{CreateDisposition, CreateOptions};
use smb::info::{Disposition, FileInfoClass, RenameFlags};
use smb::{Command, NtStatus};

use crate::actor::{Actor, GOES, LOCKED, STAYS};
use crate::books::Books;
use crate::link::{Link, Place};
use crate::random::Random;
use crate::support::{new_name, set};

/// What is tried.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) address: SocketAddr,
    pub(crate) directory: PathBuf,
    pub(crate) place: Place,
    pub(crate) clients: usize,
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
}

/// Runs seed after seed until the time is over. What went wrong.
pub(crate) fn run(options: &Options) -> Vec<String> {
    let (begin, mut runs, mut faults) = (Instant::now(), 0, Vec::new());
    let mut seed = options.seed;
    while faults.is_empty() && (runs == 0 || begin.elapsed().as_secs_f64() < options.seconds) {
        let found = run_seed(options, seed);
        for fault in found {
            let fault = format!("seed {seed}: {fault}");
            println!("FAULT {fault}");
            faults.push(fault);
        }
        (seed, runs) = (seed + 1, runs + 1);
    }
    println!("ran {runs} times {} clients", options.clients);
    faults
}

fn run_seed(options: &Options, seed: u64) -> Vec<String> {
    make_files(options);
    let (books, mut seeds) = (Mutex::new(Books::default()), Random::new(seed));
    let numbers: Vec<u64> = (0..options.clients).map(|_| seeds.next()).collect();
    let meeting = Meeting { clients: options.clients, arrived: AtomicUsize::new(0) };
    let pending: Vec<BTreeSet<_>> = std::thread::scope(|scope| {
        let start = |(client, number): (usize, u64)| {
            let (books, meeting) = (&books, &meeting);
            scope.spawn(move || {
                let machine = u8::try_from(client + 1).expect("few clients");
                let link = Link::enter(options.address, machine, &options.place);
                let random = Random::new(number);
                let actor = Actor::new(client, link, random, books, &options.directory);
                work(actor, meeting)
            })
        };
        let started: Vec<_> = numbers.into_iter().enumerate().map(start).collect();
        started.into_iter().map(|client| client.join().expect("a client ended")).collect()
    });
    let mut books = books.into_inner().expect("no client panicked");
    look_at_end(options, &mut books, pending.into_iter().flatten());
    books.faults
}

// Returns what was to be deleted when the client closed everything.
fn work(mut actor: Actor<'_>, meeting: &Meeting) -> BTreeSet<(PathBuf, u64)> {
    let mut pending = BTreeSet::new();
    for round in 0..ROUNDS {
        for _ in 0..STEPS {
            actor.step();
        }
        meeting.wait(&mut actor);
        actor.link.fence(&mut actor.cached);
        actor.look_at_caches();
        actor.look_at_locks();
        let found = (0..actor.opens.len()).filter_map(|at| actor.look_at_disk(at)).collect();
        if round + 1 == ROUNDS {
            pending = found;
        }
        meeting.wait(&mut actor);
    }
    while !actor.opens.is_empty() {
        actor.close(0);
    }
    meeting.wait(&mut actor);
    pending
}

/// Where clients wait for each other, and go on acknowledging breaks.
struct Meeting {
    clients: usize,
    arrived: AtomicUsize,
}

impl Meeting {
    fn wait(&self, actor: &mut Actor<'_>) {
        let number = self.arrived.fetch_add(1, Ordering::SeqCst);
        let all = (number / self.clients + 1) * self.clients;
        while self.arrived.load(Ordering::SeqCst) < all {
            actor.link.listen(PAUSE, &mut actor.cached);
        }
    }
}

fn make_files(options: &Options) {
    let mut link = Link::enter(options.address, 200, &options.place);
    let wire = &mut link.wire;
    let directory = wire.open("d", |open| open.options = CreateOptions::DIRECTORY_FILE);
    assert_eq!(directory.status, NtStatus::SUCCESS, "a directory is made");
    wire.close(directory.id);
    for name in ["a", STAYS, LOCKED] {
        let made = wire.open(name, |open| open.disposition = CreateDisposition::CREATE);
        assert_eq!(made.status, NtStatus::SUCCESS, "{name} is made");
        assert_eq!(wire.write(made.id, &[0xa5; 12_000]), NtStatus::SUCCESS);
        if name == STAYS {
            let buffer = new_name(GOES, RenameFlags::empty());
            assert_eq!(wire.set(made.id, FileInfoClass::LINK, &buffer), NtStatus::SUCCESS);
        }
        wire.close(made.id);
    }
}

// Nothing is open any more.
fn look_at_end(
    options: &Options,
    books: &mut Books,
    pending: impl Iterator<Item = (PathBuf, u64)>,
) {
    use std::os::unix::fs::MetadataExt as _;
    for (path, number) in pending {
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.ino() == number) {
            books.fault(&format!("{} was to be deleted, and is there", path.display()));
        }
    }
    for name in [STAYS, LOCKED] {
        if !options.directory.join(name).exists() {
            books.fault(&format!("nobody removes {name}, and it has gone"));
        }
    }
    let mut link = Link::enter(options.address, 200, &options.place);
    empty(&mut link, &options.directory, "", books);
    let store = options.directory.join(STREAMS);
    let left: Vec<_> = list(&store).into_iter().filter(|name| name != LINKS).collect();
    if !left.is_empty() {
        books.fault(&format!("streams are left without a file: {left:?}"));
    }
}

/// Deletes everything in a directory through the server.
fn empty(link: &mut Link, directory: &Path, below: &str, books: &mut Books) {
    let names = list(&directory.join(below.replace('\\', "/")));
    let folded: BTreeSet<String> = names.iter().map(|name| name.to_uppercase()).collect();
    if folded.len() != names.len() {
        books.fault(&format!("names that differ in case alone: {names:?}"));
    }
    for name in names.iter().filter(|name| *name != STREAMS) {
        let name = if below.is_empty() { name.clone() } else { format!("{below}\\{name}") };
        let path = directory.join(name.replace('\\', "/"));
        if path.is_dir() {
            empty(link, directory, &name, books);
        }
        let opened = link.wire.open(&name, |open| open.disposition = CreateDisposition::OPEN);
        let mut buffer = Vec::new();
        Disposition { delete: true }.emit(&mut buffer);
        let request = set(opened.id, FileInfoClass::DISPOSITION, &buffer);
        let (header, _) = link.wire.ask(Command::SET_INFO, |out| request.emit(out));
        let closed = link.wire.close(opened.id);
        if path.exists() {
            let (opened, asked) = (opened.status, header.status);
            books.fault(&format!("{name} is not deleted: {opened}, {asked}, {closed}"));
            let _ = fs::remove_file(&path);
        }
    }
}

fn list(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

const ROUNDS: usize = 12;
const STEPS: usize = 10;
const PAUSE: Duration = Duration::from_millis(1);
/// Where the server keeps streams.
const STREAMS: &str = ".landfast-streams";
/// And links on their way.
const LINKS: &str = "links";
