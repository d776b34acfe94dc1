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
use std::panic::{AssertUnwindSafe, catch_unwind};

use basics::ordered::{Mutex, MutexGuard};

use super::record::doubted;
use super::room::For;
use super::{Journal, Log};
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
type Then = Box<dyn FnOnce(&io::Result<()>) + Send>;

struct Asked {
    serials: Vec<u64>,
    then: Then,
}

impl Doubts {
    fn lock(&self) -> MutexGuard<'_, State, order::Doubts> {
        self.0.lock()
    }
}

impl fmt::Debug for Doubts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Doubts({} asked)", self.lock().asked.len())
    }
}

impl Journal {
    /// Asks for [`Journal::doubt_durably`] of these opens. `true`: the caller calls [`Journal::write_doubts`], or
    /// [`Journal::give_up_doubts`], on a thread that may wait; else some thread is about to.
    pub fn ask_doubt(
        &self,
        serials: Vec<u64>,
        then: impl FnOnce(&io::Result<()>) + Send + 'static,
    ) -> bool {
        let mut state = self.doubts.lock();
        state.asked.push(Asked { serials, then: Box::new(then) });
        !std::mem::replace(&mut state.is_served, true)
    }

    /// Writes what was asked for until nothing is left. Blocks.
    pub fn write_doubts(&self) {
        while let Some(asked) = self.next_doubts() {
            // A bug in one of them keeps no later one from being written.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let serials: Vec<u64> =
                    asked.iter().flat_map(|one| &one.serials).copied().collect();
                let written = self.doubt_durably(&serials);
                asked.into_iter().for_each(|Asked { then, .. }| then(&written));
            }));
        }
    }

    /// Forgets what was asked for: there is no thread.
    pub fn give_up_doubts(&self) {
        while self.next_doubts().is_some() {}
    }

    // All that was asked for meanwhile; `None`, and whoever asks from now on has to call: nothing.
    fn next_doubts(&self) -> Option<Vec<Asked>> {
        let mut state = self.doubts.lock();
        let asked = std::mem::take(&mut state.asked);
        state.is_served = !asked.is_empty();
        state.is_served.then_some(asked)
    }

    /// Records that the leases of these opens were broken. No effect for those of which it is recorded already, or that
    /// are not.
    ///
    /// # Durability
    ///
    /// After `Ok` the opens are restored after a crash without their leases. A crash before may leave it to some of them.
    pub fn doubt_durably(&self, serials: &[u64]) -> io::Result<()> {
        let mut log = self.lock();
        let is_held = |serial: &&u64| log.live.get(serial).is_some_and(|note| note.held != 0);
        let held: Vec<u64> = serials.iter().filter(is_held).copied().collect();
        if held.is_empty() {
            return Ok(());
        }
        let pieces = held.len().div_ceil(AT_ONCE);
        for (at, piece) in held.chunks(AT_ONCE).enumerate() {
            log.append_doubts(piece, at + 1 == pieces)?;
        }
        for serial in &held {
            if let Some(note) = log.live.get_mut(serial) {
                note.doubt();
            }
        }
        // The records are durable, whatever the outcome of the compaction.
        let _ = self.compact(&mut log);
        Ok(())
    }
}

impl Log {
    fn append_doubts(&mut self, serials: &[u64], durably: bool) -> io::Result<()> {
        let bytes: Vec<u8> = serials.iter().flat_map(|serial| doubted(*serial)).collect();
        self.append(&bytes, durably, For::Less)?;
        self.records += serials.len() - 1;
        Ok(())
    }
}

/// Records of one append: a disk that is full has room for so many.
const AT_ONCE: usize = 512;
