//! Plays a log up to any point and tells the certain writes from those that a crash may lose.
//!
//! ```text
//!   base image   | pending writes, oldest first
//!   (certain)    | certain ... certain | may be lost | certain | may be lost ...
//!                  \___ join the base ___/
//! ```
//!
//! A certain write joins the base only after every older write has joined: where two writes
//! overlap the younger one wins, so the writes are applied in the order they were made.

use std::collections::VecDeque;

use super::point::{CrashPoint, Group};
use super::{Event, Log};
use crate::arch::CACHE_LINE;

/// A log being played, and the state of the machine at the point reached.
#[derive(Debug)]
pub struct Replay<'l> {
    log: &'l Log,
    at: usize,
    base: Vec<u8>,
    pending: VecDeque<Pending>,
    /// Write-backs that no fence has followed: the CPU, the line and the event of each.
    write_backs: Vec<(usize, usize, usize)>,
    /// Flushes that have begun: the number and the event of each.
    flushes: Vec<(usize, usize)>,
}

impl<'l> Replay<'l> {
    /// Before the first event.
    pub fn new(log: &'l Log) -> Self {
        let (base, pending) = (log.initial.clone(), VecDeque::new());
        Self { log, at: 0, base, pending, write_backs: Vec::new(), flushes: Vec::new() }
    }

    /// Plays one more event; false at the end of the log.
    pub fn step(&mut self) -> bool {
        let log = self.log;
        let Some(event) = log.events.get(self.at) else { return false };
        match event {
            Event::Store { offset, bytes, .. } => self.add_words(*offset, bytes, None),
            Event::Stream { cpu, offset, bytes } => self.add_words(*offset, bytes, Some(*cpu)),
            Event::Write { offset, bytes } => self.add_sectors(*offset, bytes),
            Event::WriteBack { cpu, line } => self.write_backs.push((*cpu, *line, self.at)),
            Event::Drain { cpu } => self.drain(*cpu),
            Event::FlushBegun { run } => self.flushes.push((*run, self.at)),
            Event::FlushEnded { run } => self.flush_ended(*run),
        }
        self.settle();
        self.at += 1;
        true
    }

    /// The images that a crash at this point may leave.
    pub fn point(&self) -> CrashPoint<'_> {
        let mut point = CrashPoint::new(self.at, &self.base);
        for write in &self.pending {
            let group = if write.is_certain { None } else { Some(write.group) };
            point.push(group, write.offset, &write.bytes);
        }
        point
    }

    fn add_words(&mut self, offset: usize, bytes: &[u8], streamed_by: Option<usize>) {
        let head = (offset.wrapping_neg() & 7).min(bytes.len());
        let (head, rest) = bytes.split_at(head);
        let (words, tail) = rest.split_at(rest.len() & !7);
        // A word that is not covered whole is stored byte by byte and may tear between them.
        let pieces = head.chunks(1).chain(words.chunks(8)).chain(tail.chunks(1));
        let mut offset = offset;
        for piece in pieces {
            let group = match streamed_by {
                Some(cpu) => Group::Streamed { cpu, word: offset / 8, event: self.at },
                None => Group::Line(offset / CACHE_LINE),
            };
            self.add(offset, piece, group);
            offset += piece.len();
        }
    }

    fn add_sectors(&mut self, mut offset: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = SECTOR - offset % SECTOR;
            let (piece, rest) = bytes.split_at(room.min(bytes.len()));
            self.add(offset, piece, Group::Sector(offset / SECTOR));
            (offset, bytes) = (offset + piece.len(), rest);
        }
    }

    fn add(&mut self, offset: usize, bytes: &[u8], group: Group) {
        let (bytes, made_at) = (bytes.to_vec(), self.at);
        self.pending.push_back(Pending { offset, bytes, group, made_at, is_certain: false });
    }

    fn drain(&mut self, cpu: usize) {
        let (fenced, open) = self.write_backs.drain(..).partition(|(by, ..)| *by == cpu);
        self.write_backs = open;
        let fenced: Vec<(usize, usize, usize)> = fenced;
        for write in &mut self.pending {
            write.is_certain |= match write.group {
                Group::Streamed { cpu: by, .. } => by == cpu,
                Group::Line(line) => {
                    fenced.iter().any(|(_, of, at)| *of == line && write.made_at < *at)
                }
                Group::Sector(_) => false,
            };
        }
    }

    fn flush_ended(&mut self, run: usize) {
        let Some(position) = self.flushes.iter().position(|(of, _)| *of == run) else { return };
        let (_, begun_at) = self.flushes.swap_remove(position);
        for write in &mut self.pending {
            write.is_certain |= write.made_at < begun_at;
        }
    }

    fn settle(&mut self) {
        while self.pending.front().is_some_and(|write| write.is_certain) {
            let Some(write) = self.pending.pop_front() else { return };
            self.base[write.offset..write.offset + write.bytes.len()].copy_from_slice(&write.bytes);
        }
    }
}

/// A write that is not in the base yet.
#[derive(Debug)]
struct Pending {
    offset: usize,
    bytes: Vec<u8>,
    group: Group,
    made_at: usize,
    is_certain: bool,
}

