//! What a daemon does beside serving, as a client of its own store: it removes pieces whose region is gone, collects
//! clients that died, and fills copies that are missing. Every step is safe to be taken by several daemons at once: each
//! changes the metadata only where it is as it was read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma::PollPolicy;

use super::maps::Mapping;
use super::parts::Parts;
use super::pieces::Piece;
use crate::client::{Store, StoreOptions};
use crate::error::StoreError;
use crate::ids::{ClientId, RegionId};
use crate::meta::record::{
    ClientRecord, CopyRecord, CopyState, RegionRecord, ServerRecord, ServerState,
};

/// Works until the daemon stops.
pub(super) fn keep(parts: &Arc<Parts>, settle: Duration) {
    let mut keeper = Keeper {
        parts,
        settle,
        store: None,
        clients: HashMap::new(),
        looked: None,
        lacking: BTreeMap::new(),
        orphans: Vec::new(),
        servers: HashMap::new(),
    };
    while !parts.lease.is_stopped() {
        parts.lease.pause(TURN.min(settle));
        if parts.lease.is_stopped() {
            return;
        }
        for (what, done) in [
            ("orphans", keeper.remove_orphans()),
            ("servers", keeper.watch_servers()),
            ("clients", keeper.collect_clients()),
            ("copies", keeper.fill_copies()),
        ] {
            if let Err(error) = done {
                tracing::info!(what, %error, "the keeper tries again later");
            }
        }
    }
}

struct Keeper<'p> {
    parts: &'p Arc<Parts>,
    settle: Duration,
    /// Opened when it is first needed.
    store: Option<Store>,
    /// The version of each client's record, and since when it has been this one.
    clients: HashMap<String, (u64, Instant)>,
    /// When it looked at the clients last.
    looked: Option<Instant>,
    /// Since when regions have lacked copies.
    lacking: BTreeMap<String, Instant>,
    /// The pieces that have no region, and since when.
    orphans: Vec<(Arc<Piece>, Instant)>,
    /// The version of each server's record, and since when it has been this one.
    servers: HashMap<String, (u64, Instant)>,
}

