//! The memory of all connections of a server together, for requests that are long.
//!
//! ```text
//!   short requests      not counted: 64 of a connection, of 64 KiB
//!   long ones           wait here before their bytes come, or before their reply is made; whoever waits holds none
//!   10 s waited         the connection that has held some for longest, and for 10 s at least, is cut off
//! ```
//!
//! A client that sends or reads slowly keeps memory that others wait for, and so loses its connection. A client on a
//! slow line loses it only while others want more than there is.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::wire::Wire;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Memory {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held: usize,
    /// Bytes that threads keep for their next replies.
    kept: usize,
    /// In the order in which they were given.
    grants: BTreeMap<u64, (Instant, Arc<Wire>)>,
    next: u64,
}

/// Memory that one request holds, until dropped.
#[derive(Debug)]
pub(super) struct Grant {
    memory: Arc<Memory>,
    number: u64,
    bytes: usize,
}

/// Memory that a thread keeps for its next replies, until dropped.
#[derive(Debug)]
pub(super) struct Keeping(Arc<Memory>);

impl Memory {
    /// Memory for a request of `wire` that holds `bytes`, once there is some; `None` where they are few.
    pub(super) fn take(self: &Arc<Self>, wire: &Arc<Wire>, bytes: usize) -> Option<Grant> {
        (bytes > SHORT_MAX).then(|| self.wait_for(wire, bytes, PATIENCE))
    }

    fn wait_for(self: &Arc<Self>, wire: &Arc<Wire>, bytes: usize, patience: Duration) -> Grant {
        // One that alone is longer than all gets all.
        let bytes = bytes.min(BYTES_OF_ALL_MAX);
        let mut state = self.lock();
        while state.held + bytes > BYTES_OF_ALL_MAX {
            let waited = self.freed.wait_timeout(state, patience);
            let (waiting, outcome) = waited.unwrap_or_else(PoisonError::into_inner);
            if outcome.timed_out() {
                waiting.cut_oldest(patience);
            }
            state = waiting;
        }
        state.held += bytes;
        let number = state.next;
        state.next += 1;
        state.grants.insert(number, (Instant::now(), Arc::clone(wire)));
        Grant { memory: Arc::clone(self), number, bytes }
    }

    /// The right to keep the memory of a long reply for the next, if not too many threads do.
    pub(super) fn keep(self: &Arc<Self>) -> Option<Keeping> {
        let mut state = self.lock();
        if state.kept >= KEPT_BY_ALL_MAX {
            return None;
        }
        state.kept += KEPT_MAX;
        Some(Keeping(Arc::clone(self)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    // Its threads find the end of the connection, and return what its requests hold.
    fn cut_oldest(&self, patience: Duration) {
        let now = Instant::now();
        if let Some((since, wire)) = self.grants.values().next()
            && now.duration_since(*since) >= patience
        {
            tracing::info!("a connection is cut off: others wait for the memory of its requests");
            wire.cut();
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        state.held -= self.bytes;
        state.grants.remove(&self.number);
        drop(state);
        self.memory.freed.notify_all();
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.0.lock().kept -= KEPT_MAX;
    }
}

/// Bytes of a request that are not counted: clients use requests of 4 KiB to 128 KiB, most of them short.
pub(super) const SHORT_MAX: usize = 64 << 10;
/// Bytes that long requests of all connections hold together: of 32 of the longest writes to a disk.
const BYTES_OF_ALL_MAX: usize = 2 << 30;
/// Memory for replies that all threads keep together while they have nothing to send.
const KEPT_BY_ALL_MAX: usize = 256 << 20;
/// What one thread keeps at most: `protocol::Output` gives more back.
const KEPT_MAX: usize = 1 << 20;
/// How long a request waits for memory before the connection that has held some for longest is cut off.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::super::wire::Socket;
    use super::*;

    fn wire() -> (Arc<Wire>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Arc::new(Wire::new(Socket::Unix(ours)).unwrap()), theirs)
    }

    #[test]
    fn long_requests_of_all_connections_hold_a_bounded_amount_of_memory() {
        let (memory, (wire, _client)) = (Arc::<Memory>::default(), wire());
        assert!(memory.take(&wire, SHORT_MAX).is_none(), "a short one waits for nothing");
        let all: Vec<_> = (0..32).map(|_| memory.take(&wire, 64 << 20).unwrap()).collect();
        assert_eq!(memory.lock().held, BYTES_OF_ALL_MAX);
        let waits = {
            let (memory, wire) = (Arc::clone(&memory), Arc::clone(&wire));
            std::thread::spawn(move || drop(memory.take(&wire, 1 << 20)))
        };
        drop(all);
        waits.join().unwrap();
        let whole = memory.take(&wire, usize::MAX).unwrap();
        assert_eq!(memory.lock().held, BYTES_OF_ALL_MAX);
        drop(whole);
        assert!(memory.lock().held == 0 && memory.lock().grants.is_empty());
    }

    #[test]
    fn a_connection_that_keeps_memory_others_wait_for_is_cut_off() {
        let memory = Arc::<Memory>::default();
        let ((slow, mut slow_client), (next, _next_client)) = (wire(), wire());
        let held = memory.take(&slow, BYTES_OF_ALL_MAX).unwrap();
        let ending = std::thread::spawn(move || {
            // What its threads do when they find the end of the connection.
            assert_eq!(slow_client.read(&mut [0]).unwrap(), 0);
            drop(held);
        });
        drop(memory.wait_for(&next, 1 << 20, Duration::from_millis(1)));
        ending.join().unwrap();
    }

    #[test]
    fn memory_for_replies_is_kept_by_a_bounded_number_of_threads() {
        let memory = Arc::<Memory>::default();
        let mut kept: Vec<_> = std::iter::from_fn(|| memory.keep()).collect();
        assert_eq!(kept.len(), KEPT_BY_ALL_MAX / KEPT_MAX);
        kept.pop();
        assert!(memory.keep().is_some());
        drop(kept);
        assert_eq!(memory.lock().kept, 0);
    }
}
