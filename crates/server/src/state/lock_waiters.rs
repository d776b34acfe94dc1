//! A request that waits for a lock of a file, in the [queue](super::lock_queue) of that file.
//!
//! Spec: MS-FSA §2.1.5.8, MS-SMB2 §3.3.5.14.2.

use std::sync::Arc;

use super::lock_index::LockId;
use super::lock_queue::{LockWaiters, Waiting};
use super::locks::LockTable;
use super::node::Node;

/// A request that waits for a lock. Dropped, it waits no more, and the next one has its turn.
#[derive(Debug)]
pub(crate) struct LockWaiter {
    node: Arc<Node>,
    waiting: Waiting,
}

impl LockWaiter {
    /// For who has `waiters` of this node locked: one request more.
    pub(super) fn new(node: &Arc<Node>, waiters: &mut LockWaiters) -> Self {
        let (arrival, woken) = (waiters.arrive(), Arc::default());
        Self { node: Arc::clone(node), waiting: Waiting { arrival, behind: LockId(0), woken } }
    }

    /// For who has `waiters` of this node locked: waits until this lock is given back.
    pub(super) fn wait_behind(&mut self, lock: LockId, waiters: &mut LockWaiters) {
        waiters.wait(&mut self.waiting, lock);
    }

    /// Returns once it is its turn to look again.
    pub(crate) async fn woken(&self) {
        self.waiting.woken.notified().await;
    }
}

impl LockTable {
    /// Has a request wait until a lock that is in its way is given back: `waiter` if it has waited before.
    pub(crate) fn wait(&mut self, node: &Arc<Node>, waiter: &mut Option<LockWaiter>, lock: LockId) {
        let waiters = self.waiters();
        waiter
            .get_or_insert_with(|| LockWaiter::new(node, waiters))
            .wait_behind(lock, self.waiters());
    }
}

impl Drop for LockWaiter {
    fn drop(&mut self) {
        self.node.lock().locks.waiters().leave(&self.waiting);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use basics::Clock;
    use tree::FileKey;

    use super::super::locks::LockRefused;
    use super::*;
    use crate::state::range::LockRange;
    use crate::state::serial::OpenSerial;

    fn node() -> Arc<Node> {
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

    /// One request for an exclusive lock.
    struct Request {
        owner: OpenSerial,
        range: LockRange,
        waiter: Option<LockWaiter>,
        looks: usize,
    }

    impl Request {
        fn new(owner: u64, range: LockRange) -> Self {
            Self { owner: OpenSerial(owner), range, waiter: None, looks: 0 }
        }

        fn is_woken(&self) -> bool {
            let Some(waiter) = &self.waiter else { return false };
            let woken = pin!(waiter.woken());
            woken.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        }

        /// Whether it has its lock now.
        fn look(&mut self, node: &Arc<Node>) -> bool {
            self.looks += 1;
            {
                let mut state = node.lock();
                match state.locks.lock(self.owner, self.range, true, None) {
                    Ok(_) => {}
                    Err(LockRefused::Conflict(held)) => {
                        state.locks.wait(node, &mut self.waiter, held);
                        return false;
                    }
                    Err(refused @ LockRefused::TableFull) => panic!("{refused:?}"),
                }
            }
            self.waiter = None;
            true
        }
    }

    fn range(offset: u64, length: u64) -> LockRange {
        LockRange::new(offset, length).unwrap()
    }

    /// Lets each that is woken look, until none is; those that have their locks, in that order.
    fn settle(node: &Arc<Node>, requests: &mut [Request]) -> Vec<u64> {
        let mut granted = Vec::new();
        loop {
            let woken: Vec<_> = requests.iter_mut().filter(|request| request.is_woken()).collect();
            assert!(woken.len() <= 1, "one after another");
            let Some(request) = woken.into_iter().next() else { return granted };
            if request.look(node) {
                granted.push(request.owner.0);
            }
        }
    }

    #[test]
    fn a_lock_given_back_wakes_nobody_who_waits_for_another() {
        let (node, held, other) = (node(), range(0, 10), range(100, 1));
        let mut holder = Request::new(0, held);
        assert!(holder.look(&node));
        let mut waiting: Vec<_> =
            (1..1_000).map(|owner| Request::new(owner, range(owner % 10, 1))).collect();
        assert!(!waiting.iter_mut().any(|request| request.look(&node)));
        for _ in 0..100 {
            assert!(Request::new(0, other).look(&node));
            assert!(node.release_locks(OpenSerial(0), &[other]));
            assert!(settle(&node, &mut waiting).is_empty());
        }
        assert!(waiting.iter().all(|request| request.looks == 1));
    }

    #[test]
    fn locks_that_conflict_are_granted_in_the_order_of_their_requests() {
        let (node, held) = (node(), range(0, 10));
        assert!(Request::new(0, held).look(&node));
        let mut waiting: Vec<_> =
            (1..=40).map(|owner| Request::new(owner, range(owner % 4, 1))).collect();
        assert!(!waiting.iter_mut().any(|request| request.look(&node)));
        assert!(node.release_locks(OpenSerial(0), &[held]));
        let mut order = settle(&node, &mut waiting);
        assert_eq!(order, [1, 2, 3, 4]);
        for at in 0..36 {
            let owner = order[at];
            assert!(node.release_locks(OpenSerial(owner), &[range(owner % 4, 1)]));
            order.extend(settle(&node, &mut waiting));
        }
        assert_eq!(order, (1..=40).collect::<Vec<_>>());
        drop(waiting);
        assert!(node.lock().locks.waiters().is_empty());
    }

    #[test]
    fn whoever_stops_waiting_leaves_its_turn_to_the_next() {
        let (node, held) = (node(), range(0, 10));
        assert!(Request::new(0, held).look(&node));
        let mut waiting: Vec<_> = (1..=5).map(|owner| Request::new(owner, held)).collect();
        assert!(!waiting.iter_mut().any(|request| request.look(&node)));
        drop(waiting.remove(3));
        // The open is closed: the first is woken, and is cancelled before it looks.
        assert!(node.lock().locks.release(OpenSerial(0)));
        assert_eq!(node.lock().locks.waiters().awake, Some(1));
        drop(waiting.remove(0));
        assert_eq!(settle(&node, &mut waiting), [2]);
        // 3 and 5 wait on.
        assert!(node.release_locks(OpenSerial(2), &[held]));
        assert_eq!(settle(&node, &mut waiting), [3]);
        waiting.clear();
        assert!(node.lock().locks.waiters().is_empty());
    }

    #[test]
    fn every_request_that_waits_gets_its_lock_once_all_before_it_are_given_back() {
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let node = node();
            let mut waiting: Vec<_> =
                (0..30).map(|owner| Request::new(owner, range(next(20), 1 + next(10)))).collect();
            let mut holding: Vec<u64> = Vec::new();
            for request in &mut waiting {
                if request.look(&node) {
                    holding.push(request.owner.0);
                }
            }
            while !holding.is_empty() {
                let at = usize::try_from(next(holding.len() as u64)).unwrap();
                let owner = holding.swap_remove(at);
                // Woken, and gone, now and then.
                assert!(node.lock().locks.release(OpenSerial(owner)));
                if next(4) == 0 {
                    let gone = usize::try_from(next(waiting.len() as u64)).unwrap();
                    waiting[gone].waiter = None;
                }
                holding.extend(settle(&node, &mut waiting));
            }
            assert!(
                waiting.iter().all(|request| request.waiter.is_none()),
                "nobody waits for a free range"
            );
            assert!(node.lock().locks.waiters().is_empty());
        }
    }
}
