//! Sessions, their channels and their trees.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use smb::negotiate::Dialect;

use super::{ChannelRow, Sealing, SessionRow, Table, TreeRow, seconds};
use crate::access::Identity;
use crate::connections::{Link, Session};
use crate::service::Core;

/// The sessions, the oldest first.
pub(super) struct Numbered {
    sessions: Vec<Arc<Session>>,
    numbers: HashMap<u64, usize>,
}

impl Numbered {
    pub(super) fn of(core: &Core) -> Self {
        let mut sessions = core.sessions.all();
        sessions.sort_by_key(|session| session.since);
        let numbers = sessions.iter().zip(1..).map(|(session, number)| (session.id, number));
        Self { numbers: numbers.collect(), sessions }
    }

    pub(super) fn number(&self, session_id: u64) -> Option<usize> {
        self.numbers.get(&session_id).copied()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &Arc<Session>)> {
        (1..).zip(&self.sessions)
    }

    pub(super) fn rows(&self, now: Instant, rows_max: usize) -> Table<SessionRow> {
        let rows = self.all().take(rows_max).map(|(number, session)| row(number, session, now));
        Table { total: self.sessions.len(), rows: rows.collect() }
    }

    pub(super) fn trees(&self, rows_max: usize) -> Table<TreeRow> {
        let mut table = Table { total: 0, rows: Vec::new() };
        for (number, session) in self.all() {
            let trees = session.all_trees();
            table.total += trees.len();
            let room = rows_max - table.rows.len();
            if room == 0 || trees.is_empty() {
                continue;
            }
            let mut opens: HashMap<u32, usize> = HashMap::new();
            for open in session.all_opens() {
                *opens.entry(open.tree.id).or_default() += 1;
            }
            table.rows.extend(trees.iter().take(room).map(|tree| TreeRow {
                session: number,
                share: tree.share().map_or("IPC$", |share| share.name()).to_owned(),
                opens: opens.get(&tree.id).copied().unwrap_or(0),
            }));
        }
        table
    }
}

fn row(number: usize, session: &Session, now: Instant) -> SessionRow {
    let links = session.connections();
    let heard = links.iter().map(|link| link.last_heard()).max();
    SessionRow {
        session: number,
        user: user(&session.identity),
        dialect: dialect(session.agreed.dialect),
        signed: session.signing_required,
        sealed: match &session.sealing {
            _ if session.encrypt_required => Sealing::Required,
            Some(_) => Sealing::Possible,
            None => Sealing::No,
        },
        age_s: seconds(now, session.since),
        idle_s: seconds(now, heard.unwrap_or(session.since)),
        channels: links.iter().map(|link| channel(link)).collect(),
    }
}

// The specification's tables say SMB_3_1_1; people say 3.1.1.
fn dialect(dialect: Dialect) -> String {
    dialect.to_string().trim_start_matches("SMB_").replace('_', ".")
}

fn channel(link: &Link) -> ChannelRow {
    let transport = if link.remote_memory().is_some() { "rdma" } else { "tcp" };
    ChannelRow {
        transport: transport.to_owned(),
        client: link.peer.to_string(),
        pending: link.pending_count(),
    }
}

pub(super) fn user(identity: &Identity) -> Option<String> {
    match identity {
        Identity::User(name) => Some(name.to_string()),
        Identity::Guest { .. } => None,
    }
}
