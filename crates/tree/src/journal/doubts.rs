//! Leases that were broken, and whose opens the log is to say so of: one thread writes all of them.
//!
//! ```text
//!  lease 7 --+                      +--> one append, one sync --> 7, 8 go on
//!  lease 8 --+--> asked --> thread -+
//!  lease 9 ------> asked meanwhile -+--> one append, one sync --> 9 goes on
//! ```
//!
//! However many wait for a log, a disk that hangs holds one thread of each log.

use std::fmt;
use std::io;

use basics::ordered::{Mutex, MutexGuard};

use crate::lock_order as order;

/// What is to be written.
#[derive(Default)]
pub(super) struct Doubts(Mutex<State, order::Doubts>);

#[derive(Default)]
struct State {
    asked: Vec<Asked>,
    /// A thread writes what is asked, or is on its way.
    is_served: bool,
}

/// What follows when the log says so, or has failed to.
pub(super) type Then = Box<dyn FnOnce(&io::Result<()>) + Send>;

/// What one caller asks for.
pub(super) struct Asked {
    pub(super) serials: Vec<u64>,
    pub(super) then: Then,
}

impl Doubts {
    /// `true`: the caller has a thread take what is asked for, with [`Doubts::next`], until nothing is left.
    pub(super) fn ask(&self, asked: Asked) -> bool {
        let mut state = self.lock();
        state.asked.push(asked);
        !std::mem::replace(&mut state.is_served, true)
    }

    /// All that was asked for meanwhile; `None`: nothing, and whoever asks next has to see to a thread.
    pub(super) fn next(&self) -> Option<Vec<Asked>> {
        let mut state = self.lock();
        let asked = std::mem::take(&mut state.asked);
        state.is_served = !asked.is_empty();
        state.is_served.then_some(asked)
    }

    fn lock(&self) -> MutexGuard<'_, State, order::Doubts> {
        self.0.lock()
    }
}

impl fmt::Debug for Doubts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Doubts({} asked)", self.lock().asked.len())
    }
}
