//! The writers of a source: each has its place in the order, waits until that is committed, and writes to the volume.
//!
//! ```text
//!   enter -> submit -> place in the ring -> Placed -> parked until committed -> volume -> Applied -> leave
//!              |                                          |
//!              +- no room, or too few in sync: parked     +- the member is no source any more: fails
//! ```

use std::collections::VecDeque;
use std::thread::{self, Thread};

use log::Lsn;

/// Who is under way.
#[derive(Debug, Default)]
pub(super) struct Writers {
    /// How often the member has been the source since it was started.
    pub(super) tenures: u64,
    /// Writers that have a place in the order and are not done.
    pub(super) inside: u64,
    /// How many want no more writers to come for a moment.
    pub(super) held: u32,
    /// It is to be told when nobody is inside.
    is_stopping: bool,
    /// Those whose record is placed, by the end of the record.
    placed: VecDeque<(Lsn, Thread)>,
    /// Those that have no place yet.
    waiting: Vec<Thread>,
}

impl Writers {
    /// Notes the calling thread, which parks until its record is committed.
    pub(super) fn park_until(&mut self, end: Lsn) {
        let at = self.placed.partition_point(|(of, _)| *of < end);
        self.placed.insert(at, (end, thread::current()));
    }

    /// Notes the calling thread, which parks until it may have a place.
    pub(super) fn park(&mut self) {
        let me = thread::current();
        if !self.waiting.iter().any(|other| other.id() == me.id()) {
            self.waiting.push(me);
        }
    }

    pub(super) fn wake_committed(&mut self, to: Lsn) {
        while self.placed.front().is_some_and(|(end, _)| *end <= to) {
            if let Some((_, thread)) = self.placed.pop_front() {
                thread.unpark();
            }
        }
    }

    pub(super) fn wake_waiting(&mut self) {
        self.waiting.drain(..).for_each(|thread| thread.unpark());
    }

    /// No more writers come; those inside that are not committed fail.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
        self.placed.drain(..).for_each(|(_, thread)| thread.unpark());
        self.wake_waiting();
    }

    /// Whether it is to be told now that nobody is inside. True once for each [`Writers::stop`].
    pub(super) fn has_stopped(&mut self) -> bool {
        self.inside == 0 && std::mem::take(&mut self.is_stopping)
    }
}
