//! Whose turn it is for a worker: batches of one device, in a lane for each file.
//!
//! ```text
//!   file A   [batch batch batch batch ...]   8 at work       lanes have their turns one after
//!   file B   [batch]                         4 at work       the other; one has a turn only while
//!   file C   []                              1 at work       more workers are free than it has
//!
//!   laid aside for a commit   [batch batch batch ...]   one worker commits for all of one file
//! ```
//!
//! A batch that waits for a commit waits without a worker. The commit begins when all that waited
//! for a worker as the first was laid aside have had one: they have their part in it. While it runs
//! others are laid aside for the next, which alone counts for them: it begins after they came.
//!
//! So a file that hangs gets half of the workers at most, the next one half of what is left, and
//! so on: however many connections wait for a slow file, there is a worker for another one.
//!
//! A batch with long work, verifies above all, has it done in pieces, a turn each, and waits for a turn
//! in a queue of its own. Half of the workers at most do long work: the others are there for
//! placements and commits, whoever has how many files verified. Long work waits for the other work of its
//! lane, but for [`PASSED_MAX`] jobs of it at most: then its turn is the lane's next one.
//!
//! Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet
//! Switches" (1998), with workers in the place of buffers.

use std::collections::VecDeque;
use std::mem;

use super::batch::{Pace, Site};

/// See the module. `B` is a batch.
#[derive(Debug)]
pub(super) struct Lanes<B> {
    lanes: Vec<Lane<B>>,
    turn: usize,
    at_work: usize,
    long_at_work: usize,
    workers_max: usize,
}

#[derive(Debug)]
struct Lane<B> {
    file: u64,
    waiting: VecDeque<B>,
    /// Wait for a turn of long work.
    long: VecDeque<B>,
    at_work: usize,
    /// Wait for a commit of the file that is named.
    aside: VecDeque<(Site, B)>,
    is_committing: bool,
    /// Memory for those of the next commit.
    spare: Vec<B>,
    /// How many of those waiting still have their part in the next commit.
    ahead: usize,
    /// Other jobs that were taken while long work waited, since its last turn.
    passed: usize,
}

/// What there is to do for a worker.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Job<B> {
    /// A batch is to be carried out.
    Run(B, Pace),
    /// A file is to be committed for all these, which are one at least.
    Commit(Vec<B>),
}

impl<B> Lane<B> {
    fn is_unused(&self) -> bool {
        self.waiting.is_empty()
            && self.long.is_empty()
            && self.at_work == 0
            && self.aside.is_empty()
    }

    fn new(file: u64) -> Self {
        Self {
            file,
            waiting: VecDeque::new(),
            long: VecDeque::new(),
            at_work: 0,
            aside: VecDeque::new(),
            is_committing: false,
            spare: Vec::new(),
            ahead: 0,
            passed: 0,
        }
    }

    /// Long work has waited for as many other jobs as it has to.
    fn is_long_due(&self) -> bool {
        self.passed >= PASSED_MAX && !self.long.is_empty()
    }

    fn is_commit_due(&self) -> bool {
        !self.aside.is_empty()
            && !self.is_committing
            && (self.ahead == 0 || self.waiting.is_empty())
    }

    fn jobs(&self) -> usize {
        let commits = usize::from(!self.aside.is_empty() && !self.is_committing);
        self.waiting.len() + commits
    }

    fn take(&mut self, may_be_long: bool) -> Option<Job<B>> {
        if may_be_long && self.is_long_due() {
            return self.take_long();
        }
        let job = self.take_short();
        if job.is_some() {
            self.passed = if self.long.is_empty() { 0 } else { self.passed.saturating_add(1) };
        }
        job.or_else(|| if may_be_long { self.take_long() } else { None })
    }

    fn take_long(&mut self) -> Option<Job<B>> {
        self.passed = 0;
        self.long.pop_front().map(|batch| Job::Run(batch, Pace::Long))
    }

    fn take_short(&mut self) -> Option<Job<B>> {
        if self.is_commit_due()
            && let Some((site, _)) = self.aside.front()
        {
            let site = *site;
            let mut group = mem::take(&mut self.spare);
            for _ in 0..self.aside.len() {
                let Some((of, batch)) = self.aside.pop_front() else { break };
                // Of another file that shares the lane a commit says nothing.
                if of == site {
                    group.push(batch);
                } else {
                    self.aside.push_back((of, batch));
                }
            }
            self.is_committing = true;
            return Some(Job::Commit(group));
        }
        if let Some(batch) = self.waiting.pop_front() {
            self.ahead = self.ahead.saturating_sub(1);
            return Some(Job::Run(batch, Pace::Short));
        }
        None
    }
}

/// A lane that a batch was taken from, to be given back when the batch is done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct LaneIndex {
    index: usize,
    is_long: bool,
}

impl<B> Lanes<B> {
    pub(super) fn new(workers_max: usize) -> Self {
        Self { lanes: Vec::new(), turn: 0, at_work: 0, long_at_work: 0, workers_max }
    }

    /// Queues a batch that waits for `file`.
    pub(super) fn push(&mut self, file: u64, batch: B) {
        if let Some(lane) = self.lane(file) {
            lane.waiting.push_back(batch);
        }
    }

