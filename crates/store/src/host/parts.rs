//! What the sessions and threads of a daemon share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use basics::Environment;
use pmem::DurabilityClass;
use remote::host::{HostHandle, TokenGate};

use super::lease::Lease;
use super::maps::Maps;
use super::notes::Notes;
use super::pieces::Pieces;
use crate::ids::ClientId;
use crate::meta::Meta;
use crate::token::StoreKey;

/// What the sessions and threads of a daemon share.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) key: StoreKey,
    pub(super) meta: Arc<dyn Meta>,
    pub(super) environment: Environment,
    pub(super) emulate_persistence: bool,
    pub(super) pieces: Arc<Pieces>,
    pub(super) maps: Maps,
    pub(super) notes: Notes,
    pub(super) lease: Lease,
    pub(super) gate: Arc<TokenGate<u64>>,
    pub(super) handle: HostHandle,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) fenced: Mutex<VecDeque<ClientId>>,
    pub(super) sessions: AtomicUsize,
    pub(super) next_session: AtomicU64,
}

impl Parts {
    pub(super) fn is_fenced(&self, client: ClientId) -> bool {
        self.fenced.lock().unwrap_or_else(PoisonError::into_inner).contains(&client)
    }

    pub(super) fn fence(&self, client: ClientId) {
        let mut fenced = self.fenced.lock().unwrap_or_else(PoisonError::into_inner);
        if !fenced.contains(&client) {
            if fenced.len() >= FENCED_MAX {
                fenced.pop_front();
            }
            fenced.push_back(client);
        }
    }
}

/// Milliseconds since 1970.
pub(super) fn now_ms(parts: &Parts) -> u64 {
    let now = parts.environment.clock.time_of_day();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A class as push mode numbers it.
pub(super) fn push_class(class: DurabilityClass) -> u32 {
    match class {
        DurabilityClass::Volatile => 1,
        DurabilityClass::Storage => 2,
        DurabilityClass::Pmem => 3,
    }
}

/// Dead clients that a daemon remembers; their numbers are random and never come again.
pub const FENCED_MAX: usize = 4096;
