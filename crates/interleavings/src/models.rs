//! The promises, each as a model that loom explores.

use std::sync::Arc;

use loom::future::block_on;
use loom::model::Builder;
use loom::thread;

use crate::interface::WakeReceiver;
use crate::recall::Recall;
use crate::shared::{AtomicBool, AtomicU64, Ordering};
use crate::soft::done::Done;
use crate::work::Work;

/// An engine that goes to sleep while it is called gets up, or does not sleep.
///
/// # Panics
/// A call is lost: loom finds all threads waiting.
pub fn a_call_ends_the_sleep() {
    explore(|| {
        let receiver = receiver();
        let waker = receiver.waker();
        let caller = thread::spawn(move || waker.wake());
        await_call(&receiver);
        caller.join().expect("it only calls");
    });
}

/// The same for a second caller, who calls while the engine gets up or is awake.
///
/// # Panics
/// A call is lost.
pub fn each_of_two_calls_ends_a_sleep() {
    explore(|| {
        let receiver = receiver();
        let called = Arc::new(AtomicU64::new(0));
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let (waker, called) = (receiver.waker(), Arc::clone(&called));
                thread::spawn(move || {
                    called.fetch_add(1, Ordering::Relaxed);
                    waker.wake();
                })
            })
            .collect();
        // Calls do not add up, and what was stored before a call is seen behind it.
        while called.load(Ordering::Relaxed) < 2 {
            await_call(&receiver);
        }
        callers.into_iter().for_each(|caller| caller.join().expect("it only calls"));
    });
}

/// Batches that two workers hand back reach an engine that sleeps whenever it finds none.
///
/// # Panics
/// A batch stays where it is while the engine sleeps.
pub fn all_that_workers_hand_back_arrives() {
    explore(|| {
        let receiver = receiver();
        let done = Arc::new(Done::new(receiver.waker(), 2));
        let workers: Vec<_> = (0..2)
            .map(|number| {
                let done = Arc::clone(&done);
                thread::spawn(move || done.push([number]))
            })
            .collect();
        let mut collected = std::collections::VecDeque::new();
        let mut sum = 0;
        let mut count = 0;
        while count < 2 {
            done.take(&mut collected);
            while let Some(number) = collected.pop_front() {
                (sum, count) = (sum + number, count + 1);
            }
            if count < 2 && receiver.may_sleep(|| done.has_any()) {
                receiver.wait();
                receiver.got_up(true);
            }
        }
        assert_eq!(sum, 1, "each once");
        workers.into_iter().for_each(|worker| worker.join().expect("it only pushes"));
    });
}

/// An owner that waits on its channel gets up for a recall, and sees it.
///
/// # Panics
/// The recall is not seen.
pub fn a_recall_ends_the_sleep_of_its_owner() {
    explore(|| {
        let receiver = receiver();
        let recall = Arc::new(Recall::new());
        recall.grant(receiver.waker());
        let asked = Arc::clone(&recall);
        let control = thread::spawn(move || asked.ask());
        while recall.is_granted() {
            await_call(&receiver);
        }
        control.join().expect("it only asks");
    });
}

/// Of the owner and the control task, which ask and leave in any order, one gives the region back.
///
/// # Panics
/// None or both do.
pub fn one_side_gives_the_region_back() {
    explore(|| {
        let receiver = receiver();
        let recall = Arc::new(Recall::new());
        recall.grant(receiver.waker());
        let (asked, left) = (Arc::clone(&recall), Arc::clone(&recall));
        let control = thread::spawn(move || {
            asked.ask();
            asked.leave()
        });
        let owner = thread::spawn(move || left.leave());
        let control = control.join().expect("it only asks and leaves");
        let owner = owner.join().expect("it only leaves");
        assert!(control != owner, "by the control task: {control}, by the owner: {owner}");
        assert!(!recall.is_granted());
    });
}

/// Who waits until a session has ended and does nothing any more sees that, whoever ends last.
///
/// # Panics
/// The end is not told.
pub fn who_waits_for_the_end_sees_it() {
    explore(|| {
        let work = Arc::new(Work::default());
        let request = work.begin().expect("it goes on");
        let ended = Arc::clone(&work);
        let ending = thread::spawn(move || drop(ended.end()));
        let done = thread::spawn(move || drop(request));
        block_on(work.settled());
        assert!(work.is_settled());
        ending.join().expect("it only ends");
        done.join().expect("it only ends");
    });
}

/// What a request does that has begun is over, and visible, once the session is seen to be settled; no other begins.
///
/// # Panics
/// A request is at work behind the end.
pub fn nothing_begins_behind_the_end() {
    explore(|| {
        let work = Arc::new(Work::default());
        let is_at_work = Arc::new(AtomicBool::new(false));
        let (asked, begun) = (Arc::clone(&work), Arc::clone(&is_at_work));
        let request = thread::spawn(move || {
            if let Some(working) = asked.begin() {
                begun.store(true, Ordering::Relaxed);
                begun.store(false, Ordering::Relaxed);
                drop(working);
            }
        });
        drop(work.end());
        if work.is_settled() {
            assert!(!is_at_work.load(Ordering::Relaxed), "a request is at work behind the end");
            assert!(work.begin().is_none());
        }
        request.join().expect("it only asks");
    });
}

fn receiver() -> WakeReceiver {
    match WakeReceiver::new() {
        Ok(receiver) => receiver,
        Err(error) => match error {},
    }
}

// What an engine does that has nothing to do.
fn await_call(receiver: &WakeReceiver) {
    while !receiver.take_call() {
        if receiver.may_sleep(|| false) {
            receiver.wait();
            receiver.got_up(true);
        }
    }
}

/// Runs a model under all orders of its threads. `LOOM_MAX_PREEMPTIONS` says how often a thread may lose its core where it
/// could go on: twice, unless it is set.
pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS));
    builder.check(model);
}

/// Faults of two threads show with two, as a rule.
const PREEMPTIONS: usize = 2;
