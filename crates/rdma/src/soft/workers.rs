//! Threads that carry out batches which may block, so that the engine never does.
//!
//! ```text
//!   engine --submit--> [jobs] --> worker --> [done] --collect--> engine
//!                                    \--- waker.nudge() --^
//! ```
//!
//! A queue pair has at most one batch here, so both queues are bounded by the number of queue
//! pairs. Threads start when a job finds none idle, up to the configured number. Both locks are
//! held for a push or a pop and never while a medium works.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::batch::Batch;
use crate::verbs::Waker;

/// One engine's workers.
#[derive(Debug)]
pub(super) struct Workers {
    shared: Arc<Shared>,
    started: u16,
    max: u16,
    collected: VecDeque<Box<Batch>>,
}

#[derive(Debug)]
struct Shared {
    jobs: Mutex<Jobs>,
    available: Condvar,
    done: Mutex<VecDeque<Box<Batch>>>,
    any_done: AtomicBool,
    waker: Waker,
}

#[derive(Debug)]
struct Jobs {
    queue: VecDeque<Box<Batch>>,
    idle: usize,
    stop: bool,
}

impl Workers {
    pub(super) fn new(max: u16, waker: Waker) -> Self {
        let queue = VecDeque::with_capacity(QUEUE_START);
        let shared = Shared {
            jobs: Mutex::new(Jobs { queue, idle: 0, stop: false }),
            available: Condvar::new(),
            done: Mutex::new(VecDeque::with_capacity(QUEUE_START)),
            any_done: AtomicBool::new(false),
            waker,
        };
        let shared = Arc::new(shared);
        Self {
            shared,
            started: 0,
            max: max.max(1),
            collected: VecDeque::with_capacity(QUEUE_START),
        }
    }

    /// Queues a batch. Gives it back if no thread could be started to run it.
    pub(super) fn submit(&mut self, batch: Box<Batch>) -> Result<(), Box<Batch>> {
        let waiting = {
            let jobs = lock(&self.shared.jobs);
            jobs.queue.len() + 1 > jobs.idle
        };
        if waiting && self.started < self.max {
            let shared = Arc::clone(&self.shared);
            let name = "rdma-worker".to_owned();
            if thread::Builder::new().name(name).spawn(move || work(&shared)).is_ok() {
                self.started += 1;
            }
        }
        if self.started == 0 {
            return Err(batch);
        }
        lock(&self.shared.jobs).queue.push_back(batch);
        self.shared.available.notify_one();
        Ok(())
    }

    /// Whether a batch is done.
    pub(super) fn has_done(&self) -> bool {
        !self.collected.is_empty() || self.shared.any_done.load(Ordering::Acquire)
    }

    /// Takes one batch that is done. Costs a load while none is.
    pub(super) fn collect(&mut self) -> Option<Box<Batch>> {
        if self.collected.is_empty() && self.shared.any_done.load(Ordering::Relaxed) {
            let mut done = lock(&self.shared.done);
            self.shared.any_done.store(false, Ordering::Relaxed);
            std::mem::swap(&mut *done, &mut self.collected);
        }
        self.collected.pop_front()
    }
}

impl Drop for Workers {
    /// Tells the threads to end after what they are doing. Nobody waits for them: a medium that
    /// hangs must not hang whoever drops the engine.
    fn drop(&mut self) {
        let mut jobs = lock(&self.shared.jobs);
        jobs.stop = true;
        jobs.queue.clear();
        self.shared.available.notify_all();
    }
}

fn work(shared: &Shared) {
    let mut jobs = lock(&shared.jobs);
    loop {
        if jobs.stop {
            return;
        }
        let Some(mut batch) = jobs.queue.pop_front() else {
            jobs.idle += 1;
            jobs = shared.available.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            jobs.idle -= 1;
            continue;
        };
        drop(jobs);
        batch.run();
        {
            let mut done = lock(&shared.done);
            done.push_back(batch);
            shared.any_done.store(true, Ordering::Release);
        }
        shared.waker.nudge();
        jobs = lock(&shared.jobs);
    }
}

/// Nothing under these locks can panic half way, so a poisoned one is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const QUEUE_START: usize = 64;
