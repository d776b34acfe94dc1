//! Push mode: regions of files that clients read, write and commit by one-sided RDMA.
//!
//! ```text
//!  CREATE --offer--> token --Gate::admit--> push connection --map--> region
//!                                                                      |
//!   unmap, close, end of session, lost connection, recall + grace ----> end: deregister, drain,
//!                                                                       and only then continue
//! ```
//!
//! * [`offer`]: the create context; * [`token`]: one-time tokens; * [`gate`]: push connections;
//! * [`wanted`]: push connection or SMB Direct;
//! * [`map`]: MAP; * [`mapped`]: UNMAP, COMMIT, QUERY;
//! * [`recall`]: taking regions back, and telling the client;
//! * [`region`]: the life of one registration;
//! * [`witness`]: time of the last write; * [`sweep`]: periodic checks.
//!
//! A region is in its file's node from before its registration until no operation touches it any
//! more, so a request that changes the file finds the region there and waits. Lock order: node,
//! tables, one region.
//!
//! Spec: docs/push-mode.md.

mod gate;
mod map;
mod mapped;
mod offer;
mod open;
mod recall;
mod region;
mod regions;
mod sweep;
mod token;
mod wanted;
mod witness;

use std::collections::HashMap;
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use basics::Clock;
use remote::host::{PushConnection, Registrar};
use smb::push::PushConnectionId;

use self::regions::Regions;
use self::token::TokenTable;
use crate::config::PushPolicy;
use crate::state::fair_share::FairShare;
use crate::state::{Identity, Open};

pub(crate) use gate::PushGate;
pub(crate) use map::control;
pub(crate) use mapped::persist_unseen;
pub(crate) use offer::offer;
pub(crate) use open::OpenPush;
pub(crate) use recall::{closing, end_of_lease, end_of_open, ended_with, recall, stop};
pub(crate) use region::Region;
pub(crate) use sweep::sweep;
#[cfg(test)]
pub(crate) use wanted::{Wanted, refusal, wanted};
pub(crate) use witness::{forget_times, settle_times};

/// The state of push mode that connections share.
#[derive(Debug)]
pub(crate) struct Push {
    policy: PushPolicy,
    clock: Clock,
    engine: OnceLock<Attached>,
    tables: Mutex<Tables>,
    next_id: AtomicU64,
}

/// The engine threads behind push.
#[derive(Debug)]
struct Attached {
    registrar: Arc<dyn Registrar>,
    address: SocketAddr,
    same_host: Option<SocketAddr>,
}

#[derive(Debug)]
struct Tables {
    tokens: TokenTable,
    /// Counts connections per user.
    places: FairShare<Identity>,
    connections: HashMap<PushConnectionId, PushPeer>,
    /// The same connections, by the engine's names.
    names: HashMap<PushConnection, PushConnectionId>,
    regions: Regions,
    /// The server stops: no region is mapped any more.
    stopping: bool,
}

/// One push connection.
#[derive(Clone, Debug)]
struct PushPeer {
    session_id: u64,
    holder: Identity,
    engine: PushConnection,
}

impl Tables {
    fn new(policy: &PushPolicy) -> Self {
        let places = |max: u32| FairShare::new(usize::try_from(max).unwrap_or(usize::MAX));
        Self {
            tokens: TokenTable::default(),
            places: places(policy.connections_max),
            connections: HashMap::new(),
            names: HashMap::new(),
            regions: Regions::new(places(policy.regions_max)),
            stopping: false,
        }
    }

    fn add_connection(&mut self, id: PushConnectionId, peer: PushPeer) {
        self.places.take(&peer.holder);
        self.names.insert(peer.engine, id);
        self.connections.insert(id, peer);
    }

    fn remove_connection(&mut self, engine: PushConnection) {
        let id = self.names.remove(&engine);
        if let Some(peer) = id.and_then(|id| self.connections.remove(&id)) {
            self.places.give_back(&peer.holder);
        }
    }
}

impl Push {
    pub(crate) fn new(policy: PushPolicy, clock: Clock) -> Self {
        Self {
            engine: OnceLock::new(),
            tables: Mutex::new(Tables::new(&policy)),
            policy,
            clock,
            next_id: AtomicU64::new(1),
        }
    }

    /// Sets the registrar of memory, and the address of its listener. Until then push is refused.
    pub(crate) fn attach(
        &self,
        registrar: Arc<dyn Registrar>,
        address: SocketAddr,
        same_host: Option<SocketAddr>,
    ) {
        // A second engine would be a mistake of the caller; the first stays.
        let _ = self.engine.set(Attached { registrar, address, same_host });
    }

    /// Where the RDMA listener is.
    pub(crate) fn rdma_address(&self) -> Option<SocketAddr> {
        self.engine.get().map(|engine| engine.address)
    }

    /// The name under which processes of this host find a listener through shared memory.
    fn same_host(&self) -> Option<SocketAddrV6> {
        match self.engine.get()?.same_host? {
            SocketAddr::V6(name) => Some(name),
            SocketAddr::V4(_) => None,
        }
    }

    /// Handles the end of a session: its tokens are void and its push connections end. Its regions
    /// end with its opens.
    pub(crate) fn end_of_session(&self, session_id: u64) {
        let gone: Vec<_> = {
            let mut tables = self.lock();
            tables.tokens.revoke(session_id);
            let ours = |peer: &&PushPeer| peer.session_id == session_id;
            tables.connections.values().filter(ours).map(|peer| peer.engine).collect()
        };
        if let Some(engine) = self.engine.get() {
            gone.into_iter().for_each(|connection| engine.registrar.disconnect(connection));
        }
    }

    /// A push connection without a token, for the fuzz targets, which cannot make another.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn add_connection(&self, session_id: u64, engine: PushConnection) {
        let id = PushConnectionId(self.next_id());
        let holder = Identity::user("");
        self.lock().add_connection(id, PushPeer { session_id, holder, engine });
    }

    /// Numbers of regions and of push connections.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let tables = self.lock();
        (tables.regions.len(), tables.connections.len())
    }

    /// Every region.
    pub(crate) fn all_regions(&self) -> Vec<Arc<Region>> {
        self.lock().regions.all()
    }

    fn regions_of(&self, open: &Open) -> Vec<Arc<Region>> {
        self.lock().regions.of_open(open.serial)
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    fn registrar(&self) -> Option<&Arc<dyn Registrar>> {
        self.engine.get().map(|engine| &engine.registrar)
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests;
