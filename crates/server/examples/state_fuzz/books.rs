//! What the server has granted to all clients of a run, and what no two grants may be at once.
//!
//! A client enters a grant when it has the answer, and takes it out before it sends what ends the grant: whatever
//! stands here at one time, the server had granted at one time. So each pair of entries has to be compatible.
//!
//! Spec: MS-FSA §2.1.5.1.2.2 (sharing), §2.1.5.8 (byte-range locks), MS-SMB2 §3.3.1.4 (leases).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use smb::FileId;
use smb::create::{AccessMask, LeaseState, ShareAccess};

use crate::link::Key;

/// A file by its number, and the stream of it.
pub(crate) type Body = (u64, String);

/// An open.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) client: usize,
    pub(crate) body: Body,
    pub(crate) access: AccessMask,
    pub(crate) share: ShareAccess,
    /// The cache that the open belongs to; opens without caching have a key of their own.
    pub(crate) key: Key,
}

impl Open {
    /// Opens for attributes alone take no part in sharing, and break no caching.
    fn counts(&self) -> bool {
        self.access.intersects(DATA | AccessMask::DELETE)
    }

    // MS-FSA §2.1.5.1.2.2.
    fn excludes(&self, other: &Self) -> bool {
        let lets = |bits: AccessMask, share: ShareAccess| {
            !other.access.intersects(bits) || self.share.contains(share)
        };
        let reads = AccessMask::READ_DATA | AccessMask::EXECUTE;
        let writes = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
        !(lets(reads, ShareAccess::READ)
            && lets(writes, ShareAccess::WRITE)
            && lets(AccessMask::DELETE, ShareAccess::DELETE))
    }
}

/// A range that an open has locked.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) id: FileId,
    pub(crate) client: usize,
    pub(crate) body: Body,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) is_exclusive: bool,
}

/// All grants of a run, and what was wrong with them.
#[derive(Debug, Default)]
pub(crate) struct Books {
    opens: BTreeMap<(usize, u64, u64), Open>,
    caches: BTreeMap<(usize, Key), (Body, LeaseState)>,
    locks: Vec<Lock>,
    /// What the clients did last, in the order in which they learned of it.
    log: Vec<String>,
    /// What must not be.
    pub(crate) faults: Vec<String>,
}

impl Books {
    /// Notes what a client did.
    pub(crate) fn note(&mut self, client: usize, what: &str) {
        self.log.push(format!("client {client}: {what}"));
    }

    /// Notes what must not be, with what was done before.
    pub(crate) fn fault(&mut self, what: &str) {
        let before = self.log.len().saturating_sub(LOG_SHOWN);
        self.faults.push(format!("{what}\n    {}", self.log[before..].join("\n    ")));
    }

    /// Enters an open, and what it may cache.
    pub(crate) fn open(&mut self, id: FileId, open: Open, state: LeaseState) {
        let of_body = |other: &&Open| other.body == open.body && other.counts();
        let others: Vec<Open> = self.opens.values().filter(of_body).cloned().collect();
        for other in &others {
            if open.counts() && (open.excludes(other) || other.excludes(&open)) {
                self.fault(&format!("two opens exclude each other: {open:?}, {other:?}"));
            }
        }
        let writes = |(_, state): &&(Body, LeaseState)| state.contains(LeaseState::WRITE);
        let foreign = |(client, key): &(usize, Key)| (*client, *key) != (open.client, open.key);
        let mut caches =
            self.caches.iter().filter(|(of, cache)| foreign(of) && cache.0 == open.body);
        if let Some((of, _)) = caches.find(|(_, cache)| writes(cache)).filter(|_| open.counts()) {
            self.fault(&format!("{of:?} caches writes beside another open: {open:?}"));
        }
        let other = others.iter().find(|other| foreign(&(other.client, other.key)));
        if let Some(other) = other.filter(|_| state.contains(LeaseState::WRITE)) {
            self.fault(&format!("{open:?} caches writes beside {other:?}"));
        }
        let of = (open.client, open.key);
        match self.caches.entry(of) {
            Entry::Occupied(mut held) => held.get_mut().1 = state,
            Entry::Vacant(place) if !state.is_empty() => {
                place.insert((open.body.clone(), state));
            }
            Entry::Vacant(_) => {}
        }
        self.opens.insert((open.client, id.persistent, id.volatile), open);
    }

    /// Takes an open out with its locks; its cache too if it was the last one of it.
    pub(crate) fn close(&mut self, client: usize, id: FileId) {
        self.locks.retain(|lock| (lock.client, lock.id) != (client, id));
        let Some(closed) = self.opens.remove(&(client, id.persistent, id.volatile)) else { return };
        let of = (client, closed.key);
        if !self.opens.values().any(|open| (open.client, open.key) == of) {
            self.caches.remove(&of);
        }
    }

    /// Notes what is left of a cache. Returns what it was.
    pub(crate) fn broken(&mut self, client: usize, key: Key, left: LeaseState) -> LeaseState {
        self.log.push(format!("client {client}: break of {key:?} to {left:?}"));
        match self.caches.get_mut(&(client, key)) {
            Some((_, state)) => std::mem::replace(state, *state & left),
            None => LeaseState::empty(),
        }
    }

    /// What a cache may hold.
    pub(crate) fn state(&self, client: usize, key: Key) -> LeaseState {
        self.caches.get(&(client, key)).map_or(LeaseState::empty(), |(_, state)| *state)
    }

    /// Whether a cache of the client's is about another file.
    pub(crate) fn is_elsewhere(&self, client: usize, key: Key, body: &Body) -> bool {
        self.caches.get(&(client, key)).is_some_and(|(of, _)| of != body)
    }

    /// Enters a lock.
    pub(crate) fn lock(&mut self, lock: Lock) {
        let meets = |other: &&Lock| {
            (other.client, other.id) != (lock.client, lock.id)
                && other.body == lock.body
                && (other.is_exclusive || lock.is_exclusive)
                && other.begin < lock.end
                && lock.begin < other.end
        };
        if let Some(other) = self.locks.iter().find(meets).cloned() {
            self.fault(&format!("two locks exclude each other: {lock:?}, {other:?}"));
        }
        self.locks.push(lock);
    }

    /// Takes a lock out.
    pub(crate) fn unlock(&mut self, client: usize, id: FileId, begin: u64, end: u64) {
        let is_it =
            |lock: &Lock| (lock.client, lock.id, lock.begin, lock.end) == (client, id, begin, end);
        if let Some(at) = self.locks.iter().position(is_it) {
            self.locks.swap_remove(at);
        }
    }
}

const DATA: AccessMask = AccessMask::READ_DATA
    .union(AccessMask::WRITE_DATA)
    .union(AccessMask::APPEND_DATA)
    .union(AccessMask::EXECUTE);
/// Of the log, with each fault.
const LOG_SHOWN: usize = 40;
