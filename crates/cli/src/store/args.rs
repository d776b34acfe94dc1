//! The command line of `landfast store`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use store::meta::record::Class;

/// Options of `landfast store`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = NOTES)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    pub(crate) command: StoreCommand,
}

/// What to do with a store.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Run a daemon that holds pieces; `landfast serve --store` does so beside its shares
    Serve(ServeStore),
    /// Make a region of zeros
    Create(Create),
    /// List the regions
    List(Listed),
    /// Show where the pieces of a region are, and which copies are in sync
    Info(Named),
    /// Write bytes of a region to standard output
    Read(Read),
    /// Write standard input to a region
    Write(Write),
    /// Remove a region
    Free(Of),
    /// List the servers, their room, class and state
    Servers(Listed),
    /// Fill the copies of a region that are missing, while clients go on
    Rebuild(Named),
    /// Print a token for one region, to be given to a client that has no key
    Token(MakeToken),
    /// Revoke all tokens of a region that were given out
    Revoke(Of),
    /// Measure reads and writes of a region of its own, beside the same on a plain region of a share if one is named
    Bench(Bench),
}

/// Which store.
#[derive(Args, Clone, Debug)]
pub(crate) struct Which {
    /// Where the metadata is: a directory of this machine, or etcd://HOST:PORT[,HOST:PORT...]/NAME
    #[arg(long, value_name = "PLACE", env = "LANDFAST_STORE")]
    pub(crate) meta: String,
    /// The store's key, a file that only its owner may read [default: the file `key` of the metadata's directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

/// The daemon beside a server's shares.
#[derive(Args, Clone, Debug)]
pub(crate) struct Serving {
    /// Directory whose room this server gives to a striped store, too (docs/store.md)
    #[arg(long = "store", value_name = "DIRECTORY", requires = "store_meta")]
    pub(crate) store: Option<PathBuf>,
    /// Where the store's metadata is: a directory of this machine, or etcd://HOST:PORT/NAME
    #[arg(long, value_name = "PLACE")]
    pub(crate) store_meta: Option<String>,
    /// The store's key [default: the file `key` of the metadata's directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) store_key: Option<PathBuf>,
    /// The server's name in the store [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) store_name: Option<String>,
    /// Address for the store's control messages [default: a free port of the address of --listen]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) store_listen: Option<SocketAddr>,
    /// Bytes that the store may use, or with K, M or G [default: what the file system has]
    #[arg(long, value_name = "SIZE", value_parser = crate::size::size)]
    pub(crate) store_capacity: Option<u64>,
}

/// Options of `landfast store serve`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeStore {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The directory of the pieces
    pub(crate) directory: PathBuf,
    /// The server's name in the store [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Address for control messages
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Address for RDMA
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    pub(crate) rdma_listen: SocketAddr,
    /// Where clients reach the control messages, if --listen does not say it (0.0.0.0, containers)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) announce: Option<SocketAddr>,
    /// Bytes that may be used, or with K, M or G [default: what the file system has]
    #[arg(long, value_name = "SIZE", value_parser = crate::size::size)]
    pub(crate) capacity: Option<u64>,
    /// Answer commits of tmpfs as if it were durable. For measurements and tests only
    #[arg(long)]
    pub(crate) emulate_persistence: bool,
    /// How the RDMA engine waits for work
    #[arg(long, default_value = "adaptive")]
    pub(crate) poll: crate::poll::Poll,
}

/// Options of `landfast store create`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Create {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The region's name
    pub(crate) name: String,
    /// Its bytes, or with K, M or G
    #[arg(long, value_parser = crate::size::size)]
    pub(crate) size: u64,
    /// Bytes that lie together on one server
    #[arg(long, default_value = "1M", value_parser = crate::size::size)]
    pub(crate) stripe: u64,
    /// Servers to stripe over; 0: all of the class
    #[arg(long, default_value_t = 0)]
    pub(crate) width: u32,
    /// Copies of each byte, 1 to 3, on different servers
    #[arg(long, default_value_t = 1)]
    pub(crate) copies: u32,
    /// The durability class of the servers
    #[arg(long, default_value = "storage")]
    pub(crate) class: ClassArg,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// A durability class.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum ClassArg {
    /// Memory that power loss erases
    Volatile,
    /// A disk
    Storage,
    /// Persistent memory
    Pmem,
}

