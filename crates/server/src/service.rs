//! The server behind all its transports: shares, users, sessions, nodes, limits.
//!
//! Lock order, outermost first; no two of one line are held together, none is held over an
//! await, and nothing that may block runs under any of them:
//!
//! 1. `Core::sessions`
//! 2. a session's trees, then its opens
//! 3. one node (`state/node.rs`)
//! 4. push tables (`push/`)
//! 5. leaves: a link's window, channels, pending requests; connections of clients; failed logons;
//!    the lists of shares and of users; accounts; durable opens

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Instant;

use basics::{Clock, Environment, RandomError};
use smb::rpc::{Host, SharedResource};
use smb::{FileTime, Guid};
use tree::{Admission, CommonNames, FileKey, Share, SharePath};

use crate::access::Rights;
use crate::config::{Announced, SigningPolicy, Users};
use crate::limits::{Limits, SESSIONS_MAX};
use crate::push::Push;
use crate::state::account::Accounts;
use crate::state::clients::Clients;
use crate::state::creates::Creates;
use crate::state::durable::Moving;
use crate::state::durable_opens::DurableOpens;
use crate::state::lease_keys::LeaseKeys;
use crate::state::reactor::Reactor;
use crate::state::throttle::Throttle;
use crate::state::work::Work;
use crate::state::{Identity, Nodes, Open, OpenSerial, Orphans, Session, Tree};
use crate::transport::admission::WaitingRoom;

/// The state that connections share.
#[derive(Debug)]
pub(crate) struct Core {
    /// Its clocks and random numbers.
    pub(crate) environment: Environment,
    pub(crate) limits: Limits,
    /// Replaced, never changed: a reader sees one configuration.
    shares: RwLock<Arc<[Arc<Share>]>>,
    /// The state of names that all shares keep, also those that are not exported any more.
    pub(crate) names: CommonNames,
    users: RwLock<Users>,
    pub(crate) signing: SigningPolicy,
    pub(crate) encrypt_required: bool,
    pub(crate) guid: Guid,
    /// The address for TCP clients, if there is such a listener.
    pub(crate) tcp_address: Option<SocketAddr>,
    /// The announced addresses, if not those that the machine finds itself.
    pub(crate) announced: Vec<Announced>,
    /// The machine's name in lists of servers.
    pub(crate) name: String,
    pub(crate) nodes: Nodes,
    pub(crate) push: Push,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) counters: Counters,
    pub(crate) waiting: WaitingRoom,
    /// Connections of guests.
    pub(crate) guests: WaitingRoom,
    /// Counts how long requests keep threads that others wait for.
    pub(crate) reactor: Arc<Reactor>,
    /// The resources that users and guests hold.
    pub(crate) accounts: Accounts,
    pub(crate) throttle: Arc<Throttle>,
    pub(crate) started: Instant,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) durable_opens: Arc<DurableOpens<Open>>,
    pub(crate) lease_keys: Arc<LeaseKeys>,
    pub(crate) clients: Clients,
    /// CREATEs that a client may send again.
    pub(crate) creates: Arc<Creates<Open>>,
    sessions: Mutex<Sessions>,
    next_serial: AtomicU64,
}

/// All sessions.
#[derive(Debug, Default)]
struct Sessions {
    valid: HashMap<u64, Arc<Session>>,
    /// Ids reserved for clients that are authenticating.
    reserved: HashSet<u64>,
    /// Ended sessions that may still act, or did when they were last checked.
    ended: HashMap<u64, Ended>,
    sweep_at: usize,
}

/// A session that has ended.
#[derive(Debug)]
struct Ended {
    identity: Identity,
    work: Weak<Work>,
}

impl Sessions {
    /// False if the id is taken, or not an id of a session.
    fn reserve(&mut self, id: u64) -> bool {
        id != 0 && id != u64::from(u32::MAX) && !self.knows(id) && self.reserved.insert(id)
    }

    fn knows(&self, id: u64) -> bool {
        self.valid.contains_key(&id) || self.ended.contains_key(&id)
    }

