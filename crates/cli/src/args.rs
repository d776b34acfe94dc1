//! The command line: every command, option, default and example a person can ask `--help` for.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use client::{ConnectOptions, Protection};
use rdma::ProviderChoice;
use serde::Deserialize;

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

/// Options of `landfast serve`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = SERVE_EXAMPLES)]
pub(crate) struct Serve {
    /// Directory to export as the share "data"
    pub(crate) directory: Option<PathBuf>,
    /// Directory to export under a name; may be given many times
    #[arg(long = "share", value_name = "NAME=PATH")]
    pub(crate) shares: Vec<String>,
    /// Device of persistent memory (devdax) that a node in the share's directory may stand for: such
    /// a node, made by mknod, is then a file as long as the device. May be given many times
    #[arg(long = "device", value_name = "SHARE=PATH")]
    pub(crate) devices: Vec<String>,
    /// Volume that is a file of a share's top directory, as long as the volume: read, written and flushed by messages,
    /// each sector whole; push mode is refused. Nobody else can use the volume meanwhile. May be given many times
    #[arg(long = "volume", value_name = "SHARE=[NAME=]PATH")]
    pub(crate) volumes: Vec<String>,
    /// Which files of a share have their pages in memory only when a client asks for them: all that are mapped for push
    /// mode (lazy), or none (eager) [default: those on disks that are longer than the budget]. May be given many times
    #[arg(long = "residency", value_name = "SHARE=lazy|eager")]
    pub(crate) residency: Vec<String>,
    /// Most memory for such pages, as in 4G [default: an eighth of the machine's]; with SHARE= the most for one share.
    /// May be given many times
    #[arg(long = "flash-budget", value_name = "[SHARE=]SIZE")]
    pub(crate) flash_budgets: Vec<String>,
    /// Most memory for such pages of any one file of a share. May be given many times
    #[arg(long = "flash-region-budget", value_name = "SHARE=SIZE")]
    pub(crate) flash_region_budgets: Vec<String>,
    /// Directory on a device faster than the share's, flash or persistent memory, and the most bytes there: such pages
    /// that were read once are read from there when they have left the memory. The file itself always has every byte.
    /// May be given many times
    #[arg(long = "flash-tier", value_name = "SHARE=SIZE:DIRECTORY")]
    pub(crate) flash_tiers: Vec<String>,
    /// Let anybody into a share who has no account, to read, or to write too. Nothing of their sessions
    /// is signed or encrypted, and they get no push mode; clients that keep to the specification come in
    /// only with `--signing when-asked`. May be given many times
    #[arg(long = "guests", value_name = "SHARE=read|write")]
    pub(crate) guests: Vec<String>,
    /// Account that may log on; may be given many times. Visible to other local users in the
    /// process list: prefer a config file on shared machines
    #[arg(long = "user", value_name = "NAME:PASSWORD")]
    pub(crate) users: Vec<String>,
    /// File of accounts that `landfast passwd` writes; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) users_file: Option<PathBuf>,
    /// Keys of the service `cifs/HOST`, for logons by Kerberos ticket; read again when they change
    #[arg(long, value_name = "FILE")]
    pub(crate) keytab: Option<PathBuf>,
    /// Take tickets for this service only, instead of all those of the keytab
    #[arg(long, value_name = "cifs/HOST@REALM", requires = "keytab")]
    pub(crate) principal: Option<String>,
    /// User who may log on by ticket without having a password here, `*` for all of the realm; may be
    /// given many times
    #[arg(long = "kerberos-user", value_name = "NAME", requires = "keytab")]
    pub(crate) kerberos_users: Vec<String>,
    /// Settings in TOML; options on the command line win
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address for SMB over TCP [default: 127.0.0.1:4450]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Address for SMB Direct and push mode [default: port 5445 of the address of --listen]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) rdma_listen: Option<SocketAddr>,
    /// User to serve as, where root starts the server: it binds the port of --listen, and everything else is done
    /// with that user's rights and no others, reading config, users file and keytab included. A name of
    /// /etc/passwd, with the groups that /etc/group lists it in, or UID:GID, with that group alone
    #[arg(long, value_name = "USER")]
    pub(crate) run_as: Option<String>,
    /// Address that clients looking for more channels are told, where the machine does not know it
    /// itself (containers, translated addresses); `rss`: several connections to it are worth while,
    /// `rdma`: it leads to the RDMA listener too. May be given many times
    #[arg(long = "announce", value_name = "ADDR[,rss][,rdma]")]
    pub(crate) announced: Vec<server::Announced>,
    /// What does RDMA: "soft" needs nothing of the machine (iWARP over TCP), "shm" serves processes of this
    /// host alone, through memory that both share, "verbs" uses the machine's RDMA adapters through
    /// libibverbs and librdmacm, and listens on addresses of theirs only [default: soft]
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) rdma_provider: Option<ProviderChoice>,
    /// Let clients of this host that run as the server's user, or as any user where root is the server's, push through
    /// memory that both share, in place of TCP. Provider "soft" alone, and without --pcap
    #[arg(long)]
    pub(crate) rdma_same_host: bool,
    /// Let tmpfs and other memory that a power failure erases answer commits as if it were
    /// durable. For measurements and tests only: nothing survives a reboot
    #[arg(long)]
    pub(crate) emulate_persistence: bool,
    /// Which sessions are signed. Push mode is only for those that are [default: always]
    #[arg(long)]
    pub(crate) signing: Option<Signing>,
    /// Threads that serve SMB Direct and push mode, each its share of the connections [default: 1]
    #[arg(long, value_name = "COUNT")]
    pub(crate) rdma_threads: Option<u16>,
    /// How the RDMA engine waits for work
    #[arg(long, default_value = "adaptive")]
    pub(crate) poll: Poll,
    /// Unix socket for `landfast status`, or "off" [default: $XDG_RUNTIME_DIR/landfast/PORT.sock; without a
    /// logon /run/landfast/PORT.sock of root, /run/landfast/UID/PORT.sock of another user]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// Tell Prometheus and whoever else asks, at http://ADDR:PORT/metrics, how many connections, sessions, opens and bytes
    /// there are; no name of a user or file is among the figures
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Say what would be served, and end: whether config, accounts, keys and shares fit together and can be read, as the
    /// user of --run-as. No address is taken and nothing is changed; a server of the same config may run meanwhile
    #[arg(long)]
    pub(crate) check: bool,
    /// Write all RDMA traffic to a capture file that tshark and Wireshark read; it lies outside of the shares
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: crate::store::args::Serving,
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

