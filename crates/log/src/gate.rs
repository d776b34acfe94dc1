//! Who commits, and who waits for the end of a commit, for room, or for work.
//!
//! ```text
//!   threads  --> wait      <--.
//!   tasks    --> wakers       |-- announce: a commit has ended, room was made, the log broke
//!   destager --> work      <--'   (work: only once there is a batch, or somebody waits for room)
//! ```
//! Every change that ends a wait is announced under the lock under which waiters look, so that no signal is lost.

use std::collections::BTreeMap;
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
    changed: Condvar,
    work: Condvar,
}

impl Gates {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is announced.
    pub(crate) fn wait<'g>(&self, mut gate: MutexGuard<'g, Gate>) -> MutexGuard<'g, Gate> {
        gate.waiting += 1;
        let mut gate = self.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
        gate.waiting -= 1;
        gate
    }

    /// Has a task polled once something is announced.
    pub(crate) fn wake_later(gate: &mut Gate, future: u64, waker: &Waker) {
        gate.wakers.insert(future, waker.clone());
    }

    /// A future that is gone needs no waking.
    pub(crate) fn forget(&self, future: u64) {
        self.lock().wakers.remove(&future);
    }

    /// Wakes all that wait. A signal without a waiter would cost each commit a system call. Wakers run without the lock: one
    /// may drop the last of a task, whose future takes it.
    pub(crate) fn announce(&self, mut gate: MutexGuard<'_, Gate>) {
        if gate.waiting > 0 {
            self.changed.notify_all();
        }
        let wakers = std::mem::take(&mut gate.wakers);
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
