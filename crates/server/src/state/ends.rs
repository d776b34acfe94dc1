//! Threads for what ends: connections, sessions, push regions that were written, durable opens that nobody comes back for,
//! and removals of names that were put off.
//!
//! ```text
//!  end of a connection --+                                   +--> a thread of its user
//!  end of a region ------+--> its user has one left there? ---+
//!                                                            +--> waits, without a thread, for an end of the same user there
//! ```
//!
//! There: over the same file system ([`Over`]), for which a user has a part of its threads. Somebody may wait for what ends, so
//! a disk that hangs holds up no end over another. The log of opens of a share may lie on a disk of its own: what it has to
//! learn of an end waits for it in a part of its own, before the rest waits for the file system.
//!
//! What ends may have to wait for a disk. Thousands of connections end at once where a switch fails, or a client wants it so:
//! they leave the pool to others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::Open;
use super::account::{Account, Hold, Lane};
use super::node::Node;
use super::resource::Resource;

/// The file system that an end may have to wait for, and that of the log that has to learn of it first, where that is another.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Over {
    lane: Lane,
    log: Option<Lane>,
}

impl Over {
    /// Of the end of an open.
    pub(crate) fn one(open: &Open) -> Self {
        // Who closes an open whose note is on its way waits for that. In this order: a note that is over meanwhile counts.
        let is_noted = open.is_being_noted.load(Ordering::Acquire) || open.is_persistent();
        let noted = open.tree.share().filter(|_| is_noted);
        let lane = open.entry.file_key().device;
        let log = noted.and_then(|share| share.journal_device()).filter(|log| *log != lane);
        Self { lane, log }
    }

    /// What ends together, by what each may have to wait for.
    pub(crate) fn sorted(
        ends: impl IntoIterator<Item = Arc<Open>>,
    ) -> HashMap<Self, Vec<Arc<Open>>> {
        let mut parts: HashMap<_, Vec<_>> = HashMap::new();
        for open in ends {
            parts.entry(Self::one(&open)).or_default().push(open);
        }
        parts
    }

    /// Of what waits for the file system of this file.
    pub(super) fn node(node: &Node) -> Self {
        Self::file_system(node.key().device)
    }

    /// Of whatever waits for the file system of this device.
    pub(crate) fn file_system(device: u64) -> Self {
        Self { lane: device, log: None }
    }

    /// Of what waits for no disk.
    pub(crate) fn nothing() -> Self {
        Self::file_system(0)
    }

    /// Of what the log has to learn, if one has.
    pub(crate) fn log(self) -> Option<Self> {
        self.log.map(|lane| Self { lane, log: None })
    }

    /// The part of an account for it.
    pub(crate) fn of(self, account: &Arc<Account>) -> Arc<Account> {
        account.in_lane(self.lane)
    }
}

/// A thread of an account, and of its part for one file system.
#[derive(Debug)]
struct Turn {
    _of_lane: Hold,
    _of_account: Hold,
}

/// Whose thread: the account, and its part for one file system.
struct Whose {
    lane: Arc<Account>,
    account: Arc<Account>,
    what: Resource,
}

impl Whose {
    fn new((account, over): (&Arc<Account>, Over), what: Resource) -> Self {
        Self { lane: over.of(account), account: Arc::clone(account), what }
    }

    fn try_take(&self) -> Option<Turn> {
        let of_lane = self.lane.try_take(self.what, 1)?;
        Some(Turn { _of_lane: of_lane, _of_account: self.account.try_take(self.what, 1)? })
    }

    /// The lane first: who waits there is in the way of nothing that goes to another disk.
    async fn take(&self) -> Turn {
        let of_lane = self.lane.take(self.what, 1).await;
        Turn { _of_lane: of_lane, _of_account: self.account.take(self.what, 1).await }
    }
}

/// Runs `work`, the end of something, on a thread that may wait, once this account may have one more of these threads. The
/// handle ends with the work.
pub(crate) fn spawn_end(
    runtime: &Handle,
    (account, over): (&Arc<Account>, Over),
    work: impl FnOnce() + Send + 'static,
) -> JoinHandle<()> {
    spawn(runtime, Whose::new((account, over), Resource::EndJobs), work)
}

/// The end of opens that a log may have: what that has to learn, `forget`, waits for the log, and only then `close` for the
/// file system.
pub(crate) fn spawn_end_of_opens(
    runtime: &Handle,
    (account, over): (&Arc<Account>, Over),
    forget: impl FnOnce() + Send + 'static,
    close: impl FnOnce() + Send + 'static,
) -> JoinHandle<()> {
    let Some(log) = over.log() else { return spawn_end(runtime, (account, over), close) };
    let forgotten = spawn_end(runtime, (account, log), forget);
    let (pool, account) = (runtime.clone(), Arc::clone(account));
    runtime.spawn(async move {
        // A panic of it is in the log of the server; they are closed all the same.
        let _ = forgotten.await;
        let _ = spawn_end(&pool, (&account, over), close).await;
    })
}

