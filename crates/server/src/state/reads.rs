//! Reads of a file's bytes beside byte-range locks: no answer has bytes that were written under another's exclusive
//! lock.
//!
//! ```text
//!  on the spot:   look at the locks --> read --> no exclusive lock taken since?  --> answer
//!                                                            | taken
//!  else:          look at the locks and enter <--------------+
//!                           |
//!                           +--> read, may wait --> leave: a LOCK that the read would have met has waited for it
//! ```
//!
//! Spec: MS-FSA §2.1.4.10 (byte-range locks), §2.1.5.3 (reads).

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use tree::{Remainder, ShareError};

use super::changes::{Read, Use};
use super::changing::Entered;
use super::node::Node;

/// The locks of a file as they were when they allowed a read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight(u64);

/// A read under way: to be held until its bytes are there.
#[derive(Debug)]
pub(crate) struct Reading {
    _entered: Entered,
}

impl Node {
    /// Looks whether a read may go ahead; `None` if a lock is in the way.
    pub(crate) fn look_at_locks(&self, read: Read) -> Option<Sight> {
        let state = self.lock();
        let Read { serial, range } = read;
        let is_free = state.locks.allows_read(serial, range.offset, range.length);
        is_free.then(|| Sight(self.exclusive_locks.so_far()))
    }

    /// Whether no exclusive lock has been taken since: then what was read meanwhile was written under none.
    pub(crate) fn is_as_seen(&self, Sight(count): Sight) -> bool {
        // Whoever wrote bytes under a lock had it counted before. Those that were read are read before this.
        fence(Ordering::Acquire);
        self.exclusive_locks.so_far() == count
    }

    /// Looks whether a read may go ahead, and enters it in the same step; `None` if a lock is in the way.
    pub(crate) fn begin_read(self: &Arc<Self>, read: Read) -> Option<Reading> {
        let mut state = self.lock();
        let Read { serial, range } = read;
        let is_free = state.locks.allows_read(serial, range.offset, range.length);
        is_free.then(|| Reading { _entered: state.changes.enter(self, Use::Read(read)) })
    }
}

/// What the answer of a READ lacks, and the read, which is under way until then.
#[derive(Debug)]
pub(crate) struct Rest {
    remainder: Remainder,
    _reading: Reading,
}

impl Rest {
    pub(crate) fn new(remainder: Remainder, reading: Reading) -> Self {
        Self { remainder, _reading: reading }
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.remainder.left()
    }

    /// Of a read of a file that nobody has open.
    #[cfg(test)]
    pub(crate) fn of(remainder: Remainder) -> Self {
        let serial = super::OpenSerial(1);
        let range = super::range::LockRange::WHOLE;
        let reading = tests::node().begin_read(Read { serial, range });
        Self::new(remainder, reading.expect("it has no locks"))
    }

    /// See [`Remainder::try_read`].
    pub(crate) fn try_read(&mut self, out: &mut Vec<u8>, max: usize) -> Result<(), ShareError> {
        self.remainder.try_read(out, max)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use basics::Clock;
    use tree::FileKey;

    use super::super::changes::Kept;
    use super::*;
    use crate::state::range::LockRange;
    use crate::state::serial::OpenSerial;

    const A: OpenSerial = OpenSerial(1);
    const B: OpenSerial = OpenSerial(2);

    pub(super) fn node() -> Arc<Node> {
        let key = FileKey { device: 1, inode: 1 };
        let (timeout, orphans) = (Duration::from_secs(1), Arc::default());
        Arc::new(Node::new(
            key,
            Clock::host(),
            timeout,
            orphans,
            Arc::default(),
            Default::default(),
        ))
    }

    fn range(offset: u64, length: u64) -> LockRange {
        LockRange::new(offset, length).unwrap()
    }

    fn read(serial: OpenSerial, offset: u64, length: u64) -> Read {
        Read { serial, range: range(offset, length) }
    }

    // Takes a lock, which is to be settled.
    fn lock(node: &Node, serial: OpenSerial, range: LockRange, exclusive: bool) -> Kept {
        let mut state = node.lock();
        state.locks.lock(serial, range, exclusive, None).unwrap();
        Kept { serial, range, exclusive, before: state.changes.so_far() }
    }

    #[test]
    fn a_lock_waits_for_the_reads_that_it_would_have_met() {
        let node = node();
        let first = node.begin_read(read(A, 10, 10)).unwrap();
        let last = node.begin_read(read(A, 0, 100)).unwrap();
        let kept = lock(&node, B, range(15, 1), true);
        assert!(node.begin_read(read(A, 0, 100)).is_none(), "it is locked");
        let mut settled = pin!(node.settled(kept));
        let mut look =
            || settled.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(());
        assert!(!look());
        drop(first);
        assert!(!look(), "another one");
        drop(last);
        assert!(look());
    }

    #[test]
    fn a_lock_waits_for_no_read_that_it_allows() {
        let node = node();
        let _reads = [(A, 0, 10), (B, 15, 1), (A, 15, 0), (A, 16, 10)]
            .map(|(serial, offset, length)| node.begin_read(read(serial, offset, length)));
        let is_settled = |kept: Kept| {
            let settled = pin!(node.settled(kept));
            settled.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        };
        assert!(is_settled(lock(&node, B, range(15, 1), true)), "its own, and others' beside it");
        assert!(is_settled(lock(&node, B, range(16, 10), false)), "shared ones are for reading");
    }

    #[test]
    fn a_sight_ends_with_the_next_exclusive_lock() {
        let node = node();
        lock(&node, A, range(0, 10), true);
        assert!(node.look_at_locks(read(B, 5, 1)).is_none());
        let sight = node.look_at_locks(read(B, 10, 1)).unwrap();
        lock(&node, A, range(50, 1), false);
        assert!(node.release_locks(A, &[range(0, 10)]));
        assert!(node.is_as_seen(sight));
        lock(&node, A, range(0, 10), true);
        assert!(!node.is_as_seen(sight));
    }
}
