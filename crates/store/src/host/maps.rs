//! The mappings of all clients: who may use which piece, until when, and how it ends.
//!
//! ```text
//!   mapped --- given back, session over, token expired or revoked, client fenced, daemon declared dead ---> gone
//!          \-- epoch passed: the next ping says so; given back, or ended after GRACE -------------------/
//! ```
//!
//! A mapping is gone when its registration is: the engine then places and answers nothing more under it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma::Rkey;
use remote::host::{HostHandle, PushConnection};
use tokio::sync::Notify;

use crate::ids::{ClientId, RegionId};
use crate::wire::PASSED_MAX;

/// One mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) session: u64,
    pub(super) client: ClientId,
    pub(super) region: RegionId,
    pub(super) piece: u32,
    /// The client's number of a mapping, all pieces of which it gives back together.
    pub(super) group: u64,
    pub(super) epoch: u64,
    pub(super) generation: u64,
    pub(super) expires_ms: u64,
    pub(super) connection: PushConnection,
    pub(super) rkey: Rkey,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Maps {
    handle: HostHandle,
    table: Mutex<Table>,
    /// Notified when mappings have gone.
    gone: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    mappings: HashMap<u64, Mapping>,
    /// Mappings whose registration is ending.
    ending: usize,
}

impl Maps {
    pub(super) fn new(handle: HostHandle) -> Self {
        Self { handle, table: Mutex::default(), gone: Notify::new() }
    }

    /// Adds a mapping unless `is_refused` says, under the lock that [`Maps::end`] takes too, that it comes too late;
    /// `false` also at the bound.
    pub(super) fn add(&self, mapping: Mapping, is_refused: impl FnOnce() -> bool) -> bool {
        let mut table = self.lock();
        if table.mappings.len() >= MAPPINGS_MAX || is_refused() {
            return false;
        }
        table.next += 1;
        let id = table.next;
        table.mappings.insert(id, mapping);
        true
    }

    /// Ends mappings. On return no operation under them touches a piece any more.
    pub(super) async fn end(&self, is_over: impl Fn(&Mapping) -> bool) -> usize {
        let over: Vec<Mapping> = {
            let mut table = self.lock();
            let over: Vec<_> = table.mappings.extract_if(|_, one| is_over(one)).collect();
            table.ending += over.len();
            over.into_iter().map(|(_, one)| one).collect()
        };
        for one in &over {
            // An engine that has stopped touches nothing either.
            let _ = self.handle.deregister(one.connection, one.rkey).await;
            self.lock().ending -= 1;
        }
        if !over.is_empty() {
            self.gone.notify_waiters();
        }
        over.len()
    }

    /// Waits until there is no such mapping, and none is ending.
    pub(super) async fn await_none(&self, is_meant: impl Fn(&Mapping) -> bool) {
        let is_none = || {
            let table = self.lock();
            table.ending == 0 && !table.mappings.values().any(&is_meant)
        };
        basics::until(&self.gone, is_none).await;
    }

    /// The regions of a session's mappings that `passed` says an epoch of.
    pub(super) fn passed(
        &self,
        session: u64,
        passed: impl Fn(&Mapping) -> Option<u64>,
    ) -> Vec<(RegionId, u64)> {
        let table = self.lock();
        let of_session = table.mappings.values().filter(|one| one.session == session);
        let mut found: Vec<_> =
            of_session.filter_map(|one| Some((one.region, passed(one)?))).collect();
        found.sort_unstable();
        found.dedup();
        found.truncate(PASSED_MAX);
        found
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Mappings of one daemon at most: as many regions as an engine registers.
pub const MAPPINGS_MAX: usize = 65_536;
