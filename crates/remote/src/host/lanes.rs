//! The queues to several engine threads, and the choice of the thread that serves the next
//! connection.
//!
//! ```text
//!   peers --> thread 0: listens, gets the request --the thread with the fewest--> thread n: answers
//!   control side --by the connection's name--> thread n
//! ```
//! Threads whose engines carry connections in another way (over a network, through shared memory) listen for
//! themselves, and give each other no connection.
//!
//! A connection stays with its thread for good, and its name identifies the thread: number `c` is
//! served by thread `c % n`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rdma::Waker;
use tokio::sync::mpsc;

use super::command::Command;
use super::handle::PushConnection;

/// See the module. There is at least one lane.
#[derive(Clone, Debug)]
pub(super) struct Lanes(Arc<[Lane]>);

/// The queue to one thread.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) waker: Waker,
    pub(super) carrier: Carrier,
    /// Connections that the thread has, or was given a moment ago.
    load: AtomicUsize,
}

/// What carries the connections of an engine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Carrier {
    /// The provider of the server.
    Provider,
    /// Shared memory, where the provider is another.
    SameHost,
}

impl Lane {
    pub(super) fn new(commands: mpsc::Sender<Command>, waker: Waker, carrier: Carrier) -> Self {
        Self { commands, waker, carrier, load: AtomicUsize::new(0) }
    }
}

impl Lanes {
    pub(super) fn new(lanes: Vec<Lane>) -> Self {
        Self(lanes.into())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, index: usize) -> &Lane {
        &self.0[index]
    }

    /// The queue to the thread that serves a push connection.
    pub(super) fn of(&self, PushConnection(number): PushConnection) -> &Lane {
        let count = u64::try_from(self.0.len()).expect("few threads");
        self.get(usize::try_from(number % count).expect("few threads"))
    }

    /// The thread with the fewest connections among those that can take one over from thread `index`; the
    /// first of several.
    pub(super) fn least(&self, index: usize) -> usize {
        let carrier = self.get(index).carrier;
        let load = |index: &usize| self.get(*index).load.load(Ordering::Relaxed);
        let able = (0..self.len()).filter(|other| self.get(*other).carrier == carrier);
        able.min_by_key(load).unwrap_or(index)
    }

    /// Counts a connection that a thread is given.
    pub(super) fn gains(&self, index: usize) {
        self.get(index).load.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts down a connection that a thread has lost or refused.
    pub(super) fn loses(&self, index: usize) {
        self.get(index).load.fetch_sub(1, Ordering::Relaxed);
    }
}
