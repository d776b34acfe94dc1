//! What goes on in a running server, for whoever operates it.
//!
//! Taken piece by piece: each table is copied under its own lock, held for no longer than the copy,
//! so that nobody waits for a report. What ends meanwhile may stand in one table and not in the next.
//! Rows of a table are bounded by the caller; how many there are is told all the same. No key, token,
//! password or session id is in it; sessions are numbered within one report, the oldest first.

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

/// Looks into a running server without keeping it.
#[derive(Clone, Debug)]
pub struct Observer {
    core: Weak<Core>,
}

/// A running server at one moment.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Report {
    /// Seconds since the server started.
    pub uptime_s: u64,
    /// How many of everything.
    pub counters: Status,
    /// The heap of the process, where its allocator says.
    #[serde(default)]
    pub heap: Option<Heap>,
    /// Which requests kept a reactor or an engine for more than a millisecond.
    #[serde(default)]
    pub long_turns: Vec<LongTurns>,
    /// Who is logged on.
    pub sessions: Table<SessionRow>,
    /// What they have connected to.
    pub trees: Table<TreeRow>,
    /// Open files and directories, orphans included.
    pub opens: Table<OpenRow>,
    /// Leases and oplocks.
    pub leases: Table<LeaseRow>,
    /// Regions mapped for push mode.
    pub regions: Table<RegionRow>,
}

/// Rows, as many as were asked for.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Table<R> {
    /// How many there are.
    pub total: usize,
    /// The first of them.
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
    /// Seconds since anything came over one of its connections.
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
    /// As the client likes, or the share wants it.
    Possible,
    /// There are no keys for it.
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
    /// Of which session.
    pub session: usize,
    /// The share; `IPC$` for the pipes.
    pub share: String,
    /// Files open through it.
    pub opens: usize,
}

/// An open file or directory.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct OpenRow {
    /// Of which session; none for one that waits for its client to come back.
    pub session: Option<usize>,
    /// Whose.
    pub user: Option<String>,
    /// The share.
    pub share: String,
    /// The path in it.
    pub path: String,
    /// Granted access as MS-SMB2 §2.2.13.1 counts it.
    pub access: u32,
    /// What it uses: letters of `rwd`.
    pub uses: String,
    /// What others may use meanwhile: letters of `rwd`.
    pub shares: String,
    /// What it may cache, letters of `RWH`, and by which means; none if nothing.
    pub caching: Option<Caching>,
    /// How it survives its connection, if it does.
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
    /// For a while, and unless somebody else wants the file.
    Durable,
    /// Whatever others want.
    Persistent,
}

/// A lease or oplock.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LeaseRow {
    /// The share.
    pub share: String,
    /// The file.
    pub path: String,
    /// The key the client has chosen, in hex; none for an oplock.
    pub key: Option<String>,
    /// Letters of `RWH`.
    pub state: String,
    /// What is left once the break under way is answered.
    pub breaking_to: Option<String>,
    /// Milliseconds until it is taken without an answer.
    pub breaking_ms: Option<u64>,
    /// Opens that share it.
    pub opens: usize,
}

/// A region mapped for push mode.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RegionRow {
    /// Of which session; none if that has just ended.
    pub session: Option<usize>,
    /// The file, in its share.
    pub path: String,
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
    /// What a commit comes to: `pmem`, `storage` or `volatile`.
    pub class: String,
    /// What the client may do: letters of `r`ead, `w`rite, `f`lush, `a`tomic write.
    pub rights: String,
    /// The number of the push connection.
    pub connection: u64,
    /// `active`, `recalling` or `ending`.
    pub state: String,
    /// Commits that were asked for by an SMB request; one-sided ones pass nobody who counts.
    pub commits: u64,
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
            long_turns: core.reactor.offenders(),
            sessions: sessions.rows(now, rows_max),
            trees: sessions.trees(rows_max),
            opens: files::opens(&core, &sessions, rows_max),
            leases: files::leases(&core, now, rows_max),
            regions: files::regions(&core, &sessions, rows_max),
        })
    }
}

fn seconds(now: Instant, since: Instant) -> u64 {
    now.saturating_duration_since(since).as_secs()
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