impl Keeper<'_> {
    fn store(&mut self) -> Result<Store, StoreError> {
        if let Some(store) = &self.store {
            return Ok(store.clone());
        }
        let options = StoreOptions {
            polling: PollPolicy::Block,
            environment: self.parts.environment.clone(),
            ..StoreOptions::new(Arc::clone(&self.parts.meta), Some(self.parts.key.clone()))
        };
        let store = Store::open(options)?;
        Ok(self.store.insert(store).clone())
    }

    /// Pieces whose region is gone, or is no longer here. A record is there before its pieces are made.
    fn remove_orphans(&mut self) -> Result<(), StoreError> {
        // Before the records are read: a piece that is made meanwhile is none of these.
        let here = self.parts.pieces.regions();
        let here: Vec<_> =
            here.into_iter().flat_map(|region| self.parts.pieces.of(region)).collect();
        if here.is_empty() {
            return Ok(());
        }
        let mut kept: HashSet<(RegionId, u32)> = HashSet::new();
        for (key, entry) in self.parts.meta.list("regions/")? {
            let record = RegionRecord::parse(&entry.value);
            let record = record.map_err(|source| StoreError::Record { key, source })?;
            for (number, piece) in (0_u32..).zip(&record.pieces) {
                if piece.copies.iter().any(|copy| copy.server == self.parts.name) {
                    kept.insert((record.id, number));
                }
            }
        }
        let now = self.parts.environment.clock.now();
        let (mut orphans, mut gone) = (Vec::new(), Vec::new());
        for piece in here {
            let header = piece.header();
            if kept.contains(&(header.region, header.piece)) {
                continue;
            }
            // A new copy's piece is made a moment before its record says so. One that replaced another is a new one.
            let before = self.orphans.iter().find(|(one, _)| Arc::ptr_eq(one, &piece));
            let since = before.map_or(now, |(_, since)| *since);
            match now.saturating_duration_since(since) >= self.settle {
                true => gone.push(piece),
                false => orphans.push((piece, since)),
            }
        }
        self.orphans = orphans;
        if !gone.is_empty() {
            let count = self.parts.pieces.remove_these(&gone);
            let is_gone = |one: &Mapping| self.parts.pieces.get(one.region, one.piece).is_none();
            self.parts.runtime.block_on(self.parts.maps.end(is_gone));
            tracing::info!(pieces = count, "pieces whose region is gone were removed");
        }
        Ok(())
    }

    /// Servers that have given no sign of life for long are declared dead, whether or not a client misses them.
    fn watch_servers(&mut self) -> Result<(), StoreError> {
        let now = self.parts.environment.clock.now();
        let settle = self.settle;
        let mut seen = HashMap::new();
        for (key, entry) in self.parts.meta.list("servers/")? {
            let since = match self.servers.get(&key) {
                Some((version, since)) if *version == entry.version => *since,
                _ => now,
            };
            let name = &key["servers/".len()..];
            let is_alive = ServerRecord::parse(&entry.value)
                .is_ok_and(|record| record.state == ServerState::Alive);
            if is_alive && now.saturating_duration_since(since) >= settle {
                self.store()?.declare_lost(name)?;
            }
            seen.insert(key, (entry.version, since));
        }
        self.servers = seen;
        Ok(())
    }

    /// Clients whose record has not changed for their lease, in which this daemon could change records all the time: while the
    /// metadata are away no client can give a sign of life, and none is late.
    fn collect_clients(&mut self) -> Result<(), StoreError> {
        let clock = self.parts.environment.clock.clone();
        let begun = clock.now();
        let listed = self.parts.meta.list("clients/");
        let now = clock.now();
        let before = self.looked.replace(now);
        let gap = before.map_or(Duration::MAX, |before| now.saturating_duration_since(before));
        let was_away = listed.is_err()
            || self.parts.lease.is_lost()
            || self.parts.lease.left().is_zero()
            || now.saturating_duration_since(begun) > TURN
            || gap > LOOK_GAP_MAX;
        if was_away {
            self.clients.clear();
        }
        let mut seen = HashMap::new();
        for (key, entry) in listed? {
            let Ok(record) = ClientRecord::parse(&entry.value) else { continue };
            let since = match self.clients.get(&key) {
                Some((version, since)) if *version == entry.version => *since,
                _ => now,
            };
            let lease = Duration::from_millis(record.lease_ms);
            let is_over = now.saturating_duration_since(since) > lease + lease / 10;
            let client = u64::from_str_radix(&key["clients/".len()..], 16).ok().map(ClientId);
            match client.filter(|_| is_over) {
                Some(client) => {
                    self.store()?.collect(client, entry.version)?;
                }
                None => {
                    seen.insert(key, (entry.version, since));
                }
            }
        }
        self.clients = seen;
        Ok(())
    }

    /// Regions that have lacked copies for a while, where a server is there for them.
    fn fill_copies(&mut self) -> Result<(), StoreError> {
        let now = self.parts.environment.clock.now();
        let mut lacking = BTreeMap::new();
        let mut servers: Option<BTreeMap<String, bool>> = None;
        for (key, entry) in self.parts.meta.list("regions/")? {
            let Ok(record) = RegionRecord::parse(&entry.value) else { continue };
            if record.copies == 1 {
                continue;
            }
            if servers.is_none() {
                let store = self.store()?;
                let found = store.servers()?.into_iter();
                servers = Some(
                    found.map(|(name, one)| (name, one.state == ServerState::Alive)).collect(),
                );
            }
            let alive = servers.as_ref().expect("it was filled");
            let is_good = |copy: &CopyRecord| {
                copy.state == CopyState::InSync && alive.get(&copy.server).copied().unwrap_or(false)
            };
            let wanted = usize::try_from(record.copies).expect("at most 3");
            let is_whole = record
                .pieces
                .iter()
                .all(|piece| piece.copies.iter().filter(|copy| is_good(copy)).count() >= wanted);
            if !is_whole {
                let name = key["regions/".len()..].to_owned();
                let since = self.lacking.get(&name).copied().unwrap_or(now);
                lacking.insert(name, since);
            }
        }
        let settle = self.settle;
        let due =
            lacking.iter().filter(|(_, since)| now.saturating_duration_since(**since) >= settle);
        let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        self.lacking = lacking;
        for name in due {
            match self.store()?.rebuild(&name) {
                Ok(done) if done.copies > 0 => {
                    tracing::info!(
                        region = name,
                        copies = done.copies,
                        bytes = done.bytes,
                        "copies were filled"
                    );
                }
                Ok(_) => {}
                Err(error) => tracing::info!(region = name, %error, "copies were not filled yet"),
            }
        }
        Ok(())
    }
}

const TURN: Duration = Duration::from_secs(1);
/// After a longer time between two looks at the clients all of them have their whole lease again.
const LOOK_GAP_MAX: Duration = Duration::from_secs(3);
