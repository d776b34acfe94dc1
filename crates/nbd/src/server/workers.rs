//! Threads of a connection whose device may wait for a disk.
//!
//! The connection's thread takes requests off the wire and queues them; workers carry them out and send the replies
//! themselves, in whatever order they are done. Writes that have to be durable wait in different workers, and so share
//! one flush of the disk.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::input::Input;
use super::patience::Patience;
use super::requests::{Ending, next_request};
use super::wire::Wire;
use crate::protocol::{Command, Output, Request, Session};

/// Serves requests until the connection ends; those that were taken are carried out and answered first.
pub(super) fn transmit(session: &Session, wire: &Wire, input: &mut Input) -> Result<(), Ending> {
    let (queue, mut patience) = (Queue::default(), Patience::new());
    std::thread::scope(|scope| {
        let mut workers = 0;
        let ending = loop {
            match next_request(session, wire, input, &mut patience) {
                Ok(Some((request, data))) => {
                    if queue.push(request, data) && workers < WORKERS_MAX {
                        workers += 1;
                        scope.spawn(|| work(session, wire, &queue));
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

fn work(session: &Session, wire: &Wire, queue: &Queue) {
    let mut output = Output::new();
    while let Some((request, data)) = queue.pop() {
        session.carry_out(&request, &data, &mut output);
        // A client that is gone, or does not read, is told to the thread that receives.
        if wire.send(output.as_bytes()).is_err() {
            wire.cut();
        }
        output.clear();
        queue.done(weight(&request, &data));
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
    waiting: VecDeque<(Request, Vec<u8>)>,
    /// Requests that wait or are being carried out, and the bytes of their writes and of the replies to their reads.
    taken: usize,
    bytes: usize,
    idle: usize,
    is_closed: bool,
}

impl Queue {
    /// Queues a request once there is room for it; says whether no worker is idle.
    fn push(&self, request: Request, data: Vec<u8>) -> bool {
        let weight = weight(&request, &data);
        let mut state = self.lock();
        while state.taken >= REQUESTS_MAX || (state.bytes > 0 && state.bytes + weight > BYTES_MAX) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.taken += 1;
        state.bytes += weight;
        state.waiting.push_back((request, data));
        let needs_worker = state.idle < state.waiting.len();
        self.changed.notify_all();
        needs_worker
    }

    fn pop(&self) -> Option<(Request, Vec<u8>)> {
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

// Bytes that a request holds until its reply is sent.
fn weight(request: &Request, data: &[u8]) -> usize {
    let reply = if request.command == Command::READ { request.len } else { 0 };
    data.len().saturating_add(usize::try_from(reply).unwrap_or(usize::MAX))
}

/// Workers of a connection: as many requests wait for the disk at the same time.
const WORKERS_MAX: usize = 16;
/// Requests of a connection that are taken off the wire before their replies are sent.
const REQUESTS_MAX: usize = 64;
/// Bytes of their writes and replies, or one request of any length.
const BYTES_MAX: usize = 32 << 20;
