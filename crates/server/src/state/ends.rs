//! Threads for what ends: connections, sessions, push regions that were written, durable opens that nobody comes back for,
//! and removals of names that were put off.
//!
//! ```text
//!  end of a connection --+                                   +--> a thread of its user
//!  end of a region ------+--> its user has one left there? ---+
//!                                                            +--> waits, without a thread, for an end of the same user there
//! ```
//!
//! There: over the same share and file system ([`Over`]). Somebody may wait for what ends, so a disk that hangs holds up no
//! end over another.
//!
//! What ends may have to wait for a disk. Thousands of connections end at once where a switch fails, or a client wants it so:
//! they leave the pool to others.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tree::Share;

use super::Open;
use super::account::{Account, Lane};
use super::resource::Resource;
use crate::limits::PUT_OFF_MAX;

/// What an end may have to wait for: the file system of what is closed, and the log of the share that notes it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Over {
    /// Nothing that could hang.
    Nothing,
    /// One share, on one file system.
    One(Lane),
    /// More than one.
    Several,
}

impl Over {
    /// Of the end of all these.
    pub(crate) fn all<'a>(opens: impl IntoIterator<Item = &'a Arc<Open>>) -> Self {
        opens.into_iter().map(Self::one).fold(Self::Nothing, |over, one| match (over, one) {
            (Self::Nothing, one) => one,
            (over, one) if over == one => over,
            _ => Self::Several,
        })
    }

    /// Of the end of this one.
    pub(crate) fn one(open: &Arc<Open>) -> Self {
        let share = open.tree.share().map_or(0, |share| Arc::as_ptr(share).addr());
        Self::One((share, open.entry.file_key().device))
    }

    /// Of whatever is open in a share.
    pub(crate) fn share(share: &Arc<Share>) -> Self {
        Self::One((Arc::as_ptr(share).addr(), 0))
    }

    /// Of what changes a file of this file system alone.
    pub(crate) fn file_system(device: u64) -> Self {
        Self::One((0, device))
    }

    fn lane(self) -> Lane {
        match self {
            Self::Nothing => (1, 0),
            Self::One(lane) => lane,
            Self::Several => (2, 0),
        }
    }
}

/// Runs `work`, the end of something, on a thread that may wait, once this account may have one more of these threads. The
/// handle ends with the work.
pub(crate) fn spawn_end(
    runtime: &Handle,
    (account, over): (&Arc<Account>, Over),
    work: impl FnOnce() + Send + 'static,
) -> JoinHandle<()> {
    spawn((runtime, account.in_lane(over.lane()), Resource::EndJobs), work)
}

/// The same of a region that was written. Others wait for that, so it does not wait for other ends.
pub(crate) fn spawn_settling(
    runtime: &Handle,
    (account, over): (&Arc<Account>, Over),
    work: impl FnOnce() + Send + 'static,
) -> JoinHandle<()> {
    spawn((runtime, account.in_lane(over.lane()), Resource::SettleJobs), work)
}

fn spawn(
    (runtime, account, what): (&Handle, Arc<Account>, Resource),
    work: impl FnOnce() + Send + 'static,
) -> JoinHandle<()> {
    if let Some(turn) = account.try_take(what, 1) {
        return runtime.spawn_blocking(move || {
            let _turn = turn;
            work();
        });
    }
    let pool = runtime.clone();
    runtime.spawn(async move {
        let turn = account.take(what, 1).await;
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
    left: Arc<Semaphore>,
}

impl PutOff {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, left: Arc::new(Semaphore::new(PUT_OFF_MAX)) }
    }

    /// Runs `work` on a thread that may wait, once fewer than [`PUT_OFF_MAX`] are at work.
    pub(crate) fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        if let Ok(turn) = Arc::clone(&self.left).try_acquire_owned() {
            drop(self.runtime.spawn_blocking(move || {
                let _turn = turn;
                work();
            }));
            return;
        }
        let Self { runtime, left } = self.clone();
        drop(self.runtime.spawn(async move {
            // Nobody closes it.
            let turn = left.acquire_owned().await;
            drop(runtime.spawn_blocking(move || {
                let _turn = turn;
                work();
            }));
        }));
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
        END_JOBS_OF_GUESTS_MAX, END_JOBS_PER_USER_MAX, Limits, SETTLE_JOBS_PER_USER_MAX,
    };
    use crate::state::account::Accounts;

    const HERE: Over = Over::One((7, 1));
    const ELSEWHERE: Over = Over::One((7, 2));

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
        let (at_once, all) = stuck(&runtime, |work| put_off.spawn(work));
        assert!(at_once <= PUT_OFF_MAX, "{at_once}");
        assert_eq!(all, 100);
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
        assert_eq!(account.in_lane(HERE.lane()).held(Resource::EndJobs), 0);
    }
}
