//! `landfast demo`: push mode end to end, on this machine, with a server process of its own.
//!
//! ```text
//!  1. measure     floor | smb | smb-direct | push, interleaved
//!   2. kill        stream push commits --- SIGKILL ---> restart, check the file, go on
//!                  each round: every acknowledged commit is there, nothing outside changed
//! ```

mod child;
mod ledger;
mod life;
mod log;
mod replica;
mod server;
mod sort;
mod store;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use client::{Region, RegionSettings};
use pmem::DurabilityClass;

pub(crate) use self::child::end_with_parent;
use self::ledger::{BLOCK, Ledger};
use self::life::{MEMORY, class_of, kill, random_life};
use self::server::Server;
use crate::args::{Bench, Demo, DemoKind, DemoLog, Mode, Placement, Poll, Protected};
use crate::failure::Failure;
use crate::interrupt::{self, Asked};
use crate::{bench, output, remote};

/// Runs a demonstration; success means that every check held. A signal ends it, with its processes and files.
pub(crate) fn run(options: &Demo) -> Result<(), Failure> {
    if let Some(DemoKind::Log(DemoLog { writer: Some(directory), .. })) = &options.kind {
        return log::write(directory);
    }
    interrupt::watch(|asked| match &options.kind {
        Some(DemoKind::Log(options)) => log::run(options, asked),
        Some(DemoKind::Replica(options)) => replica::run(options, asked),
        Some(DemoKind::Store(options)) => store::run(options, asked),
        Some(DemoKind::Sort(options)) => sort::run(options, asked),
        None => push(options, asked),
    })
}

fn push(options: &Demo, asked: &Asked) -> Result<(), Failure> {
    let base = options.directory.clone().unwrap_or_else(|| PathBuf::from(MEMORY));
    let share = tempfile::Builder::new()
        .prefix("landfast-demo-")
        .tempdir_in(&base)
        .map_err(Failure::local("cannot make a share in", &base))?;
    let class = class_of(share.path())?;
    let stage = Stage { share: share.path(), emulate: class == DurabilityClass::Volatile, asked };
    output::say(&format!("share {} (durability class {class})\n", share.path().display()))?;
    if stage.emulate {
        output::say(
            "persistence is EMULATED here: a killed server loses nothing, a power failure all\n",
        )?;
    }
    if !options.skip_bench {
        stage.measure(options)?;
    }
    stage.kill_and_verify(options.kills)
}

/// The share, the server and the files of the demonstration.
#[derive(Debug)]
struct Stage<'a> {
    share: &'a Path,
    emulate: bool,
    asked: &'a Asked,
}

impl Stage<'_> {
    fn measure(&self, options: &Demo) -> Result<(), Failure> {
        let server = Server::start(self.share, self.emulate)?;
        let plan = Bench {
            url: server.url("/bench.dat"),
            block: 4096,
            threads: 1,
            outstanding: 1,
            write_percent: 100,
            uncommitted: false,
            protection: Protected::Signed,
            think: 0,
            duration_s: options.duration_s,
            random: true,
            file_size: 16 << 20,
            existing: false,
            mode: vec![Mode::Floor, Mode::Smb, Mode::SmbDirect, Mode::Push],
            rdma_provider: rdma::ProviderChoice::Soft,
            poll: Poll::Adaptive,
            floor: None,
            placement: placement(),
            json: false,
        };
        output::say(&bench::measure(&plan, self.asked)?.table())
    }

    fn kill_and_verify(&self, kills: u32) -> Result<(), Failure> {
        let path = self.share.join(STREAM_FILE);
        let file = prepared(&path)?;
        let mut ledger = Ledger::new(BLOCKS);
        for round in 1..=kills {
            self.asked.check()?;
            let before = ledger.count();
            self.stream_until_killed(&mut ledger)?;
            let restarted = Server::start(self.share, self.emulate)?;
            verify(&file, &ledger)?;
            verify_over_smb(&restarted, &file)?;
            self.settle(&restarted, &mut ledger)?;
            verify(&file, &ledger)?;
            output::say(&format!(
                "kill {round} of {kills}: {} commits acknowledged in this round, all {} there, \
                 nothing outside the region changed\n",
                ledger.count() - before,
                ledger.count(),
            ))?;
        }
        Ok(())
    }

    /// Streams commits, several outstanding, until the server is killed.
    fn stream_until_killed(&self, ledger: &mut Ledger) -> Result<(), Failure> {
        let mut server = Server::start(self.share, self.emulate)?;
        let mut region = map(&server)?;
        let life = random_life()?;
        let pid = server.pid();
        let killer = thread::spawn(move || {
            // The moment is random on purpose: every moment of a stream is to be tested.
            thread::sleep(life);
            kill(pid)
        });
        let deadline = Instant::now() + life + STREAM_LIMIT;
        let mut bytes = [0; BLOCK];
        while Instant::now() < deadline {
            let write = ledger.draw();
            write.fill(&mut bytes);
            if region.submit_write_commit(write.offset(), &bytes).is_err() {
                break;
            }
            if region.outstanding() == OUTSTANDING {
                if region.finish(&mut []).is_err() {
                    break;
                }
                ledger.acknowledge();
            }
        }
        let killed = killer.join().map_err(|_| Failure::Child {
            process: "the thread that kills the server",
            what: "panicked".into(),
        })?;
        server.reap();
        killed
    }

    /// Overwrites the blocks whose last writes were in doubt, through a new region.
    fn settle(&self, server: &Server, ledger: &mut Ledger) -> Result<(), Failure> {
        let mut region = map(server)?;
        let mut bytes = [0; BLOCK];
        for write in ledger.unsettled() {
            write.fill(&mut bytes);
            region.write_commit(write.offset(), &bytes)?;
            ledger.acknowledge();
        }
        Ok(())
    }
}

