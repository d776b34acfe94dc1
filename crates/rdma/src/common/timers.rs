//! Deadlines of an engine in a heap, which is looked at only when a deadline can be due.
//!
//! A deadline that is no longer wanted stays in the heap until its time, and then finds nothing to
//! do. Each connection has a few deadlines at most, and the engine removes those of ended
//! connections as they become many, so the connections bound the heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use basics::{Clock, Key};

/// See the module.
#[derive(Debug)]
pub(crate) struct Timers {
    clock: Clock,
    heap: BinaryHeap<Reverse<(Instant, Due)>>,
}

/// A wait that no process outlives: the clock can count so far.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A deadline that has come, by what it is for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Due {
    /// An incoming handshake has to be over.
    Request { index: u32, generation: u32 },
    /// An outgoing handshake has to be over.
    Dial { index: u32, generation: u32 },
    /// A queue pair that has received nothing yet may have to wake its peer.
    Kick { index: u32, generation: u32 },
    /// A peer that takes nothing may have been silent for too long.
    Stall { index: u32, generation: u32 },
    /// A listener is looked at again.
    Accept { index: u32 },
    /// A connection that is closing gracefully has to be closed.
    Linger { index: u32, generation: u32 },
}

impl Due {
    pub(crate) fn request(Key { index, generation }: Key) -> Self {
        Self::Request { index, generation }
    }

    pub(crate) fn dial(Key { index, generation }: Key) -> Self {
        Self::Dial { index, generation }
    }

    pub(crate) fn kick(Key { index, generation }: Key) -> Self {
        Self::Kick { index, generation }
    }

    pub(crate) fn stall(Key { index, generation }: Key) -> Self {
        Self::Stall { index, generation }
    }

    pub(crate) fn linger(Key { index, generation }: Key) -> Self {
        Self::Linger { index, generation }
    }
}

impl Timers {
    /// No deadlines yet, and the clock that they will be measured by.
    pub(crate) const fn new(clock: Clock) -> Self {
        Self { clock, heap: BinaryHeap::new() }
    }

    /// What time it is for the engine.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Removes all deadlines but those for which `is_meant` holds.
    pub(crate) fn retain(&mut self, is_meant: impl Fn(Due) -> bool) {
        self.heap.retain(|Reverse((_, due))| is_meant(*due));
    }

    /// A deadline `wait` from now; returns when that is.
    pub(crate) fn after(&mut self, wait: Duration, due: Due) -> Instant {
        let when = self.now() + wait.min(LONGEST);
        self.at(when, due);
        when
    }

    pub(crate) fn at(&mut self, when: Instant, due: Due) {
        self.heap.push(Reverse((when, due)));
    }

    /// The next deadline that is due at `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Due> {
        let Reverse((when, due)) = *self.heap.peek()?;
        if when > now {
            return None;
        }
        self.heap.pop();
        Some(due)
    }

    /// How long to sleep: until the next deadline, and no longer than `left`.
    pub(crate) fn within(&self, left: Option<Duration>) -> Option<Duration> {
        let now = self.now();
        let next = self.heap.peek().map(|Reverse((when, _))| when.saturating_duration_since(now));
        match (left, next) {
            (Some(left), Some(next)) => Some(left.min(next)),
            (left, next) => left.or(next),
        }
    }
}