    fn end(&mut self, id: u64) -> Option<Arc<Session>> {
        let session = self.valid.remove(&id)?;
        // Settled sessions are removed when they may be half of the table: amortised, so that an
        // end costs nothing.
        if self.ended.len() >= self.sweep_at {
            let lives = |work: &Weak<Work>| work.upgrade().is_some_and(|work| !work.is_settled());
            self.ended.retain(|_, ended| lives(&ended.work));
            self.sweep_at = SWEEP_MIN.max(2 * self.ended.len());
        }
        let (identity, work) = (session.identity.clone(), Arc::downgrade(session.work()));
        self.ended.insert(id, Ended { identity, work });
        Some(session)
    }
}

/// A session id whose session does not exist yet.
#[derive(Debug)]
pub(crate) struct ReservedId {
    id: u64,
    core: Weak<Core>,
}

impl ReservedId {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for ReservedId {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.sessions().reserved.remove(&self.id);
        }
    }
}

/// Numbers for the status report.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicUsize,
    pub(crate) refused: AtomicU64,
    pub(crate) logons_failed: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) stagings: AtomicUsize,
}

/// The parts of a core.
#[derive(Debug)]
pub(crate) struct CoreParts {
    pub(crate) environment: Environment,
    pub(crate) limits: Limits,
    pub(crate) shares: Vec<Arc<Share>>,
    /// The state of names that the shares keep.
    pub(crate) names: CommonNames,
    pub(crate) users: Users,
    pub(crate) signing: SigningPolicy,
    pub(crate) encrypt_required: bool,
    pub(crate) guid: Guid,
    pub(crate) tcp_address: Option<SocketAddr>,
    pub(crate) announced: Vec<Announced>,
    pub(crate) push: Push,
    pub(crate) runtime: tokio::runtime::Handle,
    /// The number of the first open. A server that restarts must not reuse a number: a client would
    /// get another file back.
    pub(crate) first_serial: u64,
}

impl Core {
    /// Whether a share admits users without proof.
    pub(crate) fn takes_guests(&self) -> bool {
        self.shares().iter().any(|share| share.guests() != Admission::Refused)
    }

    /// The server as browsing clients see it. `caller` is the user who asks; guests see the shares that
    /// they may enter.
    pub(crate) fn host(&self, caller: Option<&str>) -> Host {
        let is_seen =
            |share: &&Arc<Share>| caller.is_some() || share.guests() != Admission::Refused;
        let directory = |share: &Arc<Share>| SharedResource {
            name: share.name().to_owned(),
            kind: SharedResource::DIRECTORY,
            comment: String::new(),
        };
        let pipes = SharedResource {
            name: "IPC$".to_owned(),
            kind: SharedResource::PIPES,
            comment: "services of the server".to_owned(),
        };
        Host {
            name: self.name.clone(),
            comment: COMMENT.to_owned(),
            caller: caller.unwrap_or_default().to_owned(),
            shares: self.shares().iter().filter(is_seen).map(directory).chain([pipes]).collect(),
            accounts: caller.is_some().then(|| self.users().store()),
            now: file_time(&self.environment.clock),
            uptime: self.now().saturating_duration_since(self.started),
        }
    }

    pub(crate) fn new(parts: CoreParts) -> Self {
        let CoreParts {
            environment,
            limits,
            shares,
            names,
            users,
            signing,
            encrypt_required,
            guid,
            push,
            ..
        } = parts;
        let clock = environment.clock.clone();
        let orphans = Arc::new(Orphans::new(clock.clone()));
        Self {
            environment,
            nodes: Nodes::new(clock.clone(), limits.break_timeout, Arc::clone(&orphans)),
            accounts: Accounts::new(&limits),
            reactor: Arc::new(Reactor::new(clock.clone())),
            limits,
            shares: RwLock::new(shares.into()),
            names,
            users: RwLock::new(users),
            signing,
            encrypt_required,
            guid,
            tcp_address: parts.tcp_address,
            announced: parts.announced,
            name: machine_name(),
            push,
            runtime: parts.runtime,
            counters: Counters::default(),
            waiting: WaitingRoom::default(),
            guests: WaitingRoom::default(),
            throttle: Arc::new(Throttle::new()),
            started: clock.now(),
            orphans,
            durable_opens: Arc::new(DurableOpens::new()),
            lease_keys: Arc::default(),
            clients: Clients::default(),
            creates: Arc::new(Creates::new()),
            sessions: Mutex::default(),
            next_serial: AtomicU64::new(parts.first_serial),
        }
    }

