//! Threads that carry out batches which may block, so that the engine never blocks.
//!
//! ```text
//!   engine --submit--> [lanes] --> workers of device 1 --\
//!             \------> [lanes] --> workers of device 2 ---+--> [done] --collect--> engine
//!                                                         \-- waker.nudge() --^
//! ```
//!
//! A queue pair has at most one batch here, so the number of queue pairs bounds all queues. Each
//! device has workers of its own, so that a device which hangs takes no worker from another;
//! `lanes` divides the workers of a device among its files. Threads start when there is work for
//! them, up to the configured number for each device. Locks are held for a push or a look over the
//! lanes, one at a time, and never while a medium works.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use pmem::MediumError;

use super::batch::{Batch, Failure, Pace, Pause, Site, commit_together};
use super::done::Done;
use super::lanes::{Job, LaneIndex, Lanes};
use crate::interface::Waker;

/// One engine's workers.
#[derive(Debug)]
pub(super) struct Workers {
    pools: Vec<Pool>,
    max: usize,
    common: Arc<Common>,
    collected: VecDeque<Box<Batch>>,
}

/// The workers of one device.
#[derive(Debug)]
struct Pool {
    device: u64,
    jobs: Arc<Jobs>,
    started: usize,
}

#[derive(Debug)]
struct Jobs {
    state: Mutex<State>,
    available: Condvar,
}

#[derive(Debug)]
struct State {
    lanes: Lanes<Box<Batch>>,
    idle: usize,
}

/// State that all pools share.
#[derive(Debug)]
struct Common {
    done: Done<Box<Batch>>,
    /// The engine is gone.
    stop: AtomicBool,
    #[cfg(test)]
    counts_latecomers: bool,
}

impl Workers {
    /// Workers, at most `max` for each device.
    pub(super) fn new(max: u16, waker: Waker) -> Self {
        let common = Common {
            done: Done::new(waker, QUEUE_START),
            stop: AtomicBool::new(false),
            #[cfg(test)]
            counts_latecomers: super::planted::Planted::CommitsForLatecomers.is_here(),
        };
        Self {
            pools: Vec::new(),
            max: usize::from(max.max(1)),
            common: Arc::new(common),
            collected: VecDeque::with_capacity(QUEUE_START),
        }
    }

    /// Queues a batch. Gives it back if no thread could be started to run it.
    pub(super) fn submit(&mut self, batch: Box<Batch>) -> Result<(), Box<Batch>> {
        let Site { device, file } = batch.site();
        let (max, common) = (self.max, &self.common);
        let Some(pool) = pool_of(&mut self.pools, device, max) else { return Err(batch) };
        let wanted = {
            let mut state = lock(&pool.jobs.state);
            state.lanes.push(file, batch);
            state.lanes.wanted()
        };
        pool.jobs.available.notify_one();
        if pool.started < wanted.min(max) {
            pool.start_one(common);
        }
        if pool.started > 0 {
            return Ok(());
        }
        // No other thread takes the batch: none is running there.
        let mut state = lock(&pool.jobs.state);
        match state.lanes.take() {
            Some((lane, Job::Run(batch, _))) => {
                state.lanes.done(lane);
                Err(batch)
            }
            // Without a worker no batch was laid aside.
            Some((_, Job::Commit(_))) | None => Ok(()),
        }
    }

    /// Whether a batch is done.
    pub(super) fn has_done(&self) -> bool {
        !self.collected.is_empty() || self.common.done.has_any()
    }

    /// Takes one batch that is done. Costs a load while none is.
    pub(super) fn collect(&mut self) -> Option<Box<Batch>> {
        loop {
            if self.collected.is_empty() {
                self.common.done.take(&mut self.collected);
            }
            let batch = self.collected.pop_front()?;
            if batch.goes_on().is_none() {
                return Some(batch);
            }
            // The rest of the batch concerns another device.
            if let Err(mut batch) = self.submit(batch) {
                batch.fail(NO_THREAD);
                return Some(batch);
            }
        }
    }
}

