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

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::futures::OwnedNotified;
use tracing::error;
use tree::Share;

use super::caching::Intent;
use super::changes::Change;
use super::changing::Changing;
use super::lease::Owner;
use super::lease_note::{NoteNumber, StaleNote};
use super::locks::LockTable;
use super::node::{Node, NodeState};
use super::serial::OpenSerial;

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

    // The opens of a lease, by the shares in whose logs they are.
    fn noted(&self, owner: Owner) -> Vec<(Arc<Share>, Vec<u64>)> {
        let mut noted: Vec<(Arc<Share>, Vec<u64>)> = Vec::new();
        for open in self.opens.iter().filter(|open| open.owner == owner) {
            match noted.iter_mut().find(|(share, _)| Arc::ptr_eq(share, &open.share)) {
                Some((_, serials)) => serials.push(open.serial.0),
                None => noted.push((Arc::clone(&open.share), vec![open.serial.0])),
            }
        }
        noted
    }
}

impl Node {
    /// The break of this owner's lease is over: whoever waits for it goes on.
    pub(crate) fn end_break(&self, owner: Owner) {
        self.lock().break_waiters.end(owner);
    }

    /// Breaks what `intent` of `by` makes necessary, and waits until it is given back or taken.
    pub(crate) async fn yield_caching(self: &Arc<Self>, by: Owner, intent: Intent) {
        self.once_yielded(|| self.break_and(by, intent, |_| ())).await;
    }

