//! The command line: every command, option, default and example a person can ask `--help` for.

mod bench;
mod demo;
mod serve;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::bench::{
    Bench, BenchFiles, BenchLocal, Floor, LocalMode, Mode, Placement, Protected,
};
pub(crate) use self::demo::{Demo, DemoKind, DemoLog, DemoReplica, DemoSort, DemoStore};
pub(crate) use self::serve::{Serve, Signing};
pub(crate) use crate::poll::Poll;

/// Remote persistent memory as a file service.
#[derive(Debug, Parser)]
#[command(name = "landfast", version, about, long_about = LONG_ABOUT, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Say more on standard error: -v what happens, -vv how a server does it
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Export directories over SMB3, SMB Direct and push mode
    Serve(Box<Serve>),
    /// List a directory
    Ls(Remote),
    /// Copy a remote file here
    Get(Get),
    /// Copy a local file there
    Put(Put),
    /// Remove a file or an empty directory
    Rm(Remote),
    /// Show what the server knows of a file
    Stat(Remote),
    /// Show what goes on in a server on this machine: sessions, opens, leases, regions
    Status(Status),
    /// Measure: plain TCP floor, SMB, SMB Direct and push mode, interleaved in one run
    Bench(Bench),
    /// Measure small files: create, look at, list and delete many over SMB
    BenchFiles(BenchFiles),
    /// Measure this machine's own storage: mapped, volume, file, tail of a log, beside plain system calls
    BenchLocal(BenchLocal),
    /// Start a server on a temporary share, measure it, kill it mid-stream, verify every commit
    Demo(Demo),
    /// Answer `bench --mode floor` from another process or machine
    #[command(hide = true)]
    Floor(Floor),
    /// Set a password in a users file, or remove an account from it
    Passwd(Passwd),
    /// Remove streams whose file a local program has removed; the share may be served meanwhile
    Sweep(Sweep),
    /// Say what a path gives to those who store there: DAX or not and why, durability class, what a commit costs
    Diagnose(Diagnose),
    /// Disks whose sectors are never torn: make, check, serve over NBD, as files and loop devices
    Volume(crate::volume::args::Volume),
    /// Volumes replicated block by block: describe a group, run its members, promote, verify, show points in time
    Replica(crate::replica::args::Replica),
    /// Memory of many servers as named, striped regions with copies: daemons, regions, tokens
    Store(crate::store::args::StoreArgs),
    /// Print a shell completion script
    Completions(Completions),
    /// Write the man pages into a directory
    Man(Man),
}

impl Command {
    /// Whether what it writes on standard output is what it is started for.
    pub(crate) fn is_for_its_output(&self) -> bool {
        match self {
            Self::Get(get) => get.local.as_deref().is_some_and(|path| path.as_os_str() == "-"),
            Self::Serve(serve) => serve.check,
            Self::Put(_) | Self::Rm(_) | Self::Passwd(_) | Self::Man(_) => false,
            Self::Ls(_)
            | Self::Stat(_)
            | Self::Status(_)
            | Self::Bench(_)
            | Self::BenchFiles(_)
            | Self::BenchLocal(_)
            | Self::Demo(_)
            | Self::Floor(_)
            | Self::Sweep(_)
            | Self::Diagnose(_)
            | Self::Volume(_)
            | Self::Replica(_)
            | Self::Store(_)
            | Self::Completions(_) => true,
        }
    }
}

/// Options of `landfast passwd`.
#[derive(Args, Clone, Debug)]
#[command(after_help = PASSWD_NOTES)]
pub(crate) struct Passwd {
    /// The users file; made if need be
    pub(crate) file: PathBuf,
    /// Whose account
    pub(crate) user: String,
    /// Remove the account
    #[arg(long)]
    pub(crate) remove: bool,
}

/// Options of `landfast sweep`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Sweep {
    /// The directory of the share, and not one below it
    pub(crate) directory: PathBuf,
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Remove also streams of files that may lie on a file system that is not mounted at the moment, or were restored
    #[arg(long)]
    pub(crate) all: bool,
}

