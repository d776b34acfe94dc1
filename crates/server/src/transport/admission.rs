//! Places among the connections, and who has to go when strangers fill them.
//!
//! ```text
//!   newcomer --ask--> waiting (not authenticated) --authenticated--> served
//!                        | oldest, when one more comes than may wait
//!                        v
//!                     evicted: its connection is closed
//! ```
//!
//! The oldest goes, not the newest: an honest client authenticates within milliseconds, so the one
//! that has waited longest is the least likely to be one, and a flood of connections that never
//! authenticate cannot keep newcomers out.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::service::Core;

/// The connections that have not authenticated, oldest first. A leaf of the lock order.
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

/// How a connection hears that it has to go.
pub(super) trait Bell: Debug + Send + Sync {
    /// Says so, once; from any thread, and without waiting.
    fn ring(&self);
}

impl Bell for Notify {
    fn ring(&self) {
        self.notify_one();
    }
}

impl WaitingRoom {
    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Takes a place among at most `max`; the oldest makes room, if it comes to that.
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
    /// The place in the waiting room, until authenticated.
    waiting: Option<u64>,
}

impl Admission {
    /// A place for a connection that ends when `bell` is rung.
    ///
    /// `None`: too many. The socket is closed by being dropped, at the cost of one accept.
    pub(super) fn ask(core: &Arc<Core>, bell: Arc<dyn Bell>) -> Option<Self> {
        let counters = &core.counters;
        let more = |count: usize| (count < core.limits.connections_max).then_some(count + 1);
        if counters.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_err() {
            counters.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let Entered { id, evicted } = core.waiting.enter(bell, core.limits.unauthenticated_max);
        if evicted {
            counters.refused.fetch_add(1, Ordering::Relaxed);
        }
        Some(Self { core: Arc::clone(core), waiting: Some(id) })
    }

    /// Whether the connection still has to authenticate.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    pub(super) fn authenticated(&mut self) {
        if let Some(id) = self.waiting.take() {
            self.core.waiting.leave(id);
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.authenticated();
        self.core.counters.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room_and_is_told() {
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