/// The pool of a device; a new one while there are few.
fn pool_of(pools: &mut Vec<Pool>, device: u64, max: usize) -> Option<&mut Pool> {
    let known = pools.iter().position(|pool| pool.device == device);
    let index = match known {
        Some(index) => index,
        None if pools.len() < DEVICES_MAX => {
            let state = State { lanes: Lanes::new(max), idle: 0 };
            let jobs = Jobs { state: Mutex::new(state), available: Condvar::new() };
            pools.push(Pool { device, jobs: Arc::new(jobs), started: 0 });
            pools.len() - 1
        }
        // Beyond so many devices, devices share workers.
        None => usize::try_from(device % DEVICES).expect("a small number"),
    };
    pools.get_mut(index)
}

impl Pool {
    fn start_one(&mut self, common: &Arc<Common>) {
        let (jobs, common) = (Arc::clone(&self.jobs), Arc::clone(common));
        let name = "rdma-worker".to_owned();
        if thread::Builder::new().name(name).spawn(move || work(&jobs, &common)).is_ok() {
            self.started += 1;
        }
    }
}

impl Drop for Workers {
    /// Tells the threads to begin nothing more, and does not wait for them: a medium that hangs
    /// must not block the thread that drops the engine.
    fn drop(&mut self) {
        self.common.stop.store(true, Ordering::Release);
        for pool in &self.pools {
            lock(&pool.jobs.state).lanes.clear();
            pool.jobs.available.notify_all();
        }
    }
}

fn work(jobs: &Jobs, common: &Common) {
    let mut state = lock(&jobs.state);
    while !common.stop.load(Ordering::Acquire) {
        let Some((lane, job)) = state.lanes.take() else {
            state.idle += 1;
            state = jobs.available.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            continue;
        };
        let is_more = state.idle > 0 && state.lanes.wanted() > state.lanes.at_work();
        drop(state);
        if is_more {
            // A finished batch may let more than one other begin.
            jobs.available.notify_one();
        }
        state = match job {
            Job::Run(batch, pace) => run(batch, pace, jobs, common),
            Job::Commit(group) => commit(group, lane, jobs, common),
        };
        state.lanes.done(lane);
    }
}

/// Carries out a batch up to the commit it needs, or to the end of its turn.
fn run<'a>(
    mut batch: Box<Batch>,
    pace: Pace,
    jobs: &'a Jobs,
    common: &Common,
) -> MutexGuard<'a, State> {
    match batch.run(&common.stop, pace) {
        Pause::Over => {
            common.done.push([batch]);
            lock(&jobs.state)
        }
        Pause::Commit(site) => {
            let mut state = lock(&jobs.state);
            state.lanes.lay_aside(site, batch);
            state
        }
        Pause::Turn(site) => {
            let mut state = lock(&jobs.state);
            state.lanes.push_long(site.file, batch);
            state
        }
    }
}

/// Commits a file for all batches that were laid aside for it before. This worker continues none of
/// the batches: the others would wait for it.
#[expect(clippy::vec_box, reason = "a batch moves from queue to queue, and is large")]
fn commit<'a>(
    mut group: Vec<Box<Batch>>,
    lane: LaneIndex,
    jobs: &'a Jobs,
    common: &Common,
) -> MutexGuard<'a, State> {
    let outcome = commit_together(group.iter_mut().map(|batch| &mut **batch), &common.stop);
    #[cfg(test)]
    if common.counts_latecomers {
        lock(&jobs.state).lanes.latecomers(lane, &mut group);
    }
    group.iter_mut().for_each(|batch| batch.committed(outcome));
    let unfinished: Vec<_> = group.extract_if(.., |batch| !batch.ends(&common.stop)).collect();
    common.done.push(group.drain(..));
    let mut state = lock(&jobs.state);
    state.lanes.committed(lane, group);
    for batch in unfinished {
        state.lanes.push(batch.site().file, batch);
    }
    state
}

/// No code under these locks can panic half way, so the state behind a poisoned lock is sound.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const QUEUE_START: usize = 64;
/// Devices with workers of their own: the file systems that a server exports are few.
const DEVICES_MAX: usize = 16;
const DEVICES: u64 = 16;
/// EAGAIN of thread creation.
const NO_THREAD: Failure = Failure::Medium(MediumError::MediaIo(11));
