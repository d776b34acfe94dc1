//! Opens, leases and regions.

use std::sync::Arc;
use std::time::Instant;

use smb::push::{RegionState, Rights};

use super::sessions::{Numbered, user};
use super::{
    Caching, Durability, FlashReport, LeaseRow, OpenRow, PagesRow, RegionRow, Table, milliseconds,
};
use crate::push::Region;
use crate::service::Core;
use crate::state::Open;
use crate::state::caching::{self, Flavor};
use crate::state::lease::Owner;
use crate::state::sharing::Kinds;

/// Opens of sessions, then opens that wait for their client.
pub(super) fn opens(core: &Core, sessions: &Numbered, rows_max: usize) -> Table<OpenRow> {
    let mut table = Table { total: 0, rows: Vec::new() };
    let of_sessions = sessions.all().map(|(number, session)| (Some(number), session.all_opens()));
    for (number, opens) in of_sessions.chain([(None, core.files.orphans.all())]) {
        table.total += opens.len();
        let room = rows_max - table.rows.len();
        table.rows.extend(opens.iter().take(room).map(|open| open_row(number, open)));
    }
    table
}

fn open_row(session: Option<usize>, open: &Open) -> OpenRow {
    let (path, sharing, granted) = {
        let state = open.node.lock();
        let record = state.record(open.serial);
        let path = record.map(|record| record.path.to_wire()).unwrap_or_default();
        let sharing = record.map(|record| record.sharing).unwrap_or_default();
        (path, sharing, state.leases.granted(open.owner))
    };
    let caching = granted.filter(|granted| granted.caching != caching::Caching::NONE);
    OpenRow {
        session,
        user: user(&open.origin.user),
        share: open.tree.share().map(|share| share.name().to_owned()).unwrap_or_default(),
        path,
        access: open.access.bits(),
        uses: kinds(sharing.uses),
        shares: kinds(sharing.shares),
        caching: caching.map(|granted| Caching {
            by: if granted.flavor == Flavor::Oplock { "oplock" } else { "lease" }.to_owned(),
            state: caching_letters(granted.caching),
        }),
        durable: open.durable().map(|durable| match durable.persistent {
            true => Durability::Persistent,
            false => Durability::Durable,
        }),
    }
}

/// Leases and oplocks of all files.
pub(super) fn leases(core: &Core, now: Instant, rows_max: usize) -> Table<LeaseRow> {
    let mut table = Table { total: 0, rows: Vec::new() };
    for node in core.files.nodes.all() {
        let state = node.lock();
        table.total += state.leases.len();
        let room = rows_max - table.rows.len();
        for held in state.leases.holdings().take(room) {
            let record = state.opens.iter().find(|record| record.owner == held.owner);
            let breaking = held.breaking.map(|(to, deadline)| {
                (caching_letters(to), milliseconds(deadline.saturating_duration_since(now)))
            });
            let (breaking_to, breaking_ms) = breaking.unzip();
            table.rows.push(LeaseRow {
                share: record.map(|record| record.share.name().to_owned()).unwrap_or_default(),
                path: record.map(|record| record.path.to_wire()).unwrap_or_default(),
                key: match held.owner {
                    Owner::Lease { key, .. } => Some(hex(&key)),
                    Owner::Open(_) => None,
                },
                state: caching_letters(held.caching),
                breaking_to,
                breaking_ms,
                opens: held.opens,
            });
        }
    }
    table
}

/// Regions of all push connections, in the order they were mapped.
pub(super) fn regions(core: &Core, sessions: &Numbered, rows_max: usize) -> Table<RegionRow> {
    let mut regions = core.push.all_regions();
    regions.sort_by_key(|region| region.number());
    let rows = regions.iter().take(rows_max).map(|region| region_row(region, sessions));
    Table { total: regions.len(), rows: rows.collect() }
}

fn region_row(region: &Arc<Region>, sessions: &Numbered) -> RegionRow {
    let view = region.view();
    RegionRow {
        session: sessions.number(view.session_id),
        path: view.path.to_wire(),
        offset: view.offset,
        length: view.length,
        class: view.class.to_string(),
        rights: rights(view.rights),
        connection: view.connection,
        state: match view.state {
            RegionState::ACTIVE => "active",
            RegionState::RECALLING => "recalling",
            _ => "ending",
        }
        .to_owned(),
        commits: view.commits,
        pages: region.entry.pages().map(|pages| PagesRow {
            hits: pages.hits,
            misses: pages.misses,
            from_tier: pages.from_tier,
            dirty: pages.dirty,
            lost: pages.lost,
            is_direct: pages.is_direct,
            is_ring: pages.is_ring,
        }),
    }
}

/// The memory for pages of files that are mapped lazily.
pub(super) fn flash(core: &Core) -> Option<FlashReport> {
    let stats = core.files.names.budget()?.made()?.stats();
    Some(FlashReport {
        budget: stats.budget,
        resident: stats.resident,
        dirty: stats.dirty,
        fetched: stats.fetched,
        ahead: stats.ahead,
        zeros: stats.zeros,
        evictions: stats.evictions,
        written: stats.written,
        waits: stats.waits,
        bypassed: stats.bypassed,
        failures: stats.failures,
    })
}

fn kinds(kinds: Kinds) -> String {
    letters([(kinds.read, 'r'), (kinds.write, 'w'), (kinds.delete, 'd')])
}

fn caching_letters(caching: caching::Caching) -> String {
    let has = |part| caching.contains(part);
    letters([
        (has(caching::Caching::READ), 'R'),
        (has(caching::Caching::WRITE), 'W'),
        (has(caching::Caching::HANDLE), 'H'),
    ])
}

fn rights(rights: Rights) -> String {
    letters([
        (rights.contains(Rights::READ), 'r'),
        (rights.contains(Rights::WRITE), 'w'),
        (rights.contains(Rights::FLUSH), 'f'),
        (rights.contains(Rights::ATOMIC_WRITE), 'a'),
    ])
}

fn letters<const N: usize>(of: [(bool, char); N]) -> String {
    of.into_iter().filter(|(is_there, _)| *is_there).map(|(_, letter)| letter).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