/// The same of a region that was written. Others wait for that, so it does not wait for other ends.
pub(crate) fn spawn_settling(
    runtime: &Handle,
    (account, over): (&Arc<Account>, Over),
    work: impl FnOnce() + Send + 'static,
) -> JoinHandle<()> {
    spawn(runtime, Whose::new((account, over), Resource::SettleJobs), work)
}

fn spawn(runtime: &Handle, whose: Whose, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    if let Some(turn) = whose.try_take() {
        return runtime.spawn_blocking(move || {
            let _turn = turn;
            work();
        });
    }
    let pool = runtime.clone();
    runtime.spawn(async move {
        let turn = whose.take().await;
        let working = pool.spawn_blocking(move || {
            let _turn = turn;
            work();
        });
        // A panic of it is in the log of the server.
        let _ = working.await;
    })
}

/// The threads for removals that were put off, whose users are not known where they begin.
#[derive(Clone, Debug)]
pub(crate) struct PutOff {
    runtime: Handle,
    account: Arc<Account>,
}

impl PutOff {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, account: Account::of_what_is_put_off() }
    }

    /// Runs `work` on a thread that may wait, once fewer than [`PUT_OFF_MAX`](crate::limits::PUT_OFF_MAX) are at work, and
    /// fewer than a part of them over the same file system.
    pub(crate) fn spawn(&self, over: Over, work: impl FnOnce() + Send + 'static) {
        drop(spawn(&self.runtime, Whose::new((&self.account, over), Resource::PutOff), work));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, mpsc};

    use tokio::runtime::Runtime;

    use super::*;
    use crate::access::Identity;
    use crate::limits::{
        END_JOBS_OF_GUESTS_MAX, END_JOBS_PER_USER_MAX, Limits, PUT_OFF_MAX,
        SETTLE_JOBS_PER_USER_MAX,
    };
    use crate::state::account::Accounts;

    const HERE: Over = Over { lane: 1, log: None };
    const ELSEWHERE: Over = Over { lane: 2, log: None };
    const NOTED: Over = Over { log: Some(3), ..HERE };

    #[test]
    fn a_log_that_hangs_holds_up_no_end_over_another_disk() {
        let runtime = runtime();
        let accounts = Accounts::new(&Limits::default());
        let (alice, bob) =
            (accounts.of(&Identity::user("alice")), accounts.of(&Identity::user("bob")));
        let (release, hung) = mpsc::channel::<()>();
        let hung = Arc::new(Mutex::new(hung));
        let closed = Arc::new(AtomicUsize::new(0));
        let mut waiting = Vec::new();
        for number in 0..200 {
            let account = if number % 2 == 0 { &alice } else { &bob };
            let (hung, closed) = (Arc::clone(&hung), Arc::clone(&closed));
            let forget = move || drop(hung.lock().map(|hung| hung.recv()));
            let close = move || {
                closed.fetch_add(1, Ordering::Relaxed);
            };
            waiting.push(spawn_end_of_opens(runtime.handle(), (account, NOTED), forget, close));
        }
        runtime.block_on(async {
            // Of opens over the same file system, which no log has, or another one.
            spawn_end(runtime.handle(), (&alice, HERE), || ()).await.unwrap();
            let other = Over { log: Some(4), ..HERE };
            spawn_end_of_opens(runtime.handle(), (&bob, other), || (), || ()).await.unwrap();
        });
        assert_eq!(closed.load(Ordering::Relaxed), 0, "the log has not learnt of them");
        drop(release);
        runtime.block_on(async {
            for one in waiting {
                one.await.unwrap();
            }
        });
        assert_eq!(closed.load(Ordering::Relaxed), 200);
    }

    #[test]
    fn a_disk_that_hangs_holds_up_no_end_over_another() {
        let runtime = runtime();
        let accounts = Accounts::new(&Limits::default());
        let (alice, bob) =
            (accounts.of(&Identity::user("alice")), accounts.of(&Identity::user("bob")));
        let (release, hung) = mpsc::channel::<()>();
        let hung = Arc::new(Mutex::new(hung));
        let mut waiting = Vec::new();
        for number in 0..200 {
            let account = if number % 2 == 0 { &alice } else { &bob };
            let hung = Arc::clone(&hung);
            let hangs = move || drop(hung.lock().map(|hung| hung.recv()));
            waiting.push(match number % 4 {
                0 | 1 => spawn_end(runtime.handle(), (account, HERE), hangs),
                _ => spawn_settling(runtime.handle(), (account, HERE), hangs),
            });
        }
        runtime.block_on(async {
            spawn_end(runtime.handle(), (&alice, ELSEWHERE), || ()).await.unwrap();
            spawn_settling(runtime.handle(), (&alice, ELSEWHERE), || ()).await.unwrap();
        });
        drop(release);
        runtime.block_on(async {
            for one in waiting {
                one.await.unwrap();
            }
        });
    }

    #[test]
    fn ends_over_many_file_systems_that_hang_together_leave_threads_to_others() {
        let runtime = runtime();
        let account = Accounts::new(&Limits::default()).of(&Identity::user("user"));
        let number = AtomicUsize::new(0);
        let begin = |work| {
            let device = u64::try_from(number.fetch_add(1, Ordering::Relaxed)).unwrap();
            drop(spawn_end(runtime.handle(), (&account, Over::file_system(device)), work));
        };
        let (at_once, all) = stuck(&runtime, begin);
        assert!(at_once <= END_JOBS_PER_USER_MAX, "{at_once}");
        assert_eq!(all, 100);
    }

    /// Has 100 ends begin that wait for a disk; how many are at it when the pool has come to what was asked for behind
    /// them, and how many were once the disk goes on.
    fn stuck(pool: &Runtime, begin: impl Fn(Box<dyn FnOnce() + Send>)) -> (usize, usize) {
        let at_work = Arc::new(AtomicUsize::new(0));
        let (over, is_over) = mpsc::channel();
        let (release, hung) = mpsc::channel::<()>();
        let hung = Arc::new(Mutex::new(hung));
        for _ in 0..100 {
            let (at_work, over, hung) = (Arc::clone(&at_work), over.clone(), Arc::clone(&hung));
            begin(Box::new(move || {
                at_work.fetch_add(1, Ordering::Relaxed);
                // All of them go on once the sender is gone.
                drop(hung.lock().map(|hung| hung.recv()));
                over.send(()).unwrap();
            }));
        }
        drop(over);
        pool.block_on(pool.spawn_blocking(|| ())).unwrap();
        let at_once = at_work.load(Ordering::Relaxed);
        drop(release);
        (at_once, is_over.iter().count())
    }

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap()
    }

    #[test]
    fn connections_that_end_together_leave_threads_to_others() {
        let runtime = runtime();
        let accounts = Accounts::new(&Limits::default());
        for (whose, max) in [
            (Identity::user("user"), END_JOBS_PER_USER_MAX),
            (Identity::Guest { client: [1; 16] }, END_JOBS_OF_GUESTS_MAX),
        ] {
            let account = accounts.of(&whose);
            let begin = |work| drop(spawn_end(runtime.handle(), (&account, HERE), work));
            let (at_once, all) = stuck(&runtime, begin);
            assert!(at_once <= max, "{at_once}");
            assert_eq!(all, 100, "none is forgotten");
        }
    }

    #[test]
    fn regions_that_end_together_leave_threads_to_others() {
        let runtime = runtime();
        let account = Accounts::new(&Limits::default()).of(&Identity::user("user"));
        let begin = |work| drop(spawn_settling(runtime.handle(), (&account, HERE), work));
        let (at_once, all) = stuck(&runtime, begin);
        assert!(at_once <= SETTLE_JOBS_PER_USER_MAX, "{at_once}");
        assert_eq!(all, 100);
    }

    #[test]
    fn removals_that_were_put_off_leave_threads_to_others() {
        let runtime = runtime();
        let put_off = PutOff::new(runtime.handle().clone());
        let (at_once, all) = stuck(&runtime, |work| put_off.spawn(HERE, work));
        assert!(at_once <= PUT_OFF_MAX, "{at_once}");
        assert_eq!(all, 100);
    }

    #[test]
    fn a_removal_that_hangs_holds_up_none_over_another_disk() {
        let runtime = runtime();
        let put_off = PutOff::new(runtime.handle().clone());
        let (release, hung) = mpsc::channel::<()>();
        let hung = Arc::new(Mutex::new(hung));
        for _ in 0..PUT_OFF_MAX {
            let hung = Arc::clone(&hung);
            put_off.spawn(HERE, move || drop(hung.lock().map(|hung| hung.recv())));
        }
        let (over, is_over) = mpsc::channel();
        put_off.spawn(ELSEWHERE, move || over.send(()).unwrap());
        assert_eq!(is_over.recv(), Ok(()));
        drop(release);
    }

    #[test]
    fn an_end_that_panics_gives_its_turn_back() {
        let runtime = runtime();
        let account = Accounts::new(&Limits::default()).of(&Identity::user("user"));
        let ends: Vec<_> = (0..20)
            .map(|_| spawn_end(runtime.handle(), (&account, HERE), || panic!("by the test")))
            .collect();
        runtime.block_on(async {
            for end in ends {
                let _ = end.await;
            }
            spawn_end(runtime.handle(), (&account, HERE), || ()).await.unwrap();
        });
        assert_eq!(account.held(Resource::EndJobs), 0);
    }
}
