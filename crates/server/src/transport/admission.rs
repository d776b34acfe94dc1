//! Places among the connections, and the choice of the connection that is closed when
//! unauthenticated ones fill them.
//!
//! ```text
//!   new connection --ask--> waiting (no session yet) --a user logs on-----------> served
//!                        |      |                                                 ^
//!                        |      +--a guest logs on--> guests --a user logs on ----+
//!                        |                              |
//!                        | oldest, when one more comes  | oldest, when one more comes
//!                        v than may wait                v than there may be guests
//!                     evicted: its connection is closed
//! ```
//!
//! The oldest is evicted, not the newest: an honest client authenticates within milliseconds, so the
//! connection that has waited longest is the least likely to be honest, and a flood of connections that
//! never authenticate cannot keep new ones out. Guests prove no identity either: however many come,
//! they take no places of users, and compete only with other guests.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::service::Core;
use crate::state::Link;

/// Connections that may be evicted, oldest first: those without a session, or with sessions of guests
/// alone. A leaf of the lock order.
#[derive(Debug, Default)]
pub(crate) struct WaitingRoom(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    bell: Arc<dyn Bell>,
}

/// Tells a connection that it is evicted.
pub(super) trait Bell: Debug + Send + Sync {
    /// Rings once; from any thread, and without waiting.
    fn ring(&self);
}

impl Bell for Notify {
    fn ring(&self) {
        self.notify_one();
    }
}

impl WaitingRoom {
    /// How many connections wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Takes a place among at most `max`; evicts the oldest if all are taken.
    fn enter(&self, bell: Arc<dyn Bell>, max: usize) -> Entered {
        let mut waiting = self.lock();
        let oldest = if waiting.entries.len() >= max { waiting.entries.pop_front() } else { None };
        let id = waiting.next;
        waiting.next += 1;
        waiting.entries.push_back(Entry { id, bell });
        drop(waiting);
        let evicted = oldest.is_some();
        if let Some(oldest) = oldest {
            oldest.bell.ring();
        }
        Entered { id, evicted }
    }

    fn leave(&self, id: u64) {
        self.lock().entries.retain(|entry| entry.id != id);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Entered {
    id: u64,
    evicted: bool,
}

/// A place among the connections, given back when dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) core: Arc<Core>,
    bell: Arc<dyn Bell>,
    standing: Standing,
}

/// The kind of user known at the other end, and the place in the room for that kind.
#[derive(Clone, Copy, Debug)]
enum Standing {
    Stranger(u64),
    Guest(u64),
    User,
}

impl Admission {
    /// A place for a connection that ends when `bell` rings.
    ///
    /// `None`: there are too many. Dropping the socket closes it, at the cost of one accept.
    pub(super) fn ask(core: &Arc<Core>, bell: Arc<dyn Bell>) -> Option<Self> {
        let counters = &core.counters;
        let more = |count: usize| (count < core.limits.connections_max).then_some(count + 1);
        if counters.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_err() {
            counters.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let id = enter(core, &core.waiting, &bell, core.limits.unauthenticated_max);
        Some(Self { core: Arc::clone(core), bell, standing: Standing::Stranger(id) })
    }

    /// Whether no user or guest has logged on yet.
    pub(super) fn is_stranger(&self) -> bool {
        matches!(self.standing, Standing::Stranger(_))
    }

    /// Whether the connection ends when the bell rings.
    pub(super) fn is_evictable(&self) -> bool {
        !matches!(self.standing, Standing::User)
    }

    /// Checks who has logged on meanwhile. A connection over which a user logged on keeps that
    /// standing.
    pub(super) fn look(&mut self, link: &Link) {
        match self.standing {
            Standing::User => {}
            _ if link.has_user() => self.leave(),
            Standing::Stranger(_) if link.channel_count() > 0 => {
                self.leave();
                let max = self.core.limits.guest_connections_max;
                let id = enter(&self.core, &self.core.guests, &self.bell, max);
                self.standing = Standing::Guest(id);
            }
            Standing::Stranger(_) | Standing::Guest(_) => {}
        }
    }

    fn leave(&mut self) {
        match std::mem::replace(&mut self.standing, Standing::User) {
            Standing::Stranger(id) => self.core.waiting.leave(id),
            Standing::Guest(id) => self.core.guests.leave(id),
            Standing::User => {}
        }
    }
}

fn enter(core: &Core, room: &WaitingRoom, bell: &Arc<dyn Bell>, max: usize) -> u64 {
    let Entered { id, evicted } = room.enter(Arc::clone(bell), max);
    if evicted {
        core.counters.refused.fetch_add(1, Ordering::Relaxed);
    }
    id
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.leave();
        self.core.counters.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_connection_is_evicted_and_its_bell_rings() {
        let room = WaitingRoom::default();
        let bells: Vec<_> = (0..3).map(|_| Arc::new(Notify::new())).collect();
        for bell in &bells {
            assert!(!room.enter(Arc::clone(bell) as Arc<dyn Bell>, 3).evicted);
        }
        let newcomer = room.enter(Arc::new(Notify::new()), 3);
        assert!(newcomer.evicted);
        let heard = bells.iter().map(|bell| {
            let notified = bell.notified();
            tokio::pin!(notified);
            notified.as_mut().enable()
        });
        assert_eq!(heard.collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(room.len(), 3);
        room.leave(newcomer.id);
        assert_eq!(room.len(), 2);
    }
}
