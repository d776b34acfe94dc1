//! Clients that make random requests on their own files and on each other's, while their connections
//! are cut and their server is killed. Each client knows the content of its files, and a difference
//! is a fault.
//!
//! ```text
//! model ADDRESS SHARE DIRECTORY --user NAME:PASSWORD --clients N --seconds S --seed N [--direct ADDRESS] [--full yes]
//!     [--half-open yes]
//! ```
//!
//! `model idle ADDRESS SHARE NAME:PASSWORD COUNT` keeps that many sessions with a file open each,
//! prints `idle`, and waits for the end of its input.
//!
//! With `--full` a request may fail because the disk is full; nothing has happened then. With `--half-open` it may take as long as the
//! server waits for the holder of a lease, whom its break did not reach.
//!
//! With an address for SMB Direct a third of the clients use only that, and a third both. DIRECTORY
//! is what the server serves as SHARE, which keeps persistent opens. The program that starts this
//! one kills the server and starts it again in the meantime: `cargo xtask model`. At the end the
//! directory must hold what the clients know. Exit status 1 if there was any fault.

mod ask;
mod channels;
mod client;
mod directories;
mod disk;
mod link;
mod names;
mod public;
mod random;
mod recovery;
mod secrecy;
mod steps;
mod wire;
mod worlds;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smb::create::CreateDisposition;
use smb::{Command, NtStatus};
use tokio::runtime::Runtime;

use crate::client::{Client, Counts};
use crate::link::Way;
use crate::public::Public;
use crate::random::Random;
use crate::secrecy::Protection;
use crate::wire::{Machine, Place, Wire};
use crate::worlds::{Tree, compare};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, address, share, user, count] = words.as_slice()
        && mode == "idle"
    {
        return idle(&place(address, share, user)?, count.parse()?);
    }
    let [address, share, directory, options @ ..] = words.as_slice() else {
        return Err("model ADDRESS SHARE DIRECTORY --user NAME:PASSWORD ...".into());
    };
    let options: BTreeMap<&str, &str> =
        options.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    let option = |name: &str| {
        options.get(name).copied().ok_or_else(|| format!("{name} is missing; see the source"))
    };
    let mut place = place(address, share, option("--user")?)?;
    place.direct = options.get("--direct").map(|address| address.parse()).transpose()?;
    place.streams = disk::keeps_streams(Path::new(directory))?;
    place.full = options.contains_key("--full");
    if options.contains_key("--half-open") {
        link::wait_for_breaks();
    }
    let clients: usize = option("--clients")?.parse()?;
    let time = Duration::try_from_secs_f64(option("--seconds")?.parse()?)?;
    let seed: u64 = option("--seed")?.parse()?;
    let (counts, faults) = work(&place, clients, time, seed, directory)?;
    println!("{counts:?}");
    for fault in &faults {
        println!("FAULT {fault}");
    }
    println!("{} faults", faults.len());
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn place(address: &str, share: &str, user: &str) -> Result<Place, Box<dyn Error>> {
    let (user, password) = user.split_once(':').ok_or("a user is NAME:PASSWORD")?;
    Ok(Place {
        tcp: address.parse()?,
        direct: None,
        share: share.to_owned(),
        user: user.to_owned(),
        password: password.to_owned(),
        streams: false,
        full: false,
        began: Instant::now(),
    })
}

/// Sessions with a file open each that stay idle until this process is ended.
fn idle(place: &Place, count: usize) -> Result<ExitCode, Box<dyn Error>> {
    let mut held = Vec::with_capacity(count);
    let protection = Protection::Cmac;
    let mut machine = Machine { place, guid: [0; 16], protection, runtime: runtime()? };
    for number in 0..count {
        let lost = |lost| format!("session {number}: {lost:?}");
        machine.guid = Random::new(ask::wide(number)).guid();
        let mut wire = Wire::enter(&machine, &Way::Tcp(place.tcp), 0).map_err(lost)?;
        let disposition = CreateDisposition::OPEN_IF;
        let name = format!("idle.{number}");
        let request = ask::create(&name, ask::OWNER_ACCESS, ask::SHARES_ALL, disposition);
        let (header, _) = wire.ask(Command::CREATE, |out| request.emit(out)).map_err(lost)?;
        if header.status != NtStatus::SUCCESS {
            return Err(format!("{name}: {:?}", header.status).into());
        }
        held.push(wire);
    }
    println!("idle");
    let _ = std::io::stdin().read_line(&mut String::new());
    Ok(ExitCode::SUCCESS)
}

// A runtime of one thread: no task runs while that thread is busy.
fn runtime() -> std::io::Result<Arc<Runtime>> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map(Arc::new)
}

fn work(
    place: &Place,
    clients: usize,
    time: Duration,
    seed: u64,
    directory: &str,
) -> Result<(Counts, Vec<String>), Box<dyn Error>> {
    let (public, mut seeds) = (Public::default(), Random::new(seed));
    let runtimes = (0..clients).map(|_| runtime()).collect::<Result<Vec<_>, _>>()?;
    let end = Instant::now() + time;
    let ended: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = runtimes
            .into_iter()
            .enumerate()
            .map(|(number, runtime)| {
                let mut random = Random::new(seeds.next());
                let (guid, protection) = (random.guid(), Protection::of(number));
                let machine = Machine { place, guid, protection, runtime };
                let client = Client::new(number, clients, random, machine, &public);
                scope.spawn(move || client.run(end))
            })
            .collect();
        started.into_iter().map(|client| client.join().map_err(|_| "a client panicked")).collect()
    });
    let (mut counts, mut faults) = (Counts::default(), Vec::new());
    let mut expected = Tree::new();
    for ended in ended {
        let (client, tree) = ended?;
        counts.add(&client.counts);
        faults.extend(client.faults);
        expected.extend(tree);
    }
    let seen = disk::tree(Path::new(directory), clients)?;
    let paths = expected.keys().chain(seen.keys()).collect::<std::collections::BTreeSet<_>>();
    for path in paths {
        let difference = match (expected.get(path), seen.get(path)) {
            (Some(expected), Some(seen)) => compare(expected, seen),
            (Some(_), None) => Some("not there".to_owned()),
            _ => Some("there, and should not be".to_owned()),
        };
        if let Some(difference) = difference {
            faults.push(format!("on the disk at the end: {path}: {difference}"));
        }
    }
    Ok((counts, faults))
}
