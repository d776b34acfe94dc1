//! Options of the demonstrations.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
