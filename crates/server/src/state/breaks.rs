//! Breaks of what is cached of one file, and the requests that wait for them.
//!
//! ```text
//!  lease 7 owes an answer:  3 4 9 ..      each waits behind one lease that is in its way, whichever of them
//!  lease 8 owes an answer:  5 6
//!  lease 7 has answered:    3 4 9 ..      look again: they go on, or wait behind another lease
//! ```
//!
//! A lease has answered when it was given back or taken, when its last open was closed, or when the log says that it is not
//! whole any more. Nothing else wakes anybody.
//! Which of many leases a request waits behind is random, so that an answer wakes few of those who wait for all of
//! them, in whatever order they come: of `n` leases a request looks `ln n` times, where it would look `n` times.
//!
//! Spec: MS-SMB2 §3.3.4.6, §3.3.4.7; MS-FSA §2.1.5.18.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::futures::OwnedNotified;

use super::caching::Intent;
use super::changes::Change;
use super::changing::Changing;
use super::lease::Owner;
use super::locks::LockTable;
use super::node::{Node, NodeState};

/// What somebody waits for.
#[derive(Debug)]
enum Owed {
    /// An answer to a break.
    Answer { deadline: Instant, ended: OwnedNotified },
    /// The logs in which opens of a lease are noted as if it were whole.
    Note { owner: Owner },
}

impl NodeState {
    /// Takes by force what was not given back in time.
    pub(crate) fn expire_breaks(&mut self, now: Instant) {
        for owner in self.leases.expire(now) {
            self.break_waiters.end(owner);
        }
    }

    /// One open of the owner's lease was closed.
    pub(super) fn close_lease(&mut self, owner: Owner) {
        if self.leases.close(owner) {
            self.break_waiters.end(owner);
        }
    }

    // One of the answers that `intent` of `by` has to wait for.
    fn owed_to(&mut self, by: Owner, intent: Intent) -> Option<Owed> {
        let owed = || self.leases.in_the_way(by, intent);
        let count = owed().count();
        if count == 0 {
            return None;
        }
        let (owner, deadline) = owed().nth(self.break_waiters.pick(count))?;
        Some(Owed::Answer { deadline, ended: self.break_waiters.wait_behind(owner) })
    }

    // A lease that the log must not bring back any more, if anybody but `by` has one.
    fn owed_to_the_log(&self, by: Owner) -> Option<Owed> {
        let owner = self.leases.stale_note(by)?;
        Some(Owed::Note { owner })
    }
}

impl Node {
    /// The break of this owner's lease is over: whoever waits for it goes on.
    pub(crate) fn end_break(&self, owner: Owner) {
        self.lock().break_waiters.end(owner);
    }

    /// Breaks what `intent` of `by` makes necessary, and waits until it is given back or taken.
    pub(crate) async fn yield_caching(self: &Arc<Self>, by: Owner, intent: Intent) {
        self.once_yielded(by, || self.break_and(by, intent, |_| ())).await;
    }

    /// Admits a change of bytes once nobody else caches them; `None` if `is_free` finds a lock in the way.
    pub(crate) async fn begin_change(
        self: &Arc<Self>,
        change: Change,
        is_free: impl Fn(&LockTable) -> bool,
    ) -> Option<Changing> {
        let admit =
            |state: &mut NodeState| is_free(&state.locks).then(|| state.begin_change(self, change));
        let attempt = || self.break_and(change.owner, Intent::Modify, admit);
        self.once_yielded(change.owner, attempt).await
    }

    /// The same where nobody has to be told; `None` where somebody has. For the data path.
    pub(crate) fn try_begin_change(
        self: &Arc<Self>,
        change: Change,
        is_free: impl Fn(&LockTable) -> bool,
    ) -> Option<Option<Changing>> {
        let mut state = self.lock();
        if !is_free(&state.locks) {
            return Some(None);
        }
        let is_stale = state.leases.is_stale_after(change.owner);
        (!is_stale).then(|| Some(state.begin_change(self, change)))
    }

