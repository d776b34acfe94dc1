//! The command line of `landfast replica`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::group::EntryMode;

/// Options of `landfast replica`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = NOTES)]
pub(crate) struct Replica {
    #[command(subcommand)]
    pub(crate) command: ReplicaCommand,
}

/// What to do with a group.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ReplicaCommand {
    /// Describe a new group: its volumes and members, in a file that every member gets
    Create(Create),
    /// Make a member's log, and its volumes where they are missing, on this machine
    Prepare(Prepare),
    /// Run a member on this machine, and offer the volumes while it is the source
    #[command(after_long_help = SERVE_NOTES)]
    Serve(Serve),
    /// Show how a member is: role, state, log, what the others lack
    Status(Asked),
    /// Show what has happened at a member since it was started
    Events(Events),
    /// Make a member the source: the first one, or after the source is gone for good
    Promote(Promote),
    /// Make the source an ordinary member; nobody is the source then
    Demote(Of),
    /// Make another member the source, without loss: the source applies what is under way and hands over
    Reverse(To),
    /// Send nothing more to a member until it is resumed; applications go on, and what it lacks is noted
    Suspend(To),
    /// Send to a suspended member again: what it lacks comes first
    Resume(To),
    /// Compare all blocks of a member with the source's, and copy those that differ
    Sync(To),
    /// Compare all blocks of all members at exact points of the order, while applications write
    #[command(after_long_help = VERIFY_NOTES)]
    Verify(Verify),
    /// Go on without a member that was in sync when the source stopped, and has not come back
    GoOnWithout(To),
    /// Have a running member take what has changed in the file: what can change at once does, and the rest is named
    #[command(after_long_help = APPLY_NOTES)]
    Apply(Apply),
    /// Change keys of the file, and have the running member take them
    #[command(after_long_help = SET_NOTES)]
    Set(Set),
    /// Make a volume longer at all members, while it is used
    #[command(after_long_help = RESIZE_NOTES)]
    Resize(Resize),
    /// Put a named point into the order; a view can be made at it
    Mark(Mark),
    /// List the points at which a member can show its volumes
    Points(Of),
    /// Show the volumes as they were at a point (at the source: as they are now), writable, while replication goes on
    Mount(Mount),
    /// End a view that `mount` made; what was written to it is gone
    Unmount(Unmount),
    /// Add a member to the file of a group; every member gets the new file and is started again
    Add(Add),
    /// Remove a member from the file of a group; every member gets the new file and is started again
    Remove(Remove),
    /// Print a group as a script that makes it again, all of its file included, but for the secret
    Export(Export),
    /// Measure two machines and the way between them, and estimate what replication will cost there
    #[command(after_long_help = TOPOLOGY_NOTES)]
    TestTopology(TestTopology),
}

/// The group, and which of its members on this machine is meant.
#[derive(Args, Clone, Debug)]
pub(crate) struct Of {
    /// The file that describes the group
    pub(crate) file: PathBuf,
    /// The member [default: the one that runs on this machine]
    #[arg(long, value_name = "NAME")]
    pub(crate) at: Option<String>,
}

