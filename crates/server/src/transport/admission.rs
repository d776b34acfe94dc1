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
    /// Rung when the connection has to go; none where nobody could hear it.
    bell: Option<Arc<Notify>>,
}

impl WaitingRoom {
    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Takes a place among at most `max`; the oldest that can be evicted makes room.
    fn enter(&self, bell: Option<Arc<Notify>>, max: usize) -> Option<Entered> {
        let mut waiting = self.lock();
        let mut evicted = false;
        if waiting.entries.len() >= max {
            let oldest = waiting.entries.iter().position(|entry| entry.bell.is_some())?;
            let entry = waiting.entries.remove(oldest)?;
            entry.bell?.notify_one();
            evicted = true;
        }
        let id = waiting.next;
        waiting.next += 1;
        waiting.entries.push_back(Entry { id, bell });
        Some(Entered { id, evicted })
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
    bell: Arc<Notify>,
}

impl Admission {
    /// A place for a connection that listens to [`Admission::evicted`].
    ///
    /// `None`: too many. The socket is closed by being dropped, at the cost of one accept.
    pub(super) fn ask(core: &Arc<Core>) -> Option<Self> {
        let bell = Arc::new(Notify::new());
        Self::enter(core, Arc::clone(&bell), Some(bell))
    }

    /// A place for a connection that is not evicted: where all are taken by such, one more is
    /// refused.
    pub(super) fn ask_steady(core: &Arc<Core>) -> Option<Self> {
        Self::enter(core, Arc::new(Notify::new()), None)
    }

    fn enter(core: &Arc<Core>, own: Arc<Notify>, bell: Option<Arc<Notify>>) -> Option<Self> {
        let counters = &core.counters;
        let more = |count: usize| (count < core.limits.connections_max).then_some(count + 1);
        if counters.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_err() {
            counters.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        // From here on dropping it gives the connection's place back.
        let mut admission = Self { core: Arc::clone(core), waiting: None, bell: own };
        let entered = core.waiting.enter(bell, core.limits.unauthenticated_max);
        if entered.as_ref().is_none_or(|entered| entered.evicted) {
            counters.refused.fetch_add(1, Ordering::Relaxed);
        }
        admission.waiting = Some(entered?.id);
        Some(admission)
    }

    /// Whether the connection still has to authenticate.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Resolves when the connection has to make room for a newcomer.
    pub(super) async fn evicted(&self) {
        self.bell.notified().await;
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
    fn the_oldest_makes_room_and_the_steady_stay() {
        let room = WaitingRoom::default();
        let bells: Vec<_> = (0..2).map(|_| Arc::new(Notify::new())).collect();
        assert!(room.enter(None, 3).is_some());
        for bell in &bells {
            assert!(room.enter(Some(Arc::clone(bell)), 3).is_some());
        }
        let newcomer = room.enter(Some(Arc::new(Notify::new())), 3).unwrap();
        assert!(newcomer.evicted);
        let oldest = bells[0].notified();
        tokio::pin!(oldest);
        assert!(oldest.as_mut().enable(), "the oldest that can hear it was told");
        assert_eq!(room.len(), 3);
        room.leave(newcomer.id);
        assert_eq!(room.len(), 2);
    }

    #[test]
    fn a_room_full_of_the_steady_refuses() {
        let room = WaitingRoom::default();
        assert!(room.enter(None, 1).is_some());
        assert!(room.enter(Some(Arc::new(Notify::new())), 1).is_none());
    }
}