    /// The same for an owner that has kept its whole lease since that counted `epoch` changes; `None` if it has not. Until the
    /// change has ended nobody opens the file to whom the lease must be broken, however long its holder is silent.
    pub(crate) fn begin_change_under(
        self: &Arc<Self>,
        change: Change,
        epoch: u16,
        is_free: impl Fn(&LockTable) -> bool,
    ) -> Option<Option<Changing>> {
        let mut state = self.lock();
        if !state.leases.is_whole_since(change.owner, epoch) {
            return None;
        }
        Some(is_free(&state.locks).then(|| state.begin_change_again(self, change)))
    }

    // Attempts until no answer to a break is owed any more.
    async fn once_yielded<T>(
        self: &Arc<Self>,
        by: Owner,
        attempt: impl Fn() -> Result<T, Owed>,
    ) -> T {
        let mut insist_at = Some(self.clock.now() + PATIENCE);
        loop {
            let (deadline, ended) = match attempt() {
                Ok(done) => return done,
                Err(Owed::Note { owner }) => {
                    if let Some(ended) = self.correct_notes(by, owner) {
                        ended.await;
                    }
                    continue;
                }
                Err(Owed::Answer { deadline, ended }) => (deadline, ended),
            };
            let until = insist_at.map_or(deadline, |at| deadline.min(at));
            let has_ended = tokio::time::timeout_at(until.into(), ended).await.is_ok();
            if !has_ended && insist_at.is_some_and(|at| at <= self.clock.now()) {
                insist_at = None;
                self.insist();
            }
        }
    }

    /// Starts breaks and tells the holders; the deadline to wait for if an answer is owed.
    pub(crate) fn begin_breaks(&self, by: Owner, intent: Intent) -> Option<Instant> {
        self.break_and(by, intent, |_| ()).err().map(|owed| match owed {
            Owed::Answer { deadline, .. } => deadline,
            Owed::Note { .. } => self.clock.now(),
        })
    }

    // Starts breaks, and what comes next if no answer is owed: nothing is granted in between.
    fn break_and<T>(
        &self,
        by: Owner,
        intent: Intent,
        next: impl FnOnce(&mut NodeState) -> T,
    ) -> Result<T, Owed> {
        let now = self.clock.now();
        let (routed, outcome) = {
            let mut state = self.lock();
            state.expire_breaks(now);
            let notices = state.leases.start_breaks(by, intent, now);
            let owed = state.owed_to(by, intent);
            let owed = owed.or_else(|| state.owed_to_the_log(by));
            let routed = state.route(notices);
            (routed, owed.map_or_else(|| Ok(next(&mut state)), Err))
        };
        self.send(routed);
        outcome
    }

    // Asks again for what is owed of leases: once, however many wait for it.
    fn insist(&self) {
        let routed = {
            let mut state = self.lock();
            let silent = state.leases.insist();
            state.route(silent)
        };
        routed.insist();
    }
}

/// How long the holder of a lease may say nothing before it is asked over another connection too.
const PATIENCE: Duration = Duration::from_secs(3);

