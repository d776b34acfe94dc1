//! Opens that outlive their connection: how they become orphans, come back, or are given up.
//!
//! The table and its diagram are in [`super::orphans`]; here it meets nodes, sessions and the
//! clock. Files are closed by one task
//! (`upkeep/scavenge.rs`), since that may block; whoever wants an orphan gone says so and waits for the
//! node to change, as for any holder of a lease.
//!
//! A reconnect that is early waits for its own open alone: however many arrive, each wakes who asked for it.
//!
//! Spec: MS-SMB2 §3.3.7.1, §3.3.2.2, §3.3.4.6, §3.3.4.7.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use basics::Clock;
use basics::ordered::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::given_up::GivenUp;
use super::open::{Durable, Open};
use super::orphans::OrphanTable;
use super::serial::OpenSerial;
use crate::limits::{DURABLE_TIMEOUT, ORPHANS_MAX, ORPHANS_PER_USER_MAX};
use crate::lock_order as order;

/// All orphans of a server.
#[derive(Debug)]
pub(crate) struct Orphans {
    clock: Clock,
    state: Mutex<State, order::Orphans>,
    given_up: Arc<GivenUp>,
}

#[derive(Debug)]
struct State {
    table: OrphanTable<Arc<Open>>,
    /// On their way from a session to the table, or from there to a session, and for how many who move them.
    moving: HashMap<OpenSerial, usize>,
    /// Those that somebody waits for.
    awaited: HashMap<OpenSerial, Awaited>,
}

#[derive(Debug)]
struct Awaited {
    arrived: Arc<Notify>,
    waiting: usize,
}

impl State {
    // It is in the table, or in a session: who waits for it looks again.
    fn arrive(&self, serial: OpenSerial) {
        if let Some(awaited) = self.awaited.get(&serial) {
            awaited.arrived.notify_waiters();
        }
    }

    fn begin_move(&mut self, serial: OpenSerial) {
        *self.moving.entry(serial).or_default() += 1;
    }

    fn end_move(&mut self, serial: OpenSerial) {
        if let Some(movers) = self.moving.get_mut(&serial) {
            *movers -= 1;
            if *movers == 0 {
                self.moving.remove(&serial);
            }
        }
        self.arrive(serial);
    }
}

/// Somebody waits for an open, until this is dropped.
#[derive(Debug)]
pub(crate) struct Arrival {
    orphans: Arc<Orphans>,
    serial: OpenSerial,
    arrived: Arc<Notify>,
}

impl Arrival {
    /// Notified when the open has become an orphan, or has got where it was on its way to.
    pub(crate) fn event(&self) -> &Notify {
        &self.arrived
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut state = self.orphans.lock();
        if let Some(awaited) = state.awaited.get_mut(&self.serial) {
            awaited.waiting -= 1;
            if awaited.waiting == 0 {
                state.awaited.remove(&self.serial);
            }
        }
    }
}

/// Opens on their way, which nobody is told to be gone; until this is dropped.
#[derive(Debug)]
pub(crate) struct Moving {
    orphans: Arc<Orphans>,
    serials: Vec<OpenSerial>,
}

impl Drop for Moving {
    fn drop(&mut self) {
        let mut state = self.orphans.lock();
        self.serials.iter().for_each(|serial| state.end_move(*serial));
    }
}

impl Orphans {
    pub(crate) fn new(clock: Clock) -> Self {
        let table = OrphanTable::new(ORPHANS_MAX, ORPHANS_PER_USER_MAX);
        let (moving, awaited) = Default::default();
        let state = State { table, moving, awaited };
        Self { clock, state: Mutex::new(state), given_up: Arc::default() }
    }

    /// Keeps an open whose session has ended, for as long as it was granted. False: there are too many.
    pub(crate) fn insert(&self, open: &Arc<Open>, durable: Durable) -> bool {
        let deadline = self.clock.now() + durable.timeout;
        let user = open.origin.user.clone();
        self.lock().table.insert(open.serial, user, deadline, Arc::clone(open)).is_ok()
    }

    /// An open that was kept has arrived: who waits for it looks again.
    pub(crate) fn note_arrival(&self, serial: OpenSerial) {
        self.given_up.notify();
        self.lock().arrive(serial);
    }

    /// Keeps an open of an earlier life of the server. Gives it back if there are too many.
    pub(crate) fn adopt_restored(&self, open: Arc<Open>) -> Result<(), Arc<Open>> {
        let timeout = open.durable().map_or(DURABLE_TIMEOUT, |durable| durable.timeout);
        open.set_orphan();
        let (serial, user) = (open.serial, open.origin.user.clone());
        self.lock().table.insert(serial, user, self.clock.now() + timeout, open)?;
        self.note_arrival(serial);
        Ok(())
    }