    /// Admits a change of bytes once nobody else caches them; `None` if `is_free` finds a lock in the way.
    pub(crate) async fn begin_change(
        self: &Arc<Self>,
        change: Change,
        is_free: impl Fn(&LockTable) -> bool,
    ) -> Option<Changing> {
        let admit =
            |state: &mut NodeState| is_free(&state.locks).then(|| state.begin_change(self, change));
        self.once_yielded(|| self.break_and(change.owner, Intent::Modify, admit)).await
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
    async fn once_yielded<T>(self: &Arc<Self>, attempt: impl Fn() -> Result<T, Owed>) -> T {
        let mut insist_at = Some(self.clock.now() + PATIENCE);
        loop {
            let (deadline, ended) = match attempt() {
                Ok(done) => return done,
                Err(Owed::Note { owner }) => {
                    if let Some(ended) = self.correct_note(owner) {
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

    // Has the logs say that a lease is not whole any more: the first who waits for that. `None`: they say so.
    fn correct_note(self: &Arc<Self>, owner: Owner) -> Option<OwnedNotified> {
        let mut state = self.lock();
        let stale = state.leases.begin_note(owner)?;
        let ended = state.break_waiters.wait_behind(owner);
        if let StaleNote::ToBeWritten(number) = stale {
            let noted = state.noted(owner);
            drop(state);
            let correction = Arc::new(Correction { node: Arc::clone(self), owner, number });
            noted.into_iter().for_each(|(share, serials)| write(share, serials, &correction));
        }
        Some(ended)
    }

    // The same, and what comes next if no answer is owed: nothing is granted in between.
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

// Dropped once all logs say what they are to say, have failed to, or cannot be asked any more.
struct Correction {
    node: Arc<Node>,
    owner: Owner,
    number: NoteNumber,
}

impl Drop for Correction {
    fn drop(&mut self) {
        let mut state = self.node.lock();
        state.leases.note_is_right(self.owner, self.number);
        state.break_waiters.end(self.owner);
    }
}

// One thread writes to the log of a share, whoever waits for it.
fn write(share: Arc<Share>, serials: Vec<u64>, correction: &Arc<Correction>) {
    let Some(journal) = share.journal() else { return };
    let kept = Arc::clone(correction);
    let first = serials.first().copied().unwrap_or_default();
    let is_ours = journal.ask_doubt(serials, move |written| {
        let _kept = kept;
        if let Err(error) = written {
            note_failed(first, error);
        }
    });
    if is_ours {
        let writer = Writer(Some(share));
        drop(tokio::task::spawn_blocking(move || writer.run()));
    }
}

// A thread that writes to a log. A runtime that goes down may never have it run.
struct Writer(Option<Arc<Share>>);

impl Writer {
    fn run(mut self) {
        if let Some(journal) = self.0.take().as_ref().and_then(|share| share.journal()) {
            journal.write_doubts();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(journal) = self.0.as_ref().and_then(|share| share.journal()) {
            journal.give_up_doubts();
        }
    }
}

/// Makes the log say of an open that its lease is not held, or not whole. Blocks.
pub(crate) fn doubt(share: &Share, serial: OpenSerial) {
    let Some(journal) = share.journal() else { return };
    if let Err(error) = journal.doubt_durably(&[serial.0]) {
        note_failed(serial.0, &error);
    }
}

// The log promises nothing more, and says so; nobody waits for it for ever.
fn note_failed(serial: u64, error: &io::Error) {
    error!(serial, %error, "the log of opens does not learn that a lease was broken: after a crash it is whole again");
}

/// How long the holder of a lease may say nothing before it is asked over another connection too.
const PATIENCE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use basics::Clock;
    use tree::journal::OpenNote;
    use tree::{FileKey, ShareConfig, SharePath};

    use super::super::caching::{Caching, Flavor};
    use super::super::ends::PutOff;
    use super::super::holder::Holder;
    use super::super::lease_keys::LeaseKeys;
    use super::super::node::OpenRecord;
    use super::super::sharing::{Kinds, Sharing};
    use super::*;
    use crate::access::Identity;
    use crate::push::tests::rig::hasty_clock;

    const RH: Caching = Caching(3);

    const TIMEOUT: Duration = Duration::from_secs(3600);

    fn node() -> Arc<Node> {
        node_at(Clock::host())
    }

    fn node_at(clock: Clock) -> Arc<Node> {
        let key = FileKey { device: 1, inode: 1 };
        Arc::new(Node::new(key, clock, TIMEOUT, Arc::default(), Arc::default(), Default::default()))
    }

    fn client(id: u64) -> Owner {
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

    fn open_of(owner: Owner, serial: OpenSerial, share: &Arc<Share>) -> OpenRecord {
        let all = Kinds { read: true, write: true, delete: true };
        OpenRecord {
            serial,
            sharing: Sharing { uses: all, shares: all },
            owner,
            has_lease: true,
            share: Arc::clone(share),
            path: SharePath::parse("f").unwrap(),
            delete_on_close: None,
            holder: None,
            orphan: None,
            _key_claim: Arc::<LeaseKeys>::default()
                .claim(owner, FileKey { device: 1, inode: 1 })
                .unwrap(),
            instance: None,
            open: std::sync::Weak::new(),
            base: None,
        }
    }

    fn note_of(serial: u64) -> OpenNote {
        OpenNote {
            boot: None,
            serial,
            inode: 1,
            identity: None,
            access: 0x1f_01ff,
            mode: 0,
            action: 1,
            timeout_ms: 60_000,
            flags: 0,
            flavor: 2,
            held: Caching::READ.0.try_into().unwrap(),
            epoch: 1,
            lease_key: [1; 16],
            client: [1; 16],
            create_guid: [1; 16],
            instance: None,
            user: "user".to_owned(),
            path: "f".to_owned(),
            earlier: None,
            locks: Vec::new(),
            delete_pending: false,
            sequences: Default::default(),
        }
    }

    fn taken_over(config: &ShareConfig) -> Share {
        let mut share = Share::open(config).unwrap();
        share.take_over().unwrap();
        share
    }

    #[test]
    fn however_many_wait_for_a_log_one_thread_writes_to_it() {
        const OPENS: u64 = 50;
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("opens.log");
        let mut config = ShareConfig::new("s", dir.path());
        config.persistent_opens = Some(log);
        let share = Arc::new(taken_over(&config));
        let node = node();
        {
            let mut state = node.lock();
            for serial in 1..=OPENS {
                let (owner, flavor) = (client(0), Flavor::LeaseV2);
                state.leases.grant(owner, flavor, Caching::READ, true, 0, Holder::default());
                state.opens.push(open_of(owner, OpenSerial(serial), &share));
                share.journal().unwrap().open_durably(note_of(serial)).unwrap();
            }
            assert!(state.leases.note(client(0)).is_some());
        }
        let threads = Arc::new(AtomicUsize::new(0));
        let started = Arc::clone(&threads);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let count = move || {
            started.fetch_add(1, Ordering::Relaxed);
        };
        let runtime = runtime.enable_all().on_thread_start(count).build().unwrap();
        runtime.block_on(async {
            let yields = (1..=100).map(|id| {
                let node = Arc::clone(&node);
                async move { node.yield_caching(client(id), Intent::Modify).await }
            });
            let waiting: Vec<_> = yields.map(tokio::spawn).collect();
            for request in waiting {
                request.await.unwrap();
            }
        });
        assert_eq!(threads.load(Ordering::Relaxed), 1);
        drop((node, share, runtime));
        let share = taken_over(&config);
        let left = share.left_over().begin().unwrap();
        let held: Vec<_> = left.notes().into_iter().map(|note| note.held).collect();
        assert_eq!(held, vec![0; usize::try_from(OPENS).unwrap()], "the log says so of each");
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