#[cfg(test)]
pub(super) mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use basics::Clock;
    use tree::FileKey;

    use super::super::caching::{Caching, Flavor};
    use super::super::ends::PutOff;
    use super::super::holder::Holder;
    use super::super::serial::OpenSerial;
    use super::*;
    use crate::access::Identity;
    use crate::push::tests::rig::hasty_clock;

    const RH: Caching = Caching(3);

    const TIMEOUT: Duration = Duration::from_secs(3600);

    pub(in super::super) fn node() -> Arc<Node> {
        node_at(Clock::host())
    }

    fn node_at(clock: Clock) -> Arc<Node> {
        let key = FileKey { device: 1, inode: 1 };
        Arc::new(Node::new(key, clock, TIMEOUT, Arc::default(), Arc::default(), Default::default()))
    }

    pub(in super::super) fn client(id: u64) -> Owner {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&id.to_le_bytes());
        Owner::Lease { client: [1; 16], key, user: Identity::user("user").mark() }
    }

    /// A node whose file `holders` clients cache, with handles.
    fn held_by(holders: u64) -> Arc<Node> {
        held(node(), holders)
    }

    fn held(node: Arc<Node>, holders: u64) -> Arc<Node> {
        for id in 0..holders {
            let leases = &mut node.lock().leases;
            let granted =
                leases.grant(client(id), Flavor::LeaseV2, RH, id == 0, 0, Holder::default());
            assert_eq!(granted.caching, RH);
        }
        node
    }

    fn answer(node: &Node, id: u64) {
        let answered =
            node.lock().leases.acknowledge(client(id), Caching::READ, Instant::now()).unwrap();
        assert!(answered.1.is_none());
        node.end_break(client(id));
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A request that waits for breaks, and how often it has looked.
    struct Request<'a> {
        wait: Pin<Box<dyn Future<Output = ()> + 'a>>,
        woken: Arc<Woken>,
        looks: usize,
        is_done: bool,
    }

    impl<'a> Request<'a> {
        fn new(node: &'a Arc<Node>, id: u64) -> Self {
            let wait = Box::pin(node.yield_caching(client(id), Intent::OpenAgainstSharing));
            let mut request = Self { wait, woken: Arc::default(), looks: 0, is_done: false };
            request.look();
            request
        }

        fn look(&mut self) {
            let waker = Waker::from(Arc::clone(&self.woken));
            self.looks += 1;
            self.is_done =
                self.wait.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(());
        }

        fn look_if_woken(&mut self) {
            if self.woken.0.swap(0, Ordering::Relaxed) > 0 && !self.is_done {
                self.look();
            }
        }
    }

    #[tokio::test]
    async fn nothing_but_an_answer_wakes_those_who_wait_for_it() {
        let node = held_by(1);
        let mut waiting: Vec<_> = (1..100).map(|id| Request::new(&node, id)).collect();
        drop(node.begin_resize());
        node.end_removal();
        node.release_stream(OpenSerial(7), &PutOff::new(tokio::runtime::Handle::current()));
        node.lock().close_lease(client(1_000));
        waiting.iter_mut().for_each(Request::look_if_woken);
        assert!(waiting.iter().all(|request| request.looks == 1 && !request.is_done));
        answer(&node, 0);
        waiting.iter_mut().for_each(Request::look_if_woken);
        assert!(waiting.iter().all(|request| request.looks == 2 && request.is_done));
        assert!(node.lock().break_waiters.behind.is_empty());
    }

    #[tokio::test]
    async fn answers_of_many_wake_few_in_whatever_order_they_come() {
        const HOLDERS: u64 = 128;
        const WAITING: u64 = 64;
        for is_reverse in [false, true] {
            let node = held_by(HOLDERS);
            let ids = HOLDERS..HOLDERS + WAITING;
            let mut waiting: Vec<_> = ids.map(|id| Request::new(&node, id)).collect();
            for id in 0..HOLDERS {
                assert!(!waiting.iter().any(|request| request.is_done));
                answer(&node, if is_reverse { HOLDERS - 1 - id } else { id });
                waiting.iter_mut().for_each(Request::look_if_woken);
            }
            assert!(waiting.iter().all(|request| request.is_done));
            let looks: usize = waiting.iter().map(|request| request.looks).sum();
            // 6.4 each on average; were all woken by all answers, 129.
            assert!(looks < 64 * 20, "{looks}");
        }
    }

    #[tokio::test]
    async fn a_holder_that_says_nothing_is_waited_for_until_its_time_is_over() {
        let clock = hasty_clock();
        let node = held(node_at(clock.clone()), 1);
        let asked = clock.now();
        node.yield_caching(client(1), Intent::OpenAgainstSharing).await;
        let waited = clock.now() - asked;
        assert!(waited >= TIMEOUT, "{waited:?}");
        assert!(waited < TIMEOUT + Duration::from_secs(60), "{waited:?}");
    }

    #[tokio::test]
    async fn the_close_of_a_lease_is_its_answer() {
        let node = held_by(2);
        let mut waits = Request::new(&node, 2);
        for id in 0..2 {
            assert!(!waits.is_done);
            node.lock().close_lease(client(id));
            waits.look_if_woken();
        }
        assert!(waits.is_done);
    }
}