impl From<ClassArg> for Class {
    fn from(class: ClassArg) -> Self {
        match class {
            ClassArg::Volatile => Self::Volatile,
            ClassArg::Storage => Self::Storage,
            ClassArg::Pmem => Self::Pmem,
        }
    }
}

/// [`Which`], with a choice of the output.
#[derive(Args, Clone, Debug)]
pub(crate) struct Listed {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// A region.
#[derive(Args, Clone, Debug)]
pub(crate) struct Of {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The region's name
    pub(crate) name: String,
}

/// The region of a benchmark.
#[derive(Args, Clone, Debug)]
pub(crate) struct NewRegion {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The name of the region: it is made for the measurement, and removed
    pub(crate) name: String,
}

/// A region, with a choice of the output.
#[derive(Args, Clone, Debug)]
pub(crate) struct Named {
    #[command(flatten)]
    pub(crate) of: Of,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// A region, and a token where there is no key.
#[derive(Args, Clone, Debug)]
pub(crate) struct Used {
    #[command(flatten)]
    pub(crate) of: Of,
    /// A token for the region, instead of the store's key; visible to other local users in the process list
    /// unless it comes by LANDFAST_STORE_TOKEN
    #[arg(long, env = "LANDFAST_STORE_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}

/// Options of `landfast store read`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Read {
    #[command(flatten)]
    pub(crate) used: Used,
    /// Where to begin
    #[arg(long, default_value = "0", value_parser = crate::size::size)]
    pub(crate) offset: u64,
    /// How many bytes [default: to the end]
    #[arg(long, value_parser = crate::size::size)]
    pub(crate) len: Option<u64>,
}

/// Options of `landfast store write`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Write {
    #[command(flatten)]
    pub(crate) used: Used,
    /// Where to begin
    #[arg(long, default_value = "0", value_parser = crate::size::size)]
    pub(crate) offset: u64,
    /// End only when the bytes are durable at every copy, in the region's class
    #[arg(long)]
    pub(crate) durable: bool,
}

/// Options of `landfast store token`.
#[derive(Args, Clone, Debug)]
pub(crate) struct MakeToken {
    #[command(flatten)]
    pub(crate) of: Of,
    /// Allow writes and atomic operations as well
    #[arg(long)]
    pub(crate) write: bool,
    /// How long it is good, in seconds
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    pub(crate) seconds: u64,
}

/// Options of `landfast store bench`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Bench {
    #[command(flatten)]
    pub(crate) of: NewRegion,
    /// Bytes of the region that is made, or with K, M or G
    #[arg(long, default_value = "64M", value_parser = crate::size::size, conflicts_with = "existing")]
    pub(crate) size: u64,
    /// Its copies of each byte, 1 to 3
    #[arg(long, default_value_t = 1, conflicts_with = "existing")]
    pub(crate) copies: u32,
    /// The durability class of its servers
    #[arg(long, default_value = "storage", conflicts_with = "existing")]
    pub(crate) class: ClassArg,
    /// Measure in a region (and with --plain a file) that is there, and leave it: its bytes are OVERWRITTEN
    #[arg(long)]
    pub(crate) existing: bool,
    /// Bytes of each operation
    #[arg(short, long, default_value = "4K", value_parser = crate::size::size)]
    pub(crate) block: u64,
    /// Operations outstanding
    #[arg(short, long, default_value_t = 1)]
    pub(crate) outstanding: usize,
    /// Seconds of each arm's turn
    #[arg(short = 'd', long, default_value = "0.5", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// How often all arms take a turn
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// How the RDMA engine waits
    #[arg(long, default_value = "adaptive")]
    pub(crate) poll: crate::poll::Poll,
    /// A file of a share, smb://USER:PASSWORD@HOST:PORT/SHARE/PATH, whose push region takes turns as well; the file is
    /// made and removed. One operation outstanding
    #[arg(long, value_name = "URL")]
    pub(crate) plain: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// A time in seconds, with a fraction.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "this is no number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

const NOTES: &str = "\
Memory of many servers as named regions that clients read and write one-sidedly. docs/store.md has the guide, the formats, and
what is enforced where.

Example, on one machine:
    export LANDFAST_STORE=/tmp/store/meta
    landfast store serve /tmp/store/a --name a &
    landfast store serve /tmp/store/b --name b &
    landfast store create results --size 1G --copies 2
    echo hello | landfast store write results
    landfast store read results --len 6
    landfast store info results
    landfast store servers";