const BENCH_LOCAL_NOTES: &str = "\
Examples:
      landfast bench-local /mnt/pmem -t 1,4 --fio
      landfast bench-local /dev/shm --mode dax,block      # what the code costs: memory counts as persistent
      landfast bench-local /srv/data --json

All writes are durable when they return, as the class of the place goes. A volume that is there is not written to: name a
directory on the same disk.";

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

/// Which sessions must sign each message.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Signing {
    /// Every session with a user behind it
    Always,
    /// Those whose client asks for it
    WhenAsked,
}

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

/// Options of `landfast demo`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Demo {
    /// Something else to show
    #[command(subcommand)]
    pub(crate) kind: Option<DemoKind>,
    /// Directory for the temporary share [default: memory (/dev/shm), persistence emulated]
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Seconds of measurement per mode
    #[arg(short = 'd', default_value_t = 5.0)]
    pub(crate) duration_s: f64,
    /// How often the server is killed in mid-stream
    #[arg(long, default_value_t = 3)]
    pub(crate) kills: u32,
    /// Only kill and verify, measure nothing
    #[arg(long)]
    pub(crate) skip_bench: bool,
}

/// What else `landfast demo` shows.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DemoKind {
    /// A database on the tail of a log: what its commits cost, and that none is lost when it is killed
    Log(DemoLog),
    /// Two members of a group: ext4 under load, the source is killed, the other one goes on with every answered write
    Replica(DemoReplica),
    /// Daemons of a striped store, two copies: one is killed under load, clients go on, copies are filled again
    Store(DemoStore),
    /// A sort of gensort's records, shuffled through a striped store of several daemons, and through files beside it
    Sort(DemoSort),
}

/// Options of `landfast demo store`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DemoStore {
    /// Directory for the pieces [default: memory (/dev/shm)]
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Seconds of writing before and after each kill
    #[arg(short = 'd', default_value_t = 3.0)]
    pub(crate) duration_s: f64,
    /// How often a daemon is killed
    #[arg(long, default_value_t = 3)]
    pub(crate) kills: u32,
}

