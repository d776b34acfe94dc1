//! Ends another thread's `wait`, and costs no system call while that thread is awake.
//!
//! ```text
//!   waker                              engine, about to sleep
//!   -----                              ----------------------
//!   called := true                     asleep := true
//!   --- total order fence ---          --- total order fence ---
//!   if asleep: write the eventfd       if called: do not sleep
//! ```
//!
//! Each side writes its own flag before it reads the flag of the other side. In a total order of
//! the four accesses one of the two writes comes first, so at least one side sees the other's flag:
//! no call is lost. Without the fences both could read stale values, as a store may pass a later
//! load on every machine. An awake engine finds `called` by looking at it between two looks at its
//! sockets.

use std::sync::Arc;

use super::doorbell::Doorbell;
use super::error::EngineError;
use crate::shared::{AtomicBool, AtomicU64, Ordering, fence};

/// Ends an engine's `wait`. A call that comes before the `wait` ends that `wait` at once.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

impl Waker {
    /// Wakes the engine, or lets its next `wait` return at once. Calls do not add up.
    pub fn wake(&self) {
        // A swap, not a store: whoever takes the call of the last of several callers sees what the others
        // have stored before theirs (a store would end their release sequence).
        self.shared.called.swap(true, Ordering::Release);
        self.nudge();
    }

    /// Wakes the engine, which then looks at something that the caller has stored before; its owner
    /// stays in `wait`. The engine looks at the same thing in [`WakeReceiver::may_sleep`].
    pub fn nudge(&self) {
        let shared = &self.shared;
        fence(Ordering::SeqCst);
        // One of several callers writes; the sleeper clears `asleep` itself when it gets up.
        if shared.asleep.load(Ordering::Acquire) && shared.takes_the_wake() {
            shared.system_calls.fetch_add(1, Ordering::Relaxed);
            shared.doorbell.ring();
        }
    }

    /// How often waking took a system call.
    pub fn system_calls(&self) -> u64 {
        self.shared.system_calls.load(Ordering::Relaxed)
    }
}

/// The engine's end of its wakers.
#[derive(Debug)]
pub struct WakeReceiver {
    shared: Arc<Shared>,
}

impl WakeReceiver {
    /// Makes a receiver and its first waker; other wakers are cloned from it.
    pub fn new() -> Result<Self, EngineError> {
        let shared = Shared {
            called: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            system_calls: AtomicU64::new(0),
            doorbell: Doorbell::new()?,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Another waker for another thread.
    pub fn waker(&self) -> Waker {
        Waker { shared: Arc::clone(&self.shared) }
    }

    /// Whether a waker has called since the last time this was asked. Costs a load while none has.
    pub fn take_call(&self) -> bool {
        self.shared.called.load(Ordering::Relaxed)
            && self.shared.called.swap(false, Ordering::AcqRel)
    }

    /// Announces sleep. `false`: a waker has called, or `has_work` found work that a nudge
    /// announced; stay awake.
    pub fn may_sleep(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.shared.asleep.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.shared.called.load(Ordering::Acquire) || has_work() {
            self.shared.asleep.store(false, Ordering::Release);
            return false;
        }
        true
    }

    /// What it waits for beside its sockets.
    pub(super) fn doorbell(&self) -> &Doorbell {
        &self.shared.doorbell
    }

    /// Ends sleep; `readable` says whether the eventfd was seen readable.
    pub fn got_up(&self, readable: bool) {
        self.shared.asleep.store(false, Ordering::Release);
        if readable {
            self.shared.doorbell.silence();
        }
    }
}

#[derive(Debug)]
struct Shared {
    called: AtomicBool,
    asleep: AtomicBool,
    system_calls: AtomicU64,
    doorbell: Doorbell,
}

impl Shared {
    // Who finds the sleeper up already stores nothing.
    fn takes_the_wake(&self) -> bool {
        let asleep = &self.asleep;
        asleep.compare_exchange(true, false, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustix::event::{PollFd, PollFlags, poll};

    fn readable(receiver: &WakeReceiver) -> bool {
        let mut fds = [PollFd::new(receiver, PollFlags::IN)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).unwrap() == 1
    }

    #[test]
    fn a_call_to_an_awake_engine_makes_no_system_call() {
        let receiver = WakeReceiver::new().unwrap();
        let waker = receiver.waker();
        waker.wake();
        waker.wake();
        assert!(!readable(&receiver));
        assert_eq!(waker.system_calls(), 0);
        assert!(receiver.take_call());
        assert!(!receiver.take_call(), "calls do not add up");
    }

    #[test]
    fn a_call_before_sleep_forbids_the_sleep() {
        let receiver = WakeReceiver::new().unwrap();
        receiver.waker().wake();
        assert!(!receiver.may_sleep(|| false));
        assert!(receiver.take_call());
        assert!(receiver.may_sleep(|| false));
    }

    #[test]
    fn a_nudge_wakes_the_engine_and_does_not_count_as_call() {
        let receiver = WakeReceiver::new().unwrap();
        assert!(!receiver.may_sleep(|| true), "the work was stored before");
        assert!(receiver.may_sleep(|| false));
        receiver.waker().nudge();
        assert!(readable(&receiver));
        receiver.got_up(true);
        assert!(!receiver.take_call());
    }

    #[test]
    fn many_calls_during_a_sleep_make_one_system_call() {
        let receiver = WakeReceiver::new().unwrap();
        let waker = receiver.waker();
        assert!(receiver.may_sleep(|| false));
        waker.wake();
        waker.wake();
        assert!(readable(&receiver));
        assert_eq!(waker.system_calls(), 1);
        receiver.got_up(true);
        assert!(!readable(&receiver));
        assert!(receiver.take_call());
    }

    #[test]
    fn no_call_is_lost_between_two_threads_that_race() {
        let receiver = WakeReceiver::new().unwrap();
        let waker = receiver.waker();
        let heard = Arc::new(AtomicU64::new(0));
        let heard_by_caller = Arc::clone(&heard);
        let rounds = 20_000;
        // The caller calls again only once its call was received, so a lost call stops the test's
        // clock.
        let caller = std::thread::spawn(move || {
            for round in 0..rounds {
                waker.wake();
                while heard_by_caller.load(Ordering::Acquire) <= round {
                    std::hint::spin_loop();
                }
            }
        });
        let mut round = 0;
        while round < rounds {
            if receiver.take_call() {
                round += 1;
                heard.store(round, Ordering::Release);
            } else if receiver.may_sleep(|| false) {
                let mut fds = [PollFd::new(&receiver, PollFlags::IN)];
                let patience = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
                assert_eq!(poll(&mut fds, Some(&patience)), Ok(1), "a call was lost");
                receiver.got_up(true);
            }
        }
        caller.join().unwrap();
    }
}
