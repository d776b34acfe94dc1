//! Who commits, and who waits for the end of a commit, for room, or for work.
//!
//! ```text
//!   threads  --> wait      <--.
//!   tasks    --> wakers       |-- announce: a commit has ended, room was made, the log broke
//!   destager --> work      <--'   (work: only once there is a batch, or somebody waits for room)
//! ```
//! Every change that ends a wait is announced under the lock under which waiters look, so that no signal is lost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::error::LogError;
use crate::lsn::Lsn;

/// The state that waiters look at.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Somebody commits.
    pub(crate) is_led: bool,
    /// A failure ended the log.
    pub(crate) is_broken: bool,
    /// Why nothing is destaged any more.
    pub(crate) destaging_ended: Option<LogError>,
    /// The log has a destager, which is to end.
    pub(crate) is_destaged: bool,
    pub(crate) is_destaging_to_end: bool,
    /// Somebody waits until everything below is destaged.
    pub(crate) drain_to: Lsn,
    /// Everything below is destaged.
    pub(crate) destaged: Lsn,
    /// The buffer of the last batch, for the next one.
    pub(crate) spare: Vec<u8>,
    /// Threads that wait.
    waiting: usize,
    /// Of these and of the tasks, how many wait for room.
    pub(crate) wanting_room: usize,
    /// Tasks that wait, by the number of their future.
    wakers: BTreeMap<u64, Waker>,
}

#[cfg(test)]
impl Gate {
    /// How many tasks wait.
    pub(crate) fn tasks(&self) -> usize {
        self.wakers.len()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    gate: Mutex<Gate>,
    /// How many threads and tasks wait; changes under the gate's lock.
    interested: AtomicUsize,
    changed: Condvar,
    work: Condvar,
}

impl Gates {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is announced.
    pub(crate) fn wait<'g>(&self, gate: MutexGuard<'g, Gate>) -> MutexGuard<'g, Gate> {
        self.wait_unless(gate, || false)
    }

    /// Waits until something is announced, unless `is_over` says that it has happened. Who makes it happen without the lock
    /// calls [`Gates::announce_lately`] then: one of both sees what the other did.
    pub(crate) fn wait_unless<'g>(
        &self,
        mut gate: MutexGuard<'g, Gate>,
        is_over: impl FnOnce() -> bool,
    ) -> MutexGuard<'g, Gate> {
        gate.waiting += 1;
        self.note(&gate);
        if !is_over() {
            gate = self.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        gate.waiting -= 1;
        self.note(&gate);
        gate
    }

    /// Has a task polled once something is announced. The task looks once more behind this whether it has happened.
    pub(crate) fn wake_later(&self, gate: &mut Gate, future: u64, waker: &Waker) {
        gate.wakers.insert(future, waker.clone());
        self.note(gate);
    }

    /// A future that is gone needs no waking.
    pub(crate) fn forget(&self, future: u64) {
        let mut gate = self.lock();
        gate.wakers.remove(&future);
        self.note(&gate);
    }

    fn note(&self, gate: &Gate) {
        self.interested.store(gate.waiting + gate.wakers.len(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// [`Gates::announce`] of what has happened without the lock.
    pub(crate) fn announce_lately(&self) {
        fence(Ordering::SeqCst);
        if self.interested.load(Ordering::Relaxed) > 0 {
            self.announce(self.lock());
        }
    }

    /// Wakes all that wait. A signal without a waiter would cost each commit a system call. Wakers run without the lock: one
    /// may drop the last of a task, whose future takes it.
    pub(crate) fn announce(&self, mut gate: MutexGuard<'_, Gate>) {
        if gate.waiting > 0 {
            self.changed.notify_all();
        }
        let wakers = std::mem::take(&mut gate.wakers);
        if !wakers.is_empty() {
            self.note(&gate);
        }
        drop(gate);
        wakers.into_values().for_each(Waker::wake);
    }

    /// Wakes the destager.
    pub(crate) fn announce_work(&self) {
        self.work.notify_all();
    }

    /// Waits for work.
    pub(crate) fn wait_for_work<'g>(&self, gate: MutexGuard<'g, Gate>) -> MutexGuard<'g, Gate> {
        self.work.wait(gate).unwrap_or_else(PoisonError::into_inner)
    }
}