/// Bytes that a disk writes as a whole.
const SECTOR: usize = 512;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::DurabilityClass;

    /// Every image a crash after the last event may leave, seen at `offsets`.
    fn images(events: Vec<Event>, offsets: &[usize]) -> BTreeSet<Vec<u8>> {
        let class = DurabilityClass::Pmem;
        let log = Log { class, initial: vec![0; 2048], events };
        let mut replay = Replay::new(&log);
        while replay.step() {}
        let look = |image: Vec<u8>| offsets.iter().map(|at| image[*at]).collect();
        replay.point().states().expect("few").map(look).collect()
    }

    fn store(offset: usize, value: u8) -> Event {
        Event::Store { cpu: 0, offset, bytes: vec![value; 8] }
    }

    fn set<const N: usize>(images: [&[u8]; N]) -> BTreeSet<Vec<u8>> {
        images.map(<[u8]>::to_vec).into()
    }

    #[test]
    fn stores_to_one_line_become_durable_in_order() {
        let events = vec![store(0, 1), store(8, 2)];
        assert_eq!(images(events, &[0, 8]), set([&[0, 0], &[1, 0], &[1, 2]]));
    }

    #[test]
    fn stores_to_two_lines_become_durable_in_any_order() {
        let events = vec![store(0, 1), store(64, 2)];
        assert_eq!(images(events, &[0, 64]), set([&[0, 0], &[1, 0], &[0, 2], &[1, 2]]));
    }

    #[test]
    fn a_store_is_certain_after_its_write_back_and_fence_and_not_before() {
        let (flush, fence) = (Event::WriteBack { cpu: 0, line: 0 }, Event::Drain { cpu: 0 });
        let maybe = set([&[0], &[1]]);
        assert_eq!(images(vec![store(0, 1), flush.clone()], &[0]), maybe);
        assert_eq!(images(vec![store(0, 1), fence.clone()], &[0]), maybe);
        assert_eq!(images(vec![flush.clone(), store(0, 1), fence.clone()], &[0]), maybe);
        assert_eq!(images(vec![store(0, 1), flush, fence], &[0]), set([&[1]]));
    }

    #[test]
    fn a_write_back_does_not_cover_a_later_store() {
        let (flush, fence) = (Event::WriteBack { cpu: 0, line: 0 }, Event::Drain { cpu: 0 });
        let events = vec![store(0, 1), flush, store(0, 2), fence];
        assert_eq!(images(events, &[0]), set([&[1], &[2]]));
    }

    #[test]
    fn a_fence_of_another_cpu_orders_nothing() {
        let stream = Event::Stream { cpu: 0, offset: 0, bytes: vec![7; 8] };
        let flush = Event::WriteBack { cpu: 0, line: 1 };
        let events = vec![stream, store(64, 7), flush, Event::Drain { cpu: 1 }];
        assert_eq!(images(events, &[0, 64]), set([&[0, 0], &[7, 0], &[0, 7], &[7, 7]]));
    }

    #[test]
    fn streamed_words_become_durable_each_for_itself() {
        let stream = Event::Stream { cpu: 0, offset: 0, bytes: vec![7; 16] };
        let expected = set([&[0, 0], &[7, 0], &[0, 7], &[7, 7]]);
        assert_eq!(images(vec![stream.clone()], &[0, 8]), expected);
        assert_eq!(images(vec![stream, Event::Drain { cpu: 0 }], &[0, 8]), set([&[7, 7]]));
    }

    #[test]
    fn a_word_stored_whole_never_tears_and_a_partial_word_may() {
        assert_eq!(images(vec![store(8, 9)], &[8, 15]), set([&[0, 0], &[9, 9]]));
        let part = Event::Store { cpu: 0, offset: 9, bytes: vec![9; 2] };
        assert_eq!(images(vec![part], &[9, 10]), set([&[0, 0], &[9, 0], &[9, 9]]));
    }

    #[test]
    fn a_certain_write_wins_over_an_older_uncertain_one() {
        let older = Event::Stream { cpu: 1, offset: 0, bytes: vec![1; 8] };
        let newer = Event::Stream { cpu: 0, offset: 0, bytes: vec![2; 8] };
        assert_eq!(images(vec![older, newer, Event::Drain { cpu: 0 }], &[0]), set([&[2]]));
    }

    #[test]
    fn a_sector_holds_any_version_since_its_last_flush() {
        let write = |value| Event::Write { offset: 0, bytes: vec![value; 1024] };
        let (begun, ended) = (Event::FlushBegun { run: 0 }, Event::FlushEnded { run: 0 });
        let events = vec![write(1), begun, ended, write(2), write(3)];
        let mut expected = BTreeSet::new();
        for (first, second) in (1..=3).flat_map(|a| (1..=3).map(move |b| (a, b))) {
            expected.insert(vec![first, first, second]);
        }
        assert_eq!(images(events, &[0, 511, 512]), expected);
    }

    #[test]
    fn a_flush_covers_what_was_written_before_it_began() {
        let write = |value| Event::Write { offset: 0, bytes: vec![value; 8] };
        let (begun, ended) = (Event::FlushBegun { run: 0 }, Event::FlushEnded { run: 0 });
        assert_eq!(images(vec![write(1), begun.clone()], &[0]), set([&[0], &[1]]));
        let events = vec![write(1), begun, write(2), ended];
        assert_eq!(images(events, &[0]), set([&[1], &[2]]));
    }
}
