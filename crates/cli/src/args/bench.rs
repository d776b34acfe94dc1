//! Options of the commands that measure.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use client::{ConnectOptions, Protection};
use rdma::ProviderChoice;

use crate::poll::Poll;

/// Options of `landfast bench-local`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = BENCH_LOCAL_NOTES)]
pub(crate) struct BenchLocal {
    /// A directory on what is to be measured; files without a name are made in it, and nothing that is there changes
    pub(crate) directory: PathBuf,
    /// What of ours is measured
    #[arg(long, value_delimiter = ',', default_value = "dax,block,file,log")]
    pub(crate) mode: Vec<LocalMode>,
    /// Threads of the rows of small requests; several make several rows
    #[arg(short, long, value_delimiter = ',', default_value = "1", value_parser = threads)]
    pub(crate) threads: Vec<usize>,
    /// Seconds of each arm's turn
    #[arg(short = 'd', long, default_value_t = 0.5)]
    pub(crate) seconds: f64,
    /// How often all take a turn
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Bytes of each arm's file, or with K, M or G
    #[arg(long, default_value = "128M", value_parser = crate::size::size)]
    pub(crate) size: u64,
    /// Let fio's mmap engine take turns as well
    #[arg(long)]
    pub(crate) fio: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `landfast bench-local` measures of ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum LocalMode {
    /// Bytes placed and persisted in a mapped file
    Dax,
    /// A volume whose sectors are never torn
    Block,
    /// A volume that is the file
    File,
    /// Records appended and committed
    Log,
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=64) => Ok(threads),
        _ => Err("1 to 64 threads".to_owned()),
    }
}

/// Options of `landfast bench`, after diskspd's.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = BENCH_EXAMPLES)]
pub(crate) struct Bench {
    /// smb://USER:PASSWORD@HOST:PORT/SHARE[/FILE]; every mode and thread makes a file of its own,
    /// FILE.MODE.THREAD, and removes it in the end
    pub(crate) url: String,
    /// Block size: bytes, or with K or M
    #[arg(short = 'b', default_value = "4K", value_parser = crate::size::size)]
    pub(crate) block: u64,
    /// Threads, each with connections of its own
    #[arg(short = 't', default_value_t = 1)]
    pub(crate) threads: usize,
    /// Operations outstanding per thread
    #[arg(short = 'o', default_value_t = 1)]
    pub(crate) outstanding: usize,
    /// Percentage of writes; each write is committed before it counts
    #[arg(short = 'w', default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) write_percent: u8,
    /// Count a write when it is answered: a power failure may lose it. SMB modes only
    #[arg(long)]
    pub(crate) uncommitted: bool,
    /// How the messages of the SMB modes are protected
    #[arg(long, default_value = "signed")]
    pub(crate) protection: Protected,
    /// Seconds of measurement per mode
    #[arg(short = 'd', default_value_t = 10.0)]
    pub(crate) duration_s: f64,
    /// Microseconds of pause before an outstanding operation is followed by the next, on average:
    /// exponentially distributed. Push mode only
    #[arg(long, value_name = "US", default_value_t = 0)]
    pub(crate) think: u32,
    /// Random offsets instead of sequential ones
    #[arg(short = 'r')]
    pub(crate) random: bool,
    /// Size of the file that is read and written
    #[arg(long, default_value = "64M", value_parser = crate::size::size)]
    pub(crate) file_size: u64,
    /// Measure in files FILE.MODE.THREAD that are there, and leave them: their bytes are OVERWRITTEN
    #[arg(long)]
    pub(crate) existing: bool,
    /// What to measure, in turn within one run
    #[arg(long, value_delimiter = ',', default_value = "floor,smb,smb-direct,push")]
    pub(crate) mode: Vec<Mode>,
    /// What does RDMA at this end: "soft" (iWARP over TCP), "shm" (memory shared with a server of this host
    /// that uses "shm" too) or "verbs" (this machine's adapters)
    #[arg(long, value_name = "PROVIDER", default_value_t)]
    pub(crate) rdma_provider: ProviderChoice,
    /// How this end of the RDMA arms, and both ends of the floor, wait
    #[arg(long, default_value = "adaptive")]
    pub(crate) poll: Poll,
    /// Address of a `landfast floor` responder [default: one is started on loopback]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) floor: Option<SocketAddr>,
    /// On which cores client and server run, where the server is this user's, on this machine: it
    /// is moved for the time of the run
    #[arg(long, default_value = "free")]
    pub(crate) placement: Placement,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `landfast bench-files`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = BENCH_FILES_EXAMPLES)]
