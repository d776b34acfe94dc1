//! Connections that may be evicted when more come: the queue of those without a session, and that of guests.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

use crate::lock_order as order;
use basics::ordered::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// Connections that may be evicted, oldest first: those without a session, or with sessions of guests
/// alone.
#[derive(Debug, Default)]
pub(crate) struct WaitingRoom(Mutex<Waiting, order::Connections>);

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
pub(crate) trait Bell: Debug + Send + Sync {
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
    pub(crate) fn enter(&self, bell: Arc<dyn Bell>, max: usize) -> Entered {
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

    pub(crate) fn leave(&self, id: u64) {
        self.lock().entries.retain(|entry| entry.id != id);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting, order::Connections> {
        self.0.lock()
    }
}

/// A place that was taken.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) id: u64,
    /// Another connection has lost its own for it.
    pub(crate) evicted: bool,
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
