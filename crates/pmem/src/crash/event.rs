//! The requests of a program to the machine, in order.

use crate::DurabilityClass;

/// One request to the machine. Offsets are in the medium; threads are numbered as they appear.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A store through the caches, from low addresses to high.
    Store {
        /// Who stored.
        cpu: usize,
        /// Where.
        offset: usize,
        /// What.
        bytes: Vec<u8>,
    },
    /// A store past the caches, unordered until a [`Event::Drain`] of the same CPU.
    Stream {
        /// Who stored.
        cpu: usize,
        /// Where.
        offset: usize,
        /// What.
        bytes: Vec<u8>,
    },
    /// The start of a cache line's way out, over at the next [`Event::Drain`] of the same CPU.
    WriteBack {
        /// Who asked.
        cpu: usize,
        /// Number of the line, counted from the start of the medium.
        line: usize,
    },
    /// A store fence.
    Drain {
        /// Who waited.
        cpu: usize,
    },
    /// A write to the page cache.
    Write {
        /// Where.
        offset: usize,
        /// What.
        bytes: Vec<u8>,
    },
    /// A flush of the page cache began. Flushes may overlap.
    FlushBegun {
        /// Which.
        run: usize,
    },
    /// A flush ended well.
    FlushEnded {
        /// Which.
        run: usize,
    },
}

/// All events of one recorder.
#[derive(Clone, Debug)]
pub struct Log {
    /// Whose rules hold: [`DurabilityClass::Pmem`] or [`DurabilityClass::Storage`].
    pub class: DurabilityClass,
    /// The durable bytes of the medium when recording began.
    pub initial: Vec<u8>,
    /// The events, in order.
    pub events: Vec<Event>,
}
