//! The state of a running server, for its operator.
//!
//! The report is taken piece by piece: each table is copied under its own lock, held for no longer
//! than the copy, so that no client waits for a report. An object that ends meanwhile may stand in
//! one table and not in the next. The caller bounds the rows of a table; the total number is reported
//! all the same. No key, token, password or session id is in a report; sessions are numbered within
//! one report, the oldest first.

mod files;
pub(crate) mod heap;
mod sessions;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use self::heap::Heap;
use crate::server::{self, Status};
use crate::service::Core;
pub use crate::state::reactor::LongTurns;

/// A handle to a running server that does not keep the server alive.
#[derive(Clone, Debug)]
pub struct Observer {
    core: Weak<Core>,
}

/// A running server at one moment.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Report {
    /// Seconds since the server started.
    pub uptime_s: u64,
    /// Numbers of every kind of object.
    pub counters: Status,
    /// The heap of the process, if its allocator reports it.
    #[serde(default)]
    pub heap: Option<Heap>,
    /// Requests that kept a reactor or an engine for more than a millisecond, by command.
    #[serde(default)]
    pub long_turns: Vec<LongTurns>,
    /// Logged-on sessions.
    pub sessions: Table<SessionRow>,
    /// Tree connects of the sessions.
    pub trees: Table<TreeRow>,
    /// Open files and directories, orphans included.
    pub opens: Table<OpenRow>,
    /// Leases and oplocks.
    pub leases: Table<LeaseRow>,
    /// Regions mapped for push mode.
    pub regions: Table<RegionRow>,
    /// The memory for pages of files that are mapped lazily, once there was one.
    #[serde(default)]
    pub flash: Option<FlashReport>,
}

/// The memory for pages of files that are mapped lazily. Bytes; pages have 4096.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FlashReport {
    /// Most bytes.
    pub budget: u64,
    /// Bytes of pages in memory.
    pub resident: u64,
    /// Bytes of pages whose bytes are not in their files yet.
    pub dirty: u64,
    /// Pages read because somebody waited.
    pub fetched: u64,
    /// Pages read ahead.
    pub ahead: u64,
    /// Pages of holes, answered without a read.
    pub zeros: u64,
    /// Pages that made room for others.
    pub evictions: u64,
    /// Pages written back.
    pub written: u64,
    /// Placements that waited for the write-back.
    pub waits: u64,
    /// Pages read without a place in memory.
    pub bypassed: u64,
    /// Pages whose write-back has failed.
    pub failures: u64,
}

/// As many rows as the caller asked for.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Table<R> {
    /// The number of all rows.
    pub total: usize,
    /// The first rows.
    pub rows: Vec<R>,
}

/// A session.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SessionRow {
    /// Its number in this report.
    pub session: usize,
    /// The user; none for anonymous ones.
    pub user: Option<String>,
    /// Such as `3.1.1`.
    pub dialect: String,
    /// Requests must be signed.
    pub signed: bool,
    /// Whether requests must be, can be, or cannot be encrypted.
    pub sealed: Sealing,
    /// Seconds since it was set up.
    pub age_s: u64,
    /// Seconds since the last frame over one of its connections.
    pub idle_s: u64,
    /// Its connections, the oldest first.
    pub channels: Vec<ChannelRow>,
}

/// Whether requests come encrypted.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sealing {
    /// All of them.
    Required,
    /// The client or the share decides.
    Possible,
    /// The session has no keys for it.
    No,
}

/// A connection of a session.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ChannelRow {
    /// `tcp` or `rdma`.
    pub transport: String,
    /// The client's address.
    pub client: String,
    /// Requests under way.
    pub pending: usize,
}

/// A tree connect.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct TreeRow {
    /// The number of its session.
    pub session: usize,
    /// The share; `IPC$` for the pipes.
    pub share: String,
    /// Files open through it.
    pub opens: usize,
}