/// Options of `landfast diagnose`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = DIAGNOSE_NOTES)]
pub(crate) struct Diagnose {
    /// A directory, a file, a volume, or a device
    pub(crate) path: PathBuf,
    /// How long to measure commits, in a file without a name beside the path; nothing that is there changes
    #[arg(long, default_value_t = 0.5)]
    pub(crate) seconds: f64,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

const DIAGNOSE_NOTES: &str = "\
Examples:
      landfast diagnose /mnt/pmem          # is push mode at its best there?
      landfast diagnose /srv/data --json

Class pmem: a commit is a fence. Class storage: a commit is an fdatasync. Class volatile: nothing survives a loss of
power, and the cost is what memory of that speed would give. docs/push-mode.md says what each class survives.";

/// A remote file or directory.
#[derive(Args, Clone, Debug)]
pub(crate) struct Remote {
    /// smb://USER:PASSWORD@HOST:PORT/SHARE/PATH (or set LANDFAST_PASSWORD and leave it out)
    pub(crate) url: String,
}

/// Options of `landfast status`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = STATUS_EXAMPLES)]
pub(crate) struct Status {
    /// Control socket of the server [default: that of the only server of this user]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// Show at most so many rows of each table [default: 1000]
    #[arg(long, value_name = "COUNT")]
    pub(crate) rows: Option<usize>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `landfast get`.
#[derive(Args, Clone, Debug)]
#[command(after_help = GET_NOTES)]
pub(crate) struct Get {
    /// smb://USER:PASSWORD@HOST:PORT/SHARE/PATH (or set LANDFAST_PASSWORD and leave it out)
    pub(crate) url: String,
    /// Where to write it; "-" is standard output [default: the remote file's name, here]
    pub(crate) local: Option<PathBuf>,
}

/// Options of `landfast put`.
#[derive(Args, Clone, Debug)]
#[command(after_help = PUT_NOTES)]
pub(crate) struct Put {
    /// File to send; "-" is standard input
    pub(crate) local: PathBuf,
    /// smb://USER:PASSWORD@HOST:PORT/SHARE/PATH (or set LANDFAST_PASSWORD and leave it out)
    pub(crate) url: String,
}

/// Options of `landfast completions`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Completions {
    /// For which shell
    pub(crate) shell: clap_complete::Shell,
}

/// Options of `landfast man`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Man {
    /// Where to write landfast.1 and one page per command
    pub(crate) directory: PathBuf,
}

const LONG_ABOUT: &str = "\
Remote persistent memory as a file service.

A server exports directories over SMB3. A client opens a file, takes a lease, maps a region of it
(push mode), and from then on writes and reads that region by one-sided RDMA, with a commit that
returns only when the bytes are durable on the far side. No special hardware is needed: RDMA runs
over software iWARP on ordinary TCP. Every other SMB 2 or 3 client can use the same server.";

const PASSWD_NOTES: &str = "\
At a terminal the password is asked for twice and not shown. From a pipe or file it is one line:
    landfast passwd FILE USER < password.txt
A server that was started with --users-file FILE reads the file again when it changes.";

const GET_NOTES: &str = "\
The local file appears whole or not at all: what was there stays until everything has arrived and is on the medium. \
It keeps its mode; other hard links to it keep the old bytes, and its extended attributes and access list go; a symbolic \
link is followed. A file that changes while it is copied is an error. A pipe or device is \
written to as it is.";

const PUT_NOTES: &str = "\
The remote file appears whole or not at all: what was there stays until everything has arrived and is on the medium. \
What replaces a file gets its owner, mode, access list, attributes and time of creation where the server lets that be \
set; its streams, extended attributes and other hard links stay with the old file. A symbolic link is not replaced, and \
not followed: name the file that it points to. A directory takes the file under its own name, \
and not in the place of a file whose name differs by case alone.

Until it is there the file is a .landfast-*.part beside its name. Where a server was killed meanwhile one may stay: the \
next put of that name removes it.";

const STATUS_EXAMPLES: &str = "\
Examples:
  The only server of this user:
      landfast status
  Who has a file open, for programs:
      landfast status --json | jq '.opens.rows[] | select(.path == \"log.dat\")'

uses and shares: what an open does and lets others do, (r)ead, (w)rite, (d)elete.
caching and state: (R)ead, (W)rite and (H)andle, by a lease or an oplock.
rights of a region: (r)ead, (w)rite, (f)lush, (a)tomic write. Its commits are those asked for by an SMB
request: one-sided ones pass nobody who counts.";