    /// The monotonic clock of the server.
    pub(crate) fn now(&self) -> Instant {
        self.environment.clock.now()
    }

    /// The exported shares.
    pub(crate) fn shares(&self) -> Arc<[Arc<Share>]> {
        Arc::clone(&self.shares.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The share of that name, ignoring case.
    pub(crate) fn share(&self, name: &str) -> Option<Arc<Share>> {
        self.shares().iter().find(|share| share.name().eq_ignore_ascii_case(name)).cloned()
    }

    /// The shares that may contain files of `share`, itself among them.
    pub(crate) fn overlapping(&self, share: &Share) -> Vec<Arc<Share>> {
        self.shares().iter().filter(|other| other.overlaps(share)).cloned().collect()
    }

    /// Whether a persistent open of this file of `share` waits to be restored.
    pub(crate) fn is_left_over(&self, share: &Share, file: FileKey) -> bool {
        let shares = self.shares();
        let mut shares = shares.iter().filter(|other| !other.left_over().is_empty());
        shares.any(|other| other.overlaps(share) && other.left_over().is_of(file.inode))
    }

    /// Whether a persistent open of a file below this directory of `share` waits to be restored.
    pub(crate) fn is_left_over_below(&self, share: &Share, directory: &SharePath) -> bool {
        let shares = self.shares();
        let mut waiting = shares.iter().filter(|other| !other.left_over().is_empty());
        waiting.any(|other| {
            let below = share.path_in(other, directory);
            below.is_some_and(|directory| other.left_over().is_below(&directory))
        })
    }

    /// The users who may log on.
    pub(crate) fn users(&self) -> Users {
        self.users.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_shares(&self, shares: Vec<Arc<Share>>) {
        *self.shares.write().unwrap_or_else(PoisonError::into_inner) = shares.into();
    }

    pub(crate) fn set_users(&self, users: Users) {
        let mut now = self.users.write().unwrap_or_else(PoisonError::into_inner);
        *now = users.succeeding(&now);
    }

    /// Whether a user may still be logged on.
    pub(crate) fn is_welcome(&self, who: &Identity) -> bool {
        match who {
            Identity::User(user) => self.users().knows(user),
            Identity::Guest { .. } => true,
        }
    }

    /// Whether a user may still have the rights granted with a tree.
    pub(crate) fn is_welcome_in(&self, who: &Identity, tree: &Tree) -> bool {
        let Some(share) = tree.share() else { return true };
        let is_exported = self.share(share.name()).is_some_and(|now| Arc::ptr_eq(&now, share));
        // A tree entered unsealed may have regions mapped, which no encryption covers; a tree entered sealed
        // has none, even if encryption was switched off meanwhile.
        let is_as_secret = tree.entered_encrypted || !share.is_encrypt_required();
        is_exported
            && is_as_secret
            && Rights::of(share, who).is_some_and(|now| now.may(tree.rights.mask()))
    }

    /// Names the next open.
    pub(crate) fn next_serial(&self) -> OpenSerial {
        OpenSerial(self.next_serial.fetch_add(1, Ordering::Relaxed))
    }

    /// A session id that is used by no other session until this is dropped, nor after its session was
    /// added.
    pub(crate) fn reserve_session_id(self: &Arc<Self>) -> Result<ReservedId, RandomError> {
        loop {
            // Random, so that an id from before a restart is unused; a client that guesses an id
            // has no key. In 32 bits, because some clients keep only these (smbtorture's
            // smb2.session-id), and nonces hold only these (`smb::crypto`).
            let id = u64::from(self.environment.random.u32()?);
            if self.sessions().reserve(id) {
                return Ok(ReservedId { id, core: Arc::downgrade(self) });
            }
        }
    }

    /// Adds an authenticated session; false when there are too many.
    pub(crate) fn add_session(&self, session: Arc<Session>) -> bool {
        let mut sessions = self.sessions();
        if sessions.valid.len() >= SESSIONS_MAX || sessions.valid.contains_key(&session.id) {
            return false;
        }
        sessions.valid.insert(session.id, session);
        true
    }

    pub(crate) fn session(&self, id: u64) -> Option<Arc<Session>> {
        self.sessions().valid.get(&id).cloned()
    }

    /// Ends a session and closes everything it has open. May block.
    pub(crate) fn end_session(self: &Arc<Self>, id: u64) {
        let _moving = self.begin_end(id);
        let session = self.sessions().end(id);
        if let Some(session) = session {
            self.push.end_of_session(id);
            session.close(self);
        }
    }

    /// [`Core::end_session`] for callers that cannot block: the open files, which may be many, are closed
    /// by the pool.
    pub(crate) fn dissolve_session(self: &Arc<Self>, id: u64) {
        let moving = self.begin_end(id);
        let Some(session) = self.sessions().end(id) else { return };
        self.push.end_of_session(id);
        if let Some(left) = session.dissolve() {
            let core = Arc::clone(self);
            drop(self.runtime.spawn_blocking(move || {
                let _moving = moving;
                left.close(&core);
            }));
        }
    }

    /// Ends the session that a client names as lost, if it is of the same user. Returns what the
    /// caller has to wait for, also if the session has ended by itself.
    pub(crate) fn replace_session(
        self: &Arc<Self>,
        id: u64,
        identity: &Identity,
    ) -> Option<Arc<Work>> {
        if self.session(id).is_some_and(|session| session.identity == *identity) {
            self.dissolve_session(id);
        }
        let sessions = self.sessions();
        let ended = sessions.ended.get(&id).filter(|ended| ended.identity == *identity)?;
        ended.work.upgrade().filter(|work| !work.is_settled())
    }

    // A client may be back before its opens have become orphans: meanwhile no table holds them.
    fn begin_end(&self, id: u64) -> Option<Moving> {
        let opens = self.session(id)?.all_opens();
        let durable = opens.iter().filter(|open| open.durable().is_some());
        Some(self.orphans.begin_move(durable.map(|open| open.serial).collect()))
    }

    pub(crate) fn all_sessions(&self) -> Vec<Arc<Session>> {
        self.sessions().valid.values().cloned().collect()
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time of day in the unit of SMB.
pub(crate) fn file_time(clock: &Clock) -> FileTime {
    let since = clock.time_of_day().duration_since(std::time::UNIX_EPOCH);
    let ns = since.map_or(0, |elapsed| i128::try_from(elapsed.as_nanos()).unwrap_or(i128::MAX));
    FileTime::from_unix_ns(ns)
}

/// The host name up to its first dot, as machine names are written.
fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let short = name.trim().split('.').next().unwrap_or_default().to_uppercase();
    if short.is_empty() { "LANDFAST".to_owned() } else { short.chars().take(NAME_MAX).collect() }
}

const COMMENT: &str = "Landfast";
const SWEEP_MIN: usize = 64;
// Longest host name of Linux.
const NAME_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_session_id_is_not_given_out_again() {
        let mut sessions = Sessions::default();
        assert!(sessions.reserve(5));
        assert!(!sessions.reserve(5));
        sessions.reserved.remove(&5);
        assert!(sessions.reserve(5));
        let ended = Ended { identity: Identity::user("a"), work: Weak::new() };
        sessions.ended.insert(6, ended);
        assert!([0, 6, u64::from(u32::MAX)].iter().all(|&id| !sessions.reserve(id)));
    }
}