/// [`Of`], with a choice of the output.
#[derive(Args, Clone, Debug)]
pub(crate) struct Asked {
    #[command(flatten)]
    pub(crate) of: Of,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `landfast replica events`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Events {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Only those behind this number
    #[arg(long, default_value_t = 0)]
    pub(crate) since: u64,
}

/// [`Of`], and another member.
#[derive(Args, Clone, Debug)]
pub(crate) struct To {
    /// The file that describes the group
    pub(crate) file: PathBuf,
    /// The other member
    pub(crate) member: String,
    /// The member that is asked [default: the one that runs on this machine]
    #[arg(long, value_name = "NAME")]
    pub(crate) at: Option<String>,
}

/// Options of `landfast replica create`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = CREATE_NOTES)]
pub(crate) struct Create {
    /// The file to write; the secret of the group lies beside it
    pub(crate) file: PathBuf,
    /// The group's name [default: that of the file]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// A volume: its name, and its bytes, or with K, M or G
    #[arg(long, required = true, value_name = "NAME=SIZE")]
    pub(crate) volume: Vec<String>,
    /// A member: its name, where the others reach it, and its directory on its machine
    #[arg(long, required = true, value_name = "NAME=ADDR:PORT,DIRECTORY")]
    pub(crate) member: Vec<String>,
    /// Bytes of the log of each member: an outage up to that many written bytes needs no copies
    #[arg(long, default_value = "1G", value_parser = crate::size::size)]
    pub(crate) log_size: u64,
}

/// Options of `landfast replica prepare`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Prepare {
    /// The file that describes the group
    pub(crate) file: PathBuf,
    /// The member
    pub(crate) member: String,
    /// Give up a log that is there already; the member is copied whole then
    #[arg(long)]
    pub(crate) overwrite: bool,
}

/// Options of `landfast replica serve`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// The file that describes the group
    pub(crate) file: PathBuf,
    /// The member
    pub(crate) member: String,
    /// Offer the volumes by NBD on a unix socket that only this user may connect to
    #[arg(long, value_name = "PATH")]
    pub(crate) unix: Option<PathBuf>,
    /// Offer the volumes by NBD on a TCP address
    #[arg(long, value_name = "ADDR:PORT", requires = "anybody")]
    pub(crate) nbd: Option<SocketAddr>,
    /// Let anybody who reaches the address read and write
    #[arg(long)]
    pub(crate) anybody: bool,
    /// Offer the volumes as files below this directory, through /dev/fuse
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["unix", "nbd"])]
    pub(crate) fuse: Option<PathBuf>,
    /// Attach a loop device, /dev/loopN, to each of these files; for root
    #[arg(long = "loop", requires = "fuse")]
    pub(crate) loops: bool,
    /// Take tmpfs for durable memory
    #[arg(long)]
    pub(crate) emulate_persistence: bool,
    /// Tell Prometheus and whoever else asks, at http://ADDR:PORT/metrics, how the member is
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
}

/// Options of `landfast replica promote`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Promote {
    #[command(flatten)]
    pub(crate) of: Of,
    /// The member was in sync to the end of the source before, which a member that has started again cannot know by itself
    #[arg(long)]
    pub(crate) was_in_sync: bool,
    /// Though the member may lack what the source has acknowledged: that is lost then
    #[arg(long)]
    pub(crate) force: bool,
}

/// Options of `landfast replica verify`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) of: Of,
    /// Compare this volume alone
    #[arg(long, value_name = "NAME")]
    pub(crate) volume: Option<String>,
    /// Order the comparison, and do not wait for what comes of it
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Mode {
    /// It is durable at the member
    Sync,
    /// It is in the member's memory
    SemiSync,
    /// Nothing is waited for
    Async,
}

impl From<Mode> for EntryMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Sync => Self::Sync,
            Mode::SemiSync => Self::SemiSync,
            Mode::Async => Self::Async,
        }
    }
}

/// Options of `landfast replica apply`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Apply {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Show what differs and what would become of it, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The other members have the new `least_in_sync` already, where the order matters
    #[arg(long)]
    pub(crate) others_have_it: bool,
}

/// Options of `landfast replica set`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Set {
    /// The file that describes the group
    pub(crate) file: PathBuf,
    /// A member, if keys of it are to change, and then the keys with their values; an empty value is the default
    #[arg(value_name = "MEMBER | KEY=VALUE")]
    pub(crate) what: Vec<String>,
    /// When writes are answered, as far as the member is concerned; the file stays, and is in force again with the next start
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
    /// The member that is asked [default: the one that runs on this machine]
    #[arg(long, value_name = "NAME")]
    pub(crate) at: Option<String>,
    /// The other members have the new `least_in_sync` already, where the order matters
    #[arg(long)]
    pub(crate) others_have_it: bool,
}