    /// Queues a batch that waits for a turn of long work on `file`.
    pub(super) fn push_long(&mut self, file: u64, batch: B) {
        if let Some(lane) = self.lane(file) {
            lane.long.push_back(batch);
        }
    }

    /// Lays a batch aside until a commit of `site` that begins later.
    pub(super) fn lay_aside(&mut self, site: Site, batch: B) {
        if let Some(lane) = self.lane(site.file) {
            if lane.aside.is_empty() {
                lane.ahead = lane.waiting.len();
            }
            lane.aside.push_back((site, batch));
        }
    }

    /// The lane of a file; a new one while there are few.
    fn lane(&mut self, file: u64) -> Option<&mut Lane<B>> {
        let same = |lane: &Lane<B>| lane.file == file && !lane.is_unused();
        let index = self.lanes.iter().position(same);
        let index = index.or_else(|| self.lanes.iter().position(Lane::is_unused));
        let index = match index {
            Some(index) => index,
            None if self.lanes.len() < LANES_MAX => {
                self.lanes.push(Lane::new(file));
                self.lanes.len() - 1
            }
            // So many files at once share lanes, and with them the share of a lane.
            None => usize::try_from(file % LANES).expect("a small number"),
        };
        let lane = self.lanes.get_mut(index)?;
        if lane.is_unused() {
            lane.file = file;
            lane.passed = 0;
        }
        Some(lane)
    }

    /// What is to be done next; `None` while nobody may have a turn.
    pub(super) fn take(&mut self) -> Option<(LaneIndex, Job<B>)> {
        let free = self.workers_max.saturating_sub(self.at_work);
        let may_be_long = self.long_left() > 0;
        let (turn, count) = (self.turn, self.lanes.len());
        let in_turn = (0..count).map(|step| (turn + step) % count);
        for index in self.eldest_long(free).into_iter().chain(in_turn) {
            let Some(lane) = self.lanes.get_mut(index).filter(|lane| lane.at_work < free) else {
                continue;
            };
            if let Some(job) = lane.take(may_be_long) {
                let is_long = matches!(job, Job::Run(_, Pace::Long));
                lane.at_work += 1;
                self.at_work += 1;
                self.long_at_work += usize::from(is_long);
                self.turn = index + 1;
                return Some((LaneIndex { index, is_long }, job));
            }
        }
        None
    }

    /// The lane whose long work has waited longest of those where it is due: in the order of their turns, long work
    /// of the others would take the place that it needs.
    fn eldest_long(&self, free: usize) -> Option<usize> {
        let may_be_long = self.long_left() > 0;
        let lanes = self.lanes.iter().enumerate().filter(|_| may_be_long);
        let due = lanes.filter(|(_, lane)| lane.is_long_due() && lane.at_work < free);
        due.max_by_key(|(_, lane)| lane.passed).map(|(index, _)| index)
    }

    /// How many more workers may do long work: half of them at most, and one at least.
    fn long_left(&self) -> usize {
        (self.workers_max / 2).max(1).saturating_sub(self.long_at_work)
    }

    /// A commit that was taken has ended, and `group` is empty. [`Lanes::done`] is still to be told.
    pub(super) fn committed(&mut self, LaneIndex { index, .. }: LaneIndex, group: Vec<B>) {
        debug_assert!(group.is_empty(), "what was committed for has gone on");
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.spare = group;
            lane.is_committing = false;
            lane.ahead = lane.waiting.len();
        }
    }

    /// Who was laid aside while a commit ran, for the fault that counts them in.
    #[cfg(test)]
    pub(super) fn latecomers(&mut self, LaneIndex { index, .. }: LaneIndex, group: &mut Vec<B>) {
        if let Some(lane) = self.lanes.get_mut(index) {
            group.extend(lane.aside.drain(..).map(|(_, batch)| batch));
        }
    }

    /// A job that was taken is done.
    pub(super) fn done(&mut self, LaneIndex { index, is_long }: LaneIndex) {
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.at_work -= 1;
            self.at_work -= 1;
            self.long_at_work -= usize::from(is_long);
        }
    }

    /// How many jobs have been taken and are not done.
    pub(super) fn at_work(&self) -> usize {
        self.at_work
    }

    /// How many workers there is something to do for, those at work included.
    pub(super) fn wanted(&self) -> usize {
        let free = self.workers_max.saturating_sub(self.at_work);
        let open = self.lanes.iter().filter(|lane| lane.at_work < free);
        let (jobs, long) =
            open.fold((0, 0), |(jobs, long), lane| (jobs + lane.jobs(), long + lane.long.len()));
        self.at_work + jobs + long.min(self.long_left())
    }

    /// Forgets what waits.
    pub(super) fn clear(&mut self) {
        for lane in &mut self.lanes {
            lane.waiting.clear();
            lane.long.clear();
            lane.aside.clear();
        }
    }
}

/// Files with a lane of their own at once.
const LANES_MAX: usize = 64;
const LANES: u64 = 64;
/// Other jobs of its lane that long work waits for. A turn of it takes some 100 us, so the others lose little.
const PASSED_MAX: usize = 16;

#[cfg(test)]
mod tests;
