//! Whose turn it is for a worker: batches of one device, in a lane for each file.
//!
//! ```text
//!   file A   [batch batch batch batch ...]   8 at work       lanes have their turns one after
//!   file B   [batch]                         4 at work       the other; one has a turn only while
//!   file C   []                              1 at work       more workers are free than it has
//! ```
//!
//! So a file that hangs gets half of the workers at most, the next one half of what is left, and
//! so on: however many connections wait for a slow file, there is a worker for another one.
//!
//! Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet
//! Switches" (1998), with workers in the place of buffers.

use std::collections::VecDeque;

/// See the module. `B` is a batch.
#[derive(Debug)]
pub(super) struct Lanes<B> {
    lanes: Vec<Lane<B>>,
    turn: usize,
    at_work: usize,
    workers_max: usize,
}

#[derive(Debug)]
struct Lane<B> {
    file: u64,
    waiting: VecDeque<B>,
    at_work: usize,
}

impl<B> Lane<B> {
    fn is_unused(&self) -> bool {
        self.waiting.is_empty() && self.at_work == 0
    }
}

/// A lane that a batch was taken from, to be given back when the batch is done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct LaneIndex(usize);

impl<B> Lanes<B> {
    pub(super) fn new(workers_max: usize) -> Self {
        Self { lanes: Vec::new(), turn: 0, at_work: 0, workers_max }
    }

    /// Queues a batch that waits for `file`.
    pub(super) fn push(&mut self, file: u64, batch: B) {
        let same = |lane: &Lane<B>| lane.file == file && !lane.is_unused();
        let index = self.lanes.iter().position(same);
        let index = index.or_else(|| self.lanes.iter().position(Lane::is_unused));
        let index = match index {
            Some(index) => index,
            None if self.lanes.len() < LANES_MAX => {
                self.lanes.push(Lane { file, waiting: VecDeque::new(), at_work: 0 });
                self.lanes.len() - 1
            }
            // So many files at once share lanes, and with them the share of a lane.
            None => usize::try_from(file % LANES).expect("a small number"),
        };
        if let Some(lane) = self.lanes.get_mut(index) {
            if lane.is_unused() {
                lane.file = file;
            }
            lane.waiting.push_back(batch);
        }
    }

    /// The batch whose turn it is; `None` while nobody may have one.
    pub(super) fn take(&mut self) -> Option<(LaneIndex, B)> {
        let free = self.workers_max.saturating_sub(self.at_work);
        for step in 0..self.lanes.len() {
            let index = (self.turn + step) % self.lanes.len();
            let Some(lane) = self.lanes.get_mut(index).filter(|lane| lane.at_work < free) else {
                continue;
            };
            if let Some(batch) = lane.waiting.pop_front() {
                lane.at_work += 1;
                self.at_work += 1;
                self.turn = index + 1;
                return Some((LaneIndex(index), batch));
            }
        }
        None
    }

    /// A batch that was taken is done.
    pub(super) fn done(&mut self, LaneIndex(index): LaneIndex) {
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.at_work -= 1;
            self.at_work -= 1;
        }
    }

    /// How many batches have been taken and are not done.
    pub(super) fn at_work(&self) -> usize {
        self.at_work
    }

    /// How many workers there is something to do for, those at work included.
    pub(super) fn wanted(&self) -> usize {
        let free = self.workers_max.saturating_sub(self.at_work);
        let open = self.lanes.iter().filter(|lane| lane.at_work < free);
        self.at_work + open.map(|lane| lane.waiting.len()).sum::<usize>()
    }

    /// Forgets what waits.
    pub(super) fn clear(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.waiting.clear());
    }
}

/// Files with a lane of their own at once.
const LANES_MAX: usize = 64;
const LANES: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes what may be taken; the files it came from.
    fn taken(lanes: &mut Lanes<u64>) -> Vec<u64> {
        std::iter::from_fn(|| lanes.take().map(|(_, file)| file)).collect()
    }

    #[test]
    fn a_file_that_hangs_leaves_workers_to_every_other() {
        let mut lanes = Lanes::new(16);
        let mut shares = Vec::new();
        for file in 1..=5 {
            for _ in 0..100 {
                lanes.push(file, file);
            }
            let share = taken(&mut lanes);
            assert!(share.iter().all(|from| *from == file), "the others have had their share");
            shares.push(share.len());
        }
        assert_eq!(shares, [8, 4, 2, 1, 1]);
        assert_eq!(lanes.wanted(), 16, "what waits wants no worker");
    }

    #[test]
    fn one_worker_is_enough_to_go_on_and_files_have_their_turns() {
        let mut lanes = Lanes::new(1);
        for batch in [1, 1, 1, 2, 3] {
            lanes.push(batch, batch);
        }
        let mut order = Vec::new();
        while let Some((lane, file)) = lanes.take() {
            assert!(lanes.take().is_none());
            lanes.done(lane);
            order.push(file);
        }
        assert_eq!(order, [1, 2, 3, 1, 1]);
    }

    #[test]
    fn lanes_are_used_again_and_bounded() {
        let mut lanes = Lanes::new(4);
        for file in 0..1000 {
            lanes.push(file, file);
            let (lane, batch) = lanes.take().unwrap();
            assert_eq!(batch, file);
            lanes.done(lane);
        }
        assert_eq!(lanes.lanes.len(), 1);
        for file in 0..1000 {
            lanes.push(file, file);
        }
        assert_eq!(lanes.lanes.len(), LANES_MAX);
        let mut count = 0;
        while let Some((lane, _)) = lanes.take() {
            lanes.done(lane);
            count += 1;
        }
        assert_eq!(count, 1000);
    }
}