/// Options of `landfast replica resize`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Resize {
    /// The file that describes the group
    pub(crate) file: PathBuf,
    /// The volume's name
    pub(crate) volume: String,
    /// Its new size in bytes, or with K, M, G or T; volumes only grow
    #[arg(value_parser = crate::size::size)]
    pub(crate) size: u64,
    /// The source [default: the member that runs on this machine]
    #[arg(long, value_name = "NAME")]
    pub(crate) at: Option<String>,
}

/// Options of `landfast replica mark`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Mark {
    /// The file that describes the group
    pub(crate) file: PathBuf,
    /// The point's name, 1 to 255 bytes
    pub(crate) name: String,
    /// The member that is asked [default: the one that runs on this machine]
    #[arg(long, value_name = "NAME")]
    pub(crate) at: Option<String>,
}

/// Options of `landfast replica mount`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Mount {
    /// The file that describes the group
    pub(crate) file: PathBuf,
    /// The member [default: the one that runs on this machine]
    #[arg(long, value_name = "NAME")]
    pub(crate) member: Option<String>,
    /// The point: latest, an LSN as 0x1a40, a time as 2026-11-25T10:00:00Z, or the name of a mark
    #[arg(long, value_name = "POINT", default_value = "latest")]
    pub(crate) at: String,
    /// Bytes of each volume that may be written to the view, or change below it
    #[arg(long, default_value = "16G", value_parser = crate::size::size)]
    pub(crate) room: u64,
    /// Show the volumes as files below this directory instead of by NBD
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) fuse: Option<PathBuf>,
    /// Attach a loop device to each of these files; for root
    #[arg(long = "loop", requires = "fuse")]
    pub(crate) loops: bool,
}

/// Options of `landfast replica unmount`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Unmount {
    #[command(flatten)]
    pub(crate) of: Of,
    /// The view's number, as `mount` printed it
    pub(crate) view: u64,
}

/// Options of `landfast replica add`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Add {
    /// The file that describes the group
    pub(crate) file: PathBuf,
    /// The member: its name, where the others reach it, and its directory on its machine
    #[arg(value_name = "NAME=ADDR:PORT,DIRECTORY")]
    pub(crate) member: String,
    /// Its number, where it is to have that of a member that was removed and whose machine is gone for good
    #[arg(long)]
    pub(crate) number: Option<u8>,
}

/// Options of `landfast replica remove`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Remove {
    /// The file that describes the group
    pub(crate) file: PathBuf,
    /// The member
    pub(crate) member: String,
}

/// Options of `landfast replica export`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Export {
    /// The file that describes the group
    pub(crate) file: PathBuf,
}

/// Options of `landfast replica test-topology`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TestTopology {
    /// The file that describes the group
    pub(crate) file: PathBuf,
    /// The member of this machine; it must not be running
    pub(crate) member: String,
    /// Answer the other machine's measurement, until Ctrl-C
    #[arg(long, conflicts_with_all = ["to", "json", "html", "writes_per_second"])]
    pub(crate) answer: bool,
    /// The member to measure to, whose machine answers [default: the only other one]
    #[arg(long, value_name = "NAME")]
    pub(crate) to: Option<String>,
    /// Seconds of each measurement; there are four of links and up to three of each disk
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
    /// Bytes that applications write in a second [default: as many as all parts can take]
    #[arg(long, value_name = "BYTES", value_parser = crate::size::size)]
    pub(crate) writes_per_second: Option<u64>,
    /// A member that is away for so many seconds is to go on from the log, without copies
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) outage: u64,
    /// Where to write all figures [default: GROUP-MEMBER-TO.json]
    #[arg(long, value_name = "PATH")]
    pub(crate) json: Option<PathBuf>,
    /// Where to write the page with the charts [default: GROUP-MEMBER-TO.html]
    #[arg(long, value_name = "PATH")]
    pub(crate) html: Option<PathBuf>,
}

