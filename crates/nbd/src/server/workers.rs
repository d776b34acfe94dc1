//! Threads of a connection whose device may wait for a disk.
//!
//! The connection's thread takes requests off the wire and queues them; workers carry them out and send the replies
//! themselves, in whatever order they are done. Writes that have to be durable wait in different workers, and so share
//! one flush of the disk.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::input::Input;
use super::memory::{Memory, SHORT_MAX};
use super::patience::Patience;
use super::requests::{Ending, Whole, held, next_request};
use super::wire::Wire;
use crate::protocol::{Output, Session};

/// Serves requests until the connection ends; those that were taken are carried out and answered first.
pub(super) fn transmit(
    session: &Session,
    (wire, memory): (&Arc<Wire>, &Arc<Memory>),
    input: &mut Input,
) -> Result<(), Ending> {
    let (queue, mut patience) = (Queue::default(), Patience::new());
    std::thread::scope(|scope| {
        let mut workers = 0;
        let ending = loop {
            match next_request(session, (wire, memory), input, &mut patience) {
                Ok(Some(whole)) => {
                    if queue.push(whole) && workers < WORKERS_MAX {
                        workers += 1;
                        scope.spawn(|| work(session, (wire, memory), &queue));
                    }
                }
                Ok(None) => break Ok(()),
                Err(ending) => break Err(ending),
            }
        };
        queue.close();
        ending
    })
}

fn work(session: &Session, (wire, memory): (&Wire, &Arc<Memory>), queue: &Queue) {
    let mut output = Output::new();
    let mut keeping = None;
    while let Some(Whole { request, data, grant }) = queue.pop() {
        let working = wire.work();
        session.carry_out(&request, &data, &mut output);
        drop(working);
        let is_long = output.len() > SHORT_MAX;
        // A client that is gone, or does not read, is told to the thread that receives.
        if wire.send(output.as_bytes()).is_err() {
            wire.cut();
        }
        output.clear();
        if is_long && keeping.is_none() {
            keeping = memory.keep();
            if keeping.is_none() {
                output = Output::new();
            }
        }
        drop((data, grant));
        queue.done(held(&request));
    }
}

/// Requests that wait for a worker.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Whole>,
    /// Requests that wait or are being carried out, and the bytes of their writes and of the replies to their reads.
    taken: usize,
    bytes: usize,
    idle: usize,
    is_closed: bool,
}

impl Queue {
    /// Queues a request once there is room for it; says whether no worker is idle.
    fn push(&self, whole: Whole) -> bool {
        let weight = held(&whole.request);
        let mut state = self.lock();
        while state.taken >= REQUESTS_MAX || (state.bytes > 0 && state.bytes + weight > BYTES_MAX) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.taken += 1;
        state.bytes += weight;
        state.waiting.push_back(whole);
        let needs_worker = state.idle < state.waiting.len();
        self.changed.notify_all();
        needs_worker
    }

    fn pop(&self) -> Option<Whole> {
        let mut state = self.lock();
        loop {
            if let Some(next) = state.waiting.pop_front() {
                return Some(next);
            }
            if state.is_closed {
                return None;
            }
            state.idle += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    fn done(&self, len: usize) {
        let mut state = self.lock();
        state.taken -= 1;
        state.bytes -= len;
        self.changed.notify_all();
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Workers of a connection: as many requests wait for the disk at the same time.
const WORKERS_MAX: usize = 16;
/// Requests of a connection that are taken off the wire before their replies are sent.
const REQUESTS_MAX: usize = 64;
/// Bytes of their writes and replies, or one request of any length.
const BYTES_MAX: usize = 32 << 20;