    /// A session is about to give these up. To be held until it has.
    pub(crate) fn begin_move(self: &Arc<Self>, serials: Vec<OpenSerial>) -> Moving {
        let mut state = self.lock();
        serials.iter().for_each(|serial| state.begin_move(*serial));
        drop(state);
        Moving { orphans: Arc::clone(self), serials }
    }

    /// Whether an open is neither here nor in a session, and will be.
    pub(crate) fn is_moving(&self, serial: OpenSerial) -> bool {
        self.lock().moving.contains_key(&serial)
    }

    /// Whether it waits for its client.
    pub(crate) fn has(&self, serial: OpenSerial) -> bool {
        self.lock().table.get(serial).is_some()
    }

    /// Takes an orphan that `check` lets go, for who holds what comes with it until the open has
    /// its new place. Of several who ask one gets it.
    pub(crate) fn claim<E>(
        self: &Arc<Self>,
        serial: OpenSerial,
        check: impl FnOnce(&Open) -> Result<(), E>,
    ) -> Option<Result<(Arc<Open>, Moving), E>> {
        // Looked at without the lock: the check asks the node.
        let open = self.lock().table.get(serial).cloned()?;
        if let Err(error) = check(&open) {
            return Some(Err(error));
        }
        let mut state = self.lock();
        let open = state.table.take(serial)?;
        state.begin_move(serial);
        drop(state);
        Some(Ok((open, Moving { orphans: Arc::clone(self), serials: vec![serial] })))
    }

    /// Somebody begins to wait for an open.
    pub(crate) fn await_arrival(self: &Arc<Self>, serial: OpenSerial) -> Arrival {
        let mut state = self.lock();
        let new = || Awaited { arrived: Arc::default(), waiting: 0 };
        let awaited = state.awaited.entry(serial).or_insert_with(new);
        awaited.waiting += 1;
        let arrived = Arc::clone(&awaited.arrived);
        drop(state);
        Arrival { orphans: Arc::clone(self), serial, arrived }
    }

    /// Somebody asks for what these hold: they are closed soon.
    pub(crate) fn give_up(&self, serials: &[OpenSerial]) {
        self.given_up.add(serials);
    }

    /// Where a node says which of them somebody asks for.
    pub(crate) fn given_up(&self) -> Arc<GivenUp> {
        Arc::clone(&self.given_up)
    }

    /// Takes everything out; the caller closes it, but for what survives the server.
    pub(crate) fn drain(&self) -> Vec<Arc<Open>> {
        let mut orphans = self.lock().table.drain();
        orphans.retain(|open| !open.is_persistent());
        orphans
    }

    /// Returns once there may be something [to close](Self::take_due).
    pub(crate) async fn changed(&self) {
        self.given_up.changed().await;
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Open>> {
        self.lock().table.values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().table.len()
    }

    /// Those to be closed now, and when to look again.
    pub(crate) fn take_due(&self, now: Instant) -> (Vec<Arc<Open>>, Option<Instant>) {
        let doomed = self.given_up.take();
        let mut state = self.lock();
        let mut due: Vec<_> =
            doomed.into_iter().filter_map(|serial| state.table.take(serial)).collect();
        due.extend(state.table.take_expired(now));
        (due, state.table.next_deadline())
    }

    fn lock(&self) -> MutexGuard<'_, State, order::Orphans> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use tokio::sync::futures::Notified;

    use super::*;

    #[test]
    fn an_open_that_arrives_wakes_nobody_who_waits_for_another() {
        let orphans = Arc::new(Orphans::new(Clock::host()));
        let (one, other) = (OpenSerial(1), OpenSerial(2));
        let moving = orphans.begin_move(vec![one, other]);
        let again = orphans.begin_move(vec![other]);
        let arrivals = [one, other].map(|serial| orphans.await_arrival(serial));
        let [mut of_one, mut of_other] =
            arrivals.each_ref().map(|arrival| Box::pin(arrival.event().notified()));
        let is_woken = |wait: &mut Pin<Box<Notified<'_>>>| {
            wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        };
        assert!(!is_woken(&mut of_one) && !is_woken(&mut of_other));
        drop(again);
        assert!(!is_woken(&mut of_one) && is_woken(&mut of_other));
        assert!(orphans.is_moving(other), "somebody else moves it too");
        drop(moving);
        assert!(is_woken(&mut of_one));
        assert!(!orphans.is_moving(one) && !orphans.is_moving(other));
        drop((of_one, of_other));
        drop(arrivals);
        let state = orphans.lock();
        assert!(state.moving.is_empty() && state.awaited.is_empty());
    }
}