/// Options of `landfast demo sort`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DemoSort {
    /// Directory for inputs, outputs and the store [default: memory (/dev/shm)]
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// A directory on a disk: one more arm has its store there
    #[arg(long, value_name = "DIR")]
    pub(crate) flash: Option<PathBuf>,
    /// Records of 100 bytes
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=4_000_000_000))]
    pub(crate) records: u64,
    /// Mappers, and as many reducers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) workers: u32,
    /// Daemons of the store, each a process
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) daemons: u32,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `landfast demo replica`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DemoReplica {
    /// Directory for logs and volumes [default: memory (/dev/shm), persistence emulated]
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Seconds of writing before the source is killed
    #[arg(short = 'd', default_value_t = 5.0)]
    pub(crate) duration_s: f64,
    /// Without a file system, on the file of the volume: for others than root
    #[arg(long)]
    pub(crate) plain: bool,
}

/// Options of `landfast demo log`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DemoLog {
    /// Directory for the database, on a disk [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Seconds of measurement
    #[arg(short = 'd', default_value_t = 6.0)]
    pub(crate) duration_s: f64,
    /// How often the database's process is killed in mid-stream
    #[arg(long, default_value_t = 5)]
    pub(crate) kills: u32,
    /// The process that is killed
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) writer: Option<PathBuf>,
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

const SERVE_EXAMPLES: &str = "\
Examples:
  Export one directory to user alice, on loopback and unprivileged ports:
      landfast serve /srv/data --user alice:secret
  Two shares from a config file, on the network:
      landfast serve --config /etc/landfast.toml --listen 0.0.0.0:445
  A device of persistent memory as the file `log` of a share:
      mknod /srv/data/log c $(stat -c '0x%t 0x%T' /dev/dax0.0)
      landfast serve /srv/data --user alice:secret --device data=/dev/dax0.0
  A disk whose sectors are never torn as the file `disk0` of a share (docs/volumes.md):
      landfast serve /srv/data --user alice:secret --volume data=/mnt/pmem/disk0
  Tickets of a Kerberos realm (docs/kerberos.md says how to make the keytab):
      landfast serve /srv/data --keytab /var/lib/landfast/cifs.keytab --kerberos-user '*'
  A directory that anybody may read and alice may change:
      landfast serve /srv/data --user alice:secret --guests data=read --signing when-asked
  Measure in memory (a power failure loses everything):
      landfast serve /dev/shm/x --user a:a --emulate-persistence

The config file holds the same settings:
  listen = \"127.0.0.1:4450\"
  rdma_listen = \"127.0.0.1:5445\"
  rdma_threads = 1
  rdma_provider = \"soft\"
  rdma_same_host = false
  recall_grace_ms = 5000
  emulate_persistence = false
  keepalive_s = 120
  control = \"/run/landfast/files.sock\"
  metrics = \"127.0.0.1:9445\"
  run_as = \"landfast\"
  announce = [\"192.0.2.7,rss,rdma\"]
  flash_budget = \"4G\"
  signing = \"always\"
  server_guid = \"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\"
  users_file = \"/var/lib/landfast/users\"
  [[share]]
  name = \"data\"
  path = \"/srv/data\"
  users = [\"alice\"]
  readers = [\"bob\"]
  guests = \"read\"
  read_only = false
  encrypt = false
  write_through = false
  persistent_opens = \"/var/lib/landfast/data.opens\"
  devices = [\"/dev/dax0.0\"]
  residency = \"lazy\"
  flash_budget = \"1G\"
  flash_region_budget = \"256M\"
  flash_tier = \"64G:/nvme/cache\"
  [[share.volume]]
  name = \"disk0\"
  path = \"/mnt/pmem/disk0\"
  [kerberos]
  keytab = \"/var/lib/landfast/cifs.keytab\"
  principal = \"cifs/files.example.org@EXAMPLE.ORG\"
  users = [\"carol\"]
  clock_skew_s = 300
  [[user]]
  name = \"alice\"
  password = \"secret\"

A config file with passwords that others may read is refused: chmod 600 it. So are a config file, users file, keytab \
or persistent_opens inside a share, whose clients could read and replace it. An account is named once, in whatever case, \
and a user of a share is not among its readers too; a --user takes the place of the [[user]] of that name.

SIGTERM and SIGINT stop the server cleanly: regions are recalled, answers sent, files closed. SIGHUP has it read the \
config file again: accounts change at once, and the log says what needs a restart. A mistake in it changes nothing: serve --check \
with the same options finds it beforehand.

A service manager that sets NOTIFY_SOCKET is told of the start, of each reload and of the end (dist/landfast.service).";

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
