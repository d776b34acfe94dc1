//! Push mode: regions of files that clients read, write and commit by one-sided RDMA.
//!
//! ```text
//!  CREATE --offer--> token --Gate::admit--> push connection --map--> region
//!                                                                      |
//!   unmap, close, end of session, lost connection, recall + grace ----> end: deregister, drain,
//!                                                                       and only then continue
//! ```
//!
//! * [`token`]: one-time tokens; * [`gate`]: push connections; * [`wanted`]: push connection or SMB Direct;
//! * [`region`]: one registration; * [`mapping`]: how a registration begins; * [`recall`]: how it ends;
//! * [`witness`]: time of the last write.
//!
//! The controls of push mode are in `dispatch/push`, periodic checks in `upkeep`.
//!
//! A region is in its file's node from before its registration until no operation touches it any
//! more, so a request that changes the file finds the region there and waits.
//!
//! Spec: docs/push-mode.md.

mod gate;
pub(crate) mod mapping;
pub(crate) mod recall;
pub(crate) mod region;
mod regions;
mod token;
mod wanted;
pub(crate) mod witness;

use std::collections::HashMap;
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use basics::Clock;
use basics::ordered::{Mutex, MutexGuard};
use remote::host::{PushConnection, Registrar};
use smb::push::{PushAddress, PushConnectionId, PushToken, RegistrationId, TOKEN_LEN};
use tokio::runtime::Handle;

use self::regions::Regions;
use self::token::{Bearer, TokenTable};
use crate::access::Identity;
use crate::config::PushPolicy;
use crate::lock_order as order;
use crate::state::Open;
use crate::state::fair_share::FairShare;

pub(crate) use gate::PushGate;
pub(crate) use recall::{end_of_lease, end_of_lost, end_of_open, ended_with, recall, stop};
pub(crate) use region::Region;
#[cfg(test)]
pub(crate) use wanted::{Wanted, refusal, wanted};
pub(crate) use witness::{forget_times, persist_unseen, settle_times};

/// The state of push mode that connections share.
#[derive(Debug)]
pub(crate) struct Push {
    policy: PushPolicy,
    clock: Clock,
    /// Runs what ends regions.
    runtime: Handle,
    engine: OnceLock<Attached>,
    tables: Mutex<Tables, order::Push>,
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
    pub(crate) fn new(policy: PushPolicy, clock: Clock, runtime: Handle) -> Self {
        Self {
            engine: OnceLock::new(),
            tables: Mutex::new(Tables::new(&policy)),
            policy,
            clock,
            runtime,
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
    pub(crate) fn same_host(&self) -> Option<SocketAddrV6> {
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

    /// What the operator allows.
    pub(crate) fn policy(&self) -> &PushPolicy {
        &self.policy
    }

    /// Issues a token, made of random `bytes`, that opens a push connection of a session and its user to one of the
    /// places. `None`: there are too many unused ones, or the server stops.
    pub(crate) fn issue(
        &self,
        bytes: [u8; TOKEN_LEN],
        places: &[PushAddress],
        (session_id, holder): (u64, Identity),
    ) -> Option<PushToken> {
        let now = self.clock.now();
        let expires = now + self.policy.token_lifetime;
        let mut tables = self.lock();
        if tables.stopping {
            return None;
        }
        tables.tokens.issue(bytes, places, Bearer { session_id, holder }, now, expires)
    }

    /// The engine's name of a push connection of a session.
    pub(crate) fn connection(
        &self,
        id: PushConnectionId,
        session_id: u64,
    ) -> Option<PushConnection> {
        let tables = self.lock();
        let peer = tables.connections.get(&id);
        peer.filter(|peer| peer.session_id == session_id).map(|peer| peer.engine)
    }

    /// A region by its name.
    pub(crate) fn region(&self, id: RegistrationId) -> Option<Arc<Region>> {
        self.lock().regions.get(&id).cloned()
    }

    /// Removes the trace of a region that has ended.
    pub(crate) fn forget(&self, region: &Region) {
        self.lock().regions.remove(&region.id);
    }

    /// Every region.
    pub(crate) fn all_regions(&self) -> Vec<Arc<Region>> {
        self.lock().regions.all()
    }

    /// The regions of an open, oldest first.
    pub(crate) fn regions_of(&self, open: &Open) -> Vec<Arc<Region>> {
        self.lock().regions.of_open(open.serial)
    }

    /// A number for a connection, a region or a generation; each is given once.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The owner of the queue pairs, once there is one.
    pub(crate) fn registrar(&self) -> Option<&Arc<dyn Registrar>> {
        self.engine.get().map(|engine| &engine.registrar)
    }

    fn lock(&self) -> MutexGuard<'_, Tables, order::Push> {
        self.tables.lock()
    }
}

#[cfg(test)]
pub(crate) mod tests;