/// Maps the middle of the file, and requires push mode.
fn map(server: &Server) -> Result<Region, Failure> {
    let url = remote::url(&server.url(&format!("/{STREAM_FILE}")))?;
    let settings = RegionSettings { outstanding_max: OUTSTANDING, ..RegionSettings::default() };
    let region = remote::map(&url, MARGIN..MARGIN + REGION, settings)?;
    match region.path() {
        client::Path::Push { .. } => Ok(region),
        other => Err(Failure::NotPush(other.to_string())),
    }
}

/// A file with a margin of known bytes on both sides of a zeroed region.
fn prepared(path: &Path) -> Result<File, Failure> {
    let failed = Failure::local("cannot prepare", path);
    let made = || {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len(FILE)?;
        for start in [0, MARGIN + REGION] {
            file.write_all_at(&margin(), start)?;
        }
        file.sync_all()?;
        Ok(file)
    };
    made().map_err(failed)
}

fn margin() -> Vec<u8> {
    vec![MARGIN_BYTE; usize::try_from(MARGIN).expect("a small file")]
}

/// Checks the file, as it lies on this machine, against the ledger.
fn verify(file: &File, ledger: &Ledger) -> Result<(), Failure> {
    let failed = || Failure::system("cannot read the share's file");
    let len = file.metadata().map_err(failed())?.len();
    if len != FILE {
        return Err(Failure::Lost(format!("the file is {len} bytes long instead of {FILE}")));
    }
    let mut outside = margin();
    for start in [0, MARGIN + REGION] {
        file.read_exact_at(&mut outside, start).map_err(failed())?;
        if outside.iter().any(|byte| *byte != MARGIN_BYTE) {
            return Err(Failure::Lost("a byte outside the region changed".into()));
        }
    }
    let mut region = vec![0; usize::try_from(REGION).expect("a small file")];
    file.read_exact_at(&mut region, MARGIN).map_err(failed())?;
    ledger.check(&region)
}

/// Checks that the restarted server serves the bytes of the file.
fn verify_over_smb(server: &Server, file: &File) -> Result<(), Failure> {
    let url = remote::url(&server.url(&format!("/{STREAM_FILE}")))?;
    let opened = remote::connect(&url)?.open(&url.path, &client::OpenOptions::read())?;
    let (mut served, mut stored) = (vec![0; PIECE], vec![0; PIECE]);
    let mut at = 0;
    while at < FILE {
        let taken = opened.read_at(at, &mut served)?;
        file.read_exact_at(&mut stored[..taken], at)
            .map_err(Failure::system("cannot read the share's file"))?;
        if taken == 0 || served[..taken] != stored[..taken] {
            return Err(Failure::Lost(format!("the server serves other bytes from {at} on")));
        }
        at += u64::try_from(taken).expect("at most a piece");
    }
    Ok(())
}

/// Separate cores, if this machine has enough, as on two machines.
fn placement() -> Placement {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if cores > 1 { Placement::Apart } else { Placement::Free }
}

const STREAM_FILE: &str = "stream.dat";
const BLOCKS: u64 = 256;
const REGION: u64 = BLOCKS * 4096;
const MARGIN: u64 = 1 << 20;
const MARGIN_BYTE: u8 = 0xee;
const FILE: u64 = MARGIN + REGION + MARGIN;
const OUTSTANDING: usize = 8;
const PIECE: usize = 1 << 20;
// A stream whose server is dead ends by itself well before.
const STREAM_LIMIT: Duration = Duration::from_secs(30);
