//! What the sessions and threads of a daemon share.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
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
    /// How often the directory may have lost bytes that were not durable.
    pub(super) losses: u64,
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
    /// Connections of each address that have not proven a request yet.
    pub(super) strangers: Mutex<HashMap<IpAddr, usize>>,
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

/// A connection that has not proven a request yet.
pub(super) struct Stranger(Arc<Parts>, IpAddr);

impl Stranger {
    /// `None`: there are too many of the address.
    pub(super) fn of(parts: &Arc<Parts>, address: IpAddr) -> Option<Self> {
        let mut strangers = parts.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = strangers.entry(address).or_default();
        if *count >= STRANGERS_OF_ADDRESS_MAX {
            return None;
        }
        *count += 1;
        drop(strangers);
        Some(Self(Arc::clone(parts), address))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut strangers = self.0.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = strangers.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                strangers.remove(&self.1);
            }
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

/// Connections of one address that have not proven a request yet: one more is closed. Half of all, so that one address leaves room
/// for the others; a client proves its first request at once.
pub const STRANGERS_OF_ADDRESS_MAX: usize = 2048;
/// Dead clients that a daemon remembers; their numbers are random and never come again.
pub const FENCED_MAX: usize = 4096;
