//! All sessions, by their ids.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use basics::ordered::{Mutex, MutexGuard};
use basics::{Random, RandomError};

use super::session::Session;
use super::work::Work;
use crate::access::Identity;
use crate::limits::SESSIONS_MAX;
use crate::lock_order as order;

/// All sessions. The table is never locked together with a session.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Table, order::Sessions>);

#[derive(Debug, Default)]
struct Table {
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

impl Table {
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
    sessions: Weak<Sessions>,
}

impl ReservedId {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for ReservedId {
    fn drop(&mut self) {
        if let Some(sessions) = self.sessions.upgrade() {
            sessions.lock().reserved.remove(&self.id);
        }
    }
}

impl Sessions {
    /// A session id that is used by no other session until this is dropped, nor after its session was
    /// added.
    pub(crate) fn reserve(self: &Arc<Self>, random: &Random) -> Result<ReservedId, RandomError> {
        loop {
            // Random, so that an id from before a restart is unused; a client that guesses an id
            // has no key. In 32 bits, because some clients keep only these (smbtorture's
            // smb2.session-id), and nonces hold only these (`smb::crypto`).
            let id = u64::from(random.u32()?);
            if self.lock().reserve(id) {
                return Ok(ReservedId { id, sessions: Arc::downgrade(self) });
            }
        }
    }

    /// Adds an authenticated session; false when there are too many.
    pub(crate) fn add(&self, session: Arc<Session>) -> bool {
        let mut sessions = self.lock();
        if sessions.valid.len() >= SESSIONS_MAX || sessions.valid.contains_key(&session.id) {
            return false;
        }
        sessions.valid.insert(session.id, session);
        true
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<Session>> {
        self.lock().valid.get(&id).cloned()
    }

    /// Takes a session out of the table; the caller closes it.
    pub(crate) fn end(&self, id: u64) -> Option<Arc<Session>> {
        self.lock().end(id)
    }

    /// What a session that has ended still does, if it was of that user.
    pub(crate) fn unsettled(&self, id: u64, identity: &Identity) -> Option<Arc<Work>> {
        let sessions = self.lock();
        let ended = sessions.ended.get(&id).filter(|ended| ended.identity == *identity)?;
        ended.work.upgrade().filter(|work| !work.is_settled())
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.lock().valid.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Table, order::Sessions> {
        self.0.lock()
    }
}

const SWEEP_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_session_id_is_not_given_out_again() {
        let mut sessions = Table::default();
        assert!(sessions.reserve(5));
        assert!(!sessions.reserve(5));
        sessions.reserved.remove(&5);
        assert!(sessions.reserve(5));
        let ended = Ended { identity: Identity::user("a"), work: Weak::new() };
        sessions.ended.insert(6, ended);
        assert!([0, 6, u64::from(u32::MAX)].iter().all(|&id| !sessions.reserve(id)));
    }
}