pub(crate) struct BenchFiles {
    /// smb://USER:PASSWORD@HOST:PORT/SHARE[/DIRECTORY]; the directory is made and removed again
    pub(crate) url: String,
    /// How many files
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: u32,
    /// Bytes written to each, or with K or M
    #[arg(short = 'b', default_value = "1K", value_parser = crate::size::size)]
    pub(crate) block: u64,
    /// Files worked on at once
    #[arg(short = 'o', default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) outstanding: u16,
    /// How messages are protected
    #[arg(long, default_value = "signed")]
    pub(crate) protection: Protected,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

/// How SMB messages are protected, if the server goes along.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Protected {
    /// Not at all, unless the server insists
    Plain,
    /// Signed
    Signed,
    /// Encrypted
    Encrypted,
}

impl Protected {
    /// The options of the client.
    pub(crate) fn options(self) -> ConnectOptions {
        let (signing, encryption) = match self {
            Self::Plain => (Protection::IfRequired, Protection::IfRequired),
            Self::Signed => (Protection::Required, Protection::IfRequired),
            Self::Encrypted => (Protection::Required, Protection::Required),
        };
        ConnectOptions { signing, encryption, ..ConnectOptions::default() }
    }
}

/// Where the two ends of a measurement run.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Placement {
    /// Where the scheduler puts them: a round trip then differs severalfold from run to run
    Free,
    /// On cores of their own, as on two machines
    Apart,
    /// On one core
    Together,
}

/// An arm of the benchmark.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Mode {
    /// A plain TCP exchange of the same bytes with the same polling, placement and fence
    Floor,
    /// SMB2 WRITE + FLUSH and READ over TCP
    Smb,
    /// SMB2 WRITE + FLUSH and READ over SMB Direct, payload by server-driven RDMA
    SmbDirect,
    /// One-sided RDMA Write + Flush and RDMA Read
    Push,
}

/// Options of `landfast floor`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Floor {
    /// Address to answer on
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Directory of the file that is written to
    #[arg(long, default_value = "/dev/shm")]
    pub(crate) directory: PathBuf,
    /// How to wait for requests
    #[arg(long, default_value = "adaptive")]
    pub(crate) poll: Poll,
}

const BENCH_LOCAL_NOTES: &str = "\
Examples:
      landfast bench-local /mnt/pmem -t 1,4 --fio
      landfast bench-local /dev/shm --mode dax,block      # what the code costs: memory counts as persistent
      landfast bench-local /srv/data --json

All writes are durable when they return, as the class of the place goes. A volume that is there is not written to: name a
directory on the same disk.";

const BENCH_FILES_EXAMPLES: &str = "\
Examples:
  10,000 files of 1 KiB, 8 at a time:
      landfast bench-files smb://alice:secret@127.0.0.1:4450/data
  The same, encrypted, as JSON:
      landfast bench-files smb://alice:secret@127.0.0.1:4450/data --protection encrypted --json

Creating is CREATE, WRITE, CLOSE; looking at is CREATE and CLOSE; renaming and deleting are CREATE,
SET_INFO, CLOSE.
Nothing is flushed.";

const BENCH_EXAMPLES: &str = "\
Examples:
  The four modes at 4 KiB, one outstanding, 10 s each:
      landfast bench smb://alice:secret@127.0.0.1:4450/data
  The same with client and server on cores of their own, as on two machines:
      landfast bench smb://alice:secret@127.0.0.1:4450/data --placement apart
  Push mode only, 16 outstanding, random, 70 % reads, as JSON:
      landfast bench smb://alice:secret@127.0.0.1:4450/data --mode push -o 16 -r -w 30 --json

Every write is committed: SMB2 WRITE + FLUSH, or RDMA Write + RDMA Flush. The modes take turns in
slices of one run, so that noise of the machine hits all of them. The report names the durability
class that the commits had; class \"volatile\" means a power failure would lose them.";
