//! The order of records as one member has it: how far it is assigned, placed, durable, and which records the ring keeps.

use std::collections::VecDeque;

use log::Lsn;

use crate::format::{Extent, Kind, Record};

/// A record that the ring keeps, as far as decisions need it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Its address.
    pub lsn: Lsn,
    /// The address of the next one.
    pub end: Lsn,
    /// Checksum of its header, which the next one names.
    pub sum: u32,
    /// What it does.
    pub kind: Kind,
    /// What it changes.
    pub extent: Option<Extent>,
    /// When its source made it, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Everything below this was committed then.
    pub committed: Lsn,
}

impl Entry {
    /// The entry of a record whose header has the checksum `sum`.
    pub fn of(record: &Record, sum: u32) -> Self {
        Self {
            lsn: record.lsn,
            end: record.end(),
            sum,
            kind: record.kind,
            extent: record.changes(),
            time_ns: record.time_ns,
            committed: record.committed,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Order {
    capacity: u64,
    entries: VecDeque<Entry>,
    start: Lsn,
    start_chain: u32,
    /// Everything below is in the ring's memory.
    placed: Lsn,
    /// Records above `placed` that are placed.
    placed_apart: Vec<Lsn>,
    /// Everything below is durable.
    durable: Lsn,
}

impl Order {
    /// What a scan found; all of it is durable.
    pub(super) fn new(capacity: u64, start: Lsn, start_chain: u32, entries: Vec<Entry>) -> Self {
        let end = entries.last().map_or(start, |entry| entry.end);
        Self {
            capacity,
            entries: entries.into(),
            start,
            start_chain,
            placed: end,
            placed_apart: Vec::new(),
            durable: end,
        }
    }

    pub(super) fn start(&self) -> Lsn {
        self.start
    }

    /// Where the next record goes.
    pub(super) fn end(&self) -> Lsn {
        self.entries.back().map_or(self.start, |entry| entry.end)
    }

    /// What the next record names as the checksum before it.
    pub(super) fn chain(&self) -> u32 {
        self.entries.back().map_or(self.start_chain, |entry| entry.sum)
    }

    pub(super) fn placed(&self) -> Lsn {
        self.placed
    }

    pub(super) fn durable(&self) -> Lsn {
        self.durable
    }

    pub(super) fn used(&self) -> u64 {
        self.end().since(self.start)
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes to the end of the ring from where the next record goes.
    pub(super) fn until_wrap(&self) -> u64 {
        self.capacity - self.end().0 % self.capacity
    }

    /// Whether `len` more bytes fit.
    pub(super) fn has_room(&self, len: u64) -> bool {
        self.used() + len <= self.capacity
    }

    /// Adds a record at the end; it is not placed yet.
    pub(super) fn push(&mut self, entry: Entry) {
        debug_assert_eq!(entry.lsn, self.end(), "records follow each other");
        self.entries.push_back(entry);
    }

    /// The record at `lsn` is placed.
    pub(super) fn is_placed(&mut self, lsn: Lsn) {
        if lsn > self.placed {
            self.placed_apart.push(lsn);
        }
        if lsn != self.placed {
            return;
        }
        let mut at = self.position(lsn);
        while let Some(entry) = self.entries.get(at) {
            self.placed = entry.end;
            at += 1;
            if !take(&mut self.placed_apart, self.placed) {
                break;
            }
        }
    }

    /// Everything below `to` is placed.
    pub(super) fn is_placed_to(&mut self, to: Lsn) {
        self.placed = self.placed.max(to);
    }

    /// Everything below `to` is durable. Whether that is new.
    pub(super) fn is_durable(&mut self, to: Lsn) -> bool {
        let to = to.min(self.placed);
        let is_new = to > self.durable;
        self.durable = self.durable.max(to);
        is_new
    }

    /// The entry that begins at `lsn` or behind it: its position.
    fn position(&self, lsn: Lsn) -> usize {
        self.entries.partition_point(|entry| entry.lsn < lsn)
    }

    /// The end of the last record that ends at `lsn` at most.
    pub(super) fn floor(&self, lsn: Lsn) -> Lsn {
        let ended = self.entries.partition_point(|entry| entry.end <= lsn);
        ended.checked_sub(1).map_or_else(|| self.start.min(lsn), |last| self.entries[last].end)
    }

    /// The records from `from` up to `to`.
    pub(super) fn range(&self, from: Lsn, to: Lsn) -> impl Iterator<Item = &Entry> {
        let (from, to) = (self.position(from), self.position(to));
        self.entries.range(from..to.max(from))
    }

    /// The end of the last record that ends at `limit` at most, from `from`, but at least of one record.
    pub(super) fn piece(&self, from: Lsn, limit: Lsn) -> Lsn {
        let at = self.position(from);
        let mut to = from;
        for entry in self.entries.range(at..) {
            if entry.end > limit && to > from || entry.end > self.placed {
                break;
            }
            to = entry.end;
        }
        to
    }

    /// What a record at `lsn` names as the checksum before it, if a record ends there or the ring begins there.
    pub(super) fn chain_at(&self, lsn: Lsn) -> Option<u32> {
        if lsn == self.start {
            return Some(self.start_chain);
        }
        let before = self.entries.get(self.position(lsn).checked_sub(1)?)?;
        (before.end == lsn).then_some(before.sum)
    }

    /// Forgets records below `start`, which is where a record begins.
    pub(super) fn free(&mut self, start: Lsn) {
        while let Some(first) = self.entries.front() {
            if first.end > start {
                break;
            }
            self.start_chain = first.sum;
            self.start = first.end;
            self.entries.pop_front();
        }
    }

    /// Forgets records from `end` on.
    pub(super) fn cut(&mut self, end: Lsn) {
        while self.entries.back().is_some_and(|last| last.lsn >= end) {
            self.entries.pop_back();
        }
        let end = self.end();
        self.placed = self.placed.min(end);
        self.durable = self.durable.min(end);
        self.placed_apart.retain(|lsn| *lsn < end);
    }

    /// Forgets everything: the order goes on at `start`.
    pub(super) fn reset(&mut self, start: Lsn, chain: u32) {
        self.entries.clear();
        self.placed_apart.clear();
        (self.start, self.start_chain, self.placed, self.durable) = (start, chain, start, start);
    }

    /// The last record that is not younger than `time_ns`, looked for from the oldest: where a copy of that age ends.
    pub(super) fn until_time(&self, time_ns: u64, limit: Lsn) -> Lsn {
        let mut to = self.start;
        for entry in &self.entries {
            if entry.time_ns > time_ns || entry.end > limit {
                break;
            }
            to = entry.end;
        }
        to
    }

    /// When the newest record was made.
    pub(super) fn newest_time(&self) -> Option<u64> {
        self.entries.back().map(|entry| entry.time_ns)
    }

    /// When the oldest record at or above `lsn` was made.
    pub(super) fn time_of(&self, lsn: Lsn) -> Option<u64> {
        self.entries.get(self.position(lsn)).map(|entry| entry.time_ns)
    }

    /// The highest `committed` that a durable record names.
    pub(super) fn named_committed(&self) -> Lsn {
        let durable = self.entries.partition_point(|entry| entry.end <= self.durable);
        durable.checked_sub(1).map_or(Lsn(0), |last| self.entries[last].committed)
    }
}

fn take(set: &mut Vec<Lsn>, lsn: Lsn) -> bool {
    match set.iter().position(|it| *it == lsn) {
        Some(at) => {
            set.swap_remove(at);
            true
        }
        None => false,
    }
}