const NOTES: &str = "\
A group is some volumes with one order of writes, and the members that hold copies of them. One member is the source; its
writes are answered once they are durable at all members in sync. docs/replica.md tells how to run one.";

const CREATE_NOTES: &str = "\
Example, two machines:
    landfast replica create db.toml --volume data=100G --volume log=10G \\
        --member alpha=10.0.0.1:7445,/srv/db --member beta=10.0.0.2:7445,/srv/db
    scp db.toml db.toml.secret beta:
    landfast replica prepare db.toml alpha          (and on the other machine: prepare db.toml beta)
    landfast replica serve db.toml alpha --unix /run/db.sock
    landfast replica promote db.toml --at alpha --force   # once: a new group has no source, and nothing to lose";

const APPLY_NOTES: &str = "\
Each member is asked on its own machine, once it has the new file. What changes at once: the modes of members, least_in_sync,
silence_ms, window, retention_s, congestion, compression, rpo_ms, rpo_throttle, bandwidth, and at the source longer volumes.
What a member reads when it starts, and what never changes, is named with its reason. The exit status is 1 where something of
the file is not in force.

A member of a version before 27 November 2026 lets itself be promoted after a restart without a question where its file says that
nothing is answered without all members (least_in_sync is their number). So a smaller least_in_sync comes to the source last, and
one that becomes the number of all members comes to the source first: --others-have-it says that all others run by it. A file that
changes the members as well is taken in two steps.

Example:
    vi db.toml
    landfast replica apply db.toml --dry-run
    landfast replica apply db.toml
    scp db.toml beta: && ssh beta landfast replica apply db.toml";

const SET_NOTES: &str = "\
The file is changed, comments and all else stay, and the member that runs on this machine takes the new values. What cannot
change while a member runs is refused, and the file stays as it was: change it there, and see `apply`. Where no member runs here
the file alone is changed.

Examples:
    landfast replica set db.toml window=32M compression=lz4
    landfast replica set db.toml rpo_ms=                        (none: the default)
    landfast replica set db.toml beta mode=async
    landfast replica set db.toml beta --mode async              (the file stays: until the source is started again, or `apply`)";

const VERIFY_NOTES: &str = "\
The exit status is 0 once all members have compared everything and nothing differed; 1 where something differed, which is
copied from the source, and where a member that is away or gets copies has not compared. A member that retains records
(retention_s) compares when it applies them. Ctrl-C ends the waiting, not the comparison.";

const RESIZE_NOTES: &str = "\
A volume that is a file grows by itself at every member. One that is a device has to be so long at every member before: a member
where it is not follows no more until it is, which the source's events say. What is new reads as zeroes. A file system is grown
afterwards, at the source:
    landfast replica resize db.toml data 200G
    losetup --set-capacity /dev/loop0 && resize2fs /dev/loop0      (with --fuse --loop; clients of NBD connect again)

The members remember the size; the file's `size` is that of members which are made later, so change it as well.";

const TOPOLOGY_NOTES: &str = "\
Both machines need the file of the group and its secret; the links are those that members use, TLS included. The bandwidth is
that towards the member that answers: run it the other way round as well.

Example:
    beta$   landfast replica test-topology db.toml beta --answer
    alpha$  landfast replica test-topology db.toml alpha --to beta --outage 600";

const SERVE_NOTES: &str = "\
Clients may be connected to any member: one that is not the source answers every request with ESHUTDOWN.

Examples:
    landfast replica serve db.toml alpha --unix /run/db.sock
    qemu-img info 'nbd+unix:///data?socket=/run/db.sock'
    landfast replica serve db.toml alpha --fuse /run/db --loop      (then mount /dev/loopN)

SIGTERM and SIGINT end the member; what it has acknowledged is durable. Requests that wait for other members fail after 2 s,
and a second signal ends the process at once.";