/// An open file or directory.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct OpenRow {
    /// The number of its session; none for an open that waits for its client to reconnect.
    pub session: Option<usize>,
    /// The user of the open.
    pub user: Option<String>,
    /// The share.
    pub share: String,
    /// The path in the share.
    pub path: String,
    /// Granted access as MS-SMB2 §2.2.13.1 counts it.
    pub access: u32,
    /// The uses of the open itself: letters of `rwd`.
    pub uses: String,
    /// The uses that the open allows to others: letters of `rwd`.
    pub shares: String,
    /// The caching rights, letters of `RWH`, and their kind; none if there are none.
    pub caching: Option<Caching>,
    /// How the open survives its connection, if it does.
    pub durable: Option<Durability>,
}

/// What may be cached.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Caching {
    /// `lease` or `oplock`.
    pub by: String,
    /// Letters of `RWH`.
    pub state: String,
}

/// How an open survives its connection.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// For a limited time, unless another client wants the file.
    Durable,
    /// Whatever other clients want.
    Persistent,
}

/// A lease or oplock.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LeaseRow {
    /// The share.
    pub share: String,
    /// The file.
    pub path: String,
    /// The key that the client chose, in hex; none for an oplock.
    pub key: Option<String>,
    /// Letters of `RWH`.
    pub state: String,
    /// The state after the break in progress.
    pub breaking_to: Option<String>,
    /// Milliseconds until the server takes it without an acknowledgement.
    pub breaking_ms: Option<u64>,
    /// Opens that share it.
    pub opens: usize,
}

/// A region mapped for push mode.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RegionRow {
    /// The number of its session; none if that has just ended.
    pub session: Option<usize>,
    /// The path in the share.
    pub path: String,
    /// Where the region begins, in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub length: u64,
    /// The durability class of a commit: `pmem`, `storage` or `volatile`.
    pub class: String,
    /// The client's rights: letters of `r`ead, `w`rite, `f`lush, `a`tomic write.
    pub rights: String,
    /// The number of the push connection.
    pub connection: u64,
    /// `active`, `recalling` or `ending`.
    pub state: String,
    /// Commits by SMB request; one-sided commits are not counted.
    pub commits: u64,
    /// What the pages of its file do, if it is mapped lazily.
    #[serde(default)]
    pub pages: Option<PagesRow>,
}

/// The pages of a file that is mapped lazily, for all its regions together.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PagesRow {
    /// Accesses that found their pages in memory.
    pub hits: u64,
    /// Accesses that waited for a page.
    pub misses: u64,
    /// Pages that came from the faster directory of the share (`flash_tier`).
    #[serde(default)]
    pub from_tier: u64,
    /// Bytes of pages whose bytes are not in the file yet.
    pub dirty: u64,
    /// Pages whose write-back has failed: their bytes are lost.
    pub lost: u64,
    /// The kernel's page cache is not used.
    pub is_direct: bool,
    /// Batches go by io_uring, not by threads.
    pub is_ring: bool,
}

impl Observer {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self { core: Arc::downgrade(core) }
    }

    /// At most `rows_max` rows of each table; `None` once the server is gone.
    pub fn report(&self, rows_max: usize) -> Option<Report> {
        let core = self.core.upgrade()?;
        let now = core.now();
        let sessions = sessions::Numbered::of(&core);
        Some(Report {
            uptime_s: seconds(now, core.started),
            counters: server::status_of(&core),
            heap: Heap::now(),
            long_turns: core.connections.reactor.offenders(),
            sessions: sessions.rows(now, rows_max),
            trees: sessions.trees(rows_max),
            opens: files::opens(&core, &sessions, rows_max),
            leases: files::leases(&core, now, rows_max),
            regions: files::regions(&core, &sessions, rows_max),
            flash: files::flash(&core),
        })
    }
}

fn seconds(now: Instant, since: Instant) -> u64 {
    now.saturating_duration_since(since).as_secs()
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
