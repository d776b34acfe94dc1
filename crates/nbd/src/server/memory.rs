//! The memory of all connections of a server together, for requests that are long.
//!
//! ```text
//!   short requests      not counted: 64 of a connection, of 64 KiB
//!   long ones           wait here once 64 KiB of them have come, or before their reply is made; whoever waits holds
//!                       none, but for requests of its own that a disk has. In turn: who came first is next, however much it wants
//!   10 s waited         all connections that hold some and have moved no byte for 10 s are cut off, or, where there is
//!                       none, the one that has held some for longest, and for 10 s at least
//! ```
//!
//! What a client announces costs nothing before it sends. A client that sends or reads slowly keeps memory that others
//! wait for, and so loses its connection. A client on a slow line loses it only while others want more than there is. A
//! connection of which the device carries a request out is not waited for; one whose requests wait for a reply before them
//! to leave is.

use std::collections::{BTreeMap, VecDeque};
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
    grants: BTreeMap<u64, Holder>,
    /// Who waits, first come first.
    waiting: VecDeque<u64>,
    next: u64,
}

/// A connection that holds some.
#[derive(Debug)]
struct Holder {
    since: Instant,
    wire: Arc<Wire>,
    /// What it had moved when somebody who waits last looked, and since when that is so.
    moved: u64,
    seen: Instant,
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
        let number = state.next;
        state.next += 1;
        state.waiting.push_back(number);
        // Whatever others return meanwhile, the wait is over then.
        let mut until = Instant::now() + patience;
        state.look(Instant::now());
        while state.waiting.front() != Some(&number) || state.held + bytes > BYTES_OF_ALL_MAX {
            let now = Instant::now();
            if now >= until {
                until = now + patience;
                state.look(now);
                state.cut(now, patience);
            }
            let waited = self.freed.wait_timeout(state, until.saturating_duration_since(now));
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting.pop_front();
        state.held += bytes;
        let (since, moved) = (Instant::now(), wire.moved());
        let holder = Holder { since, wire: Arc::clone(wire), moved, seen: since };
        state.grants.insert(number, holder);
        let is_next = !state.waiting.is_empty();
        drop(state);
        if is_next {
            self.freed.notify_all();
        }
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
    /// Notes which holders have moved bytes, or wait for their device, since the last look.
    fn look(&mut self, now: Instant) {
        for holder in self.grants.values_mut() {
            let moved = holder.wire.moved();
            if moved != holder.moved || holder.wire.is_at_work() {
                (holder.moved, holder.seen) = (moved, now);
            }
        }
    }

    // Their threads find the end of the connection, and return what its requests hold.
    fn cut(&self, now: Instant, patience: Duration) {
        let since = |then: Instant| now.saturating_duration_since(then);
        let mut waited_for = self.grants.values().filter(|holder| !holder.wire.is_at_work());
        let oldest = waited_for.clone().next().filter(|holder| since(holder.since) >= patience);
        let stalled = waited_for.by_ref().filter(|holder| since(holder.seen) >= patience);
        let mut is_any = false;
        for holder in stalled {
            is_any = true;
            holder.cut();
        }
        if let Some(holder) = oldest.filter(|_| !is_any) {
            holder.cut();
        }
    }
}

impl Holder {
    fn cut(&self) {
        tracing::info!("a connection is cut off: others wait for the memory of its requests");
        self.wire.cut();
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
/// How long a request waits for memory before connections that hold some are cut off.
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
    fn a_connection_whose_device_is_slow_is_not_cut_off() {
        let memory = Arc::<Memory>::default();
        let ((slow, mut slow_client), (next, _next_client)) = (wire(), wire());
        let held = memory.take(&slow, BYTES_OF_ALL_MAX).unwrap();
        let working = slow.work();
        let waits = {
            let memory = Arc::clone(&memory);
            std::thread::spawn(move || {
                drop(memory.wait_for(&next, 1 << 20, Duration::from_millis(1)));
            })
        };
        slow_client.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let read = slow_client.read(&mut [0]).unwrap_err();
        assert_eq!(read.kind(), std::io::ErrorKind::WouldBlock, "the connection is there");
        drop((working, held));
        waits.join().unwrap();
    }

    #[test]
    fn a_waiter_has_connections_cut_that_stand_still_though_others_return_memory_meanwhile() {
        const PATIENCE: Duration = Duration::from_millis(40);
        let memory = Arc::<Memory>::default();
        let ((next, _next_client), (busy, _busy_client)) = (wire(), wire());
        let mut ending = Vec::new();
        for _ in 0..4 {
            let (slow, mut client) = wire();
            let held = memory.take(&slow, BYTES_OF_ALL_MAX / 4 - SHORT_MAX).unwrap();
            ending.push(std::thread::spawn(move || {
                assert_eq!(client.read(&mut [0]).unwrap(), 0);
                drop((slow, held));
            }));
        }
        let churn = Arc::clone(&memory);
        let (done, stop) = std::sync::mpsc::channel::<()>();
        let churning = std::thread::spawn(move || {
            // Returns some far more often than anybody is patient. It has its turn before the waiter, or behind it.
            while stop.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                drop(churn.wait_for(&busy, SHORT_MAX + 1, PATIENCE));
                std::thread::yield_now();
            }
        });
        drop(memory.wait_for(&next, BYTES_OF_ALL_MAX / 2, PATIENCE));
        drop(done);
        churning.join().unwrap();
        // All four had moved nothing.
        ending.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn who_wants_much_is_not_overtaken_by_those_who_want_little() {
        let memory = Arc::<Memory>::default();
        let (wire, _client) = wire();
        let held = memory.take(&wire, BYTES_OF_ALL_MAX - (1 << 20)).unwrap();
        let (order, came) = std::sync::mpsc::channel();
        let wait = |name: &'static str, bytes: usize, queued: usize| {
            let (memory, wire, order) = (Arc::clone(&memory), Arc::clone(&wire), order.clone());
            let waits = std::thread::spawn({
                let memory = Arc::clone(&memory);
                move || {
                    let grant = memory.take(&wire, bytes);
                    order.send(name).unwrap();
                    drop(grant);
                }
            });
            while memory.lock().waiting.len() < queued {
                std::thread::yield_now();
            }
            waits
        };
        let much = wait("much", 2 << 20, 1);
        let little = wait("little", SHORT_MAX + 1, 2);
        assert!(came.try_recv().is_err(), "the short one finds room, and waits");
        drop(held);
        let mut both = [came.recv().unwrap(), came.recv().unwrap()];
        much.join().unwrap();
        little.join().unwrap();
        both.sort_unstable();
        assert_eq!(both, ["little", "much"]);
        assert!(memory.lock().waiting.is_empty());
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
