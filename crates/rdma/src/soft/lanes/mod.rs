//! Decides which batch the next free worker takes: batches of one device, in a lane for each file.
//!
//! ```text
//!   file A   [batch batch batch batch ...]   8 at work       lanes have their turns one after
//!   file B   [batch]                         4 at work       the other; one has a turn only while
//!   file C   []                              1 at work       more workers are free than it has
//!
//!   laid aside for a commit   [batch batch batch ...]   one worker commits for all of one file
//! ```
//!
//! A batch that waits for a commit holds no worker. The commit begins when every batch that waited
//! for a worker as the first was laid aside has had one: the commit counts for those too. Batches
//! that are laid aside while a commit runs wait for the next, and only the next counts for them,
//! because it begins after they were laid aside.
//!
//! So a file that hangs gets half of the workers at most, the next such file half of the rest, and
//! so on: however many connections wait for a slow file, there is a worker for another file.
//!
//! A batch with long work, verifies above all, has it done in pieces, one piece a turn, and waits for its
//! turns in a queue of its own. At most half of the workers do long work, however many files are
//! verified: the others remain for placements and commits. Long work waits for the other work of its
//! lane, but for [`PASSED_MAX`] jobs at most: then its turn is the next of the lane.
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
    /// Batches that wait for a turn of long work.
    long: VecDeque<B>,
    at_work: usize,
    /// Batches that wait for a commit of the named file.
    aside: VecDeque<(Site, B)>,
    is_committing: bool,
    /// Memory for the batches of the next commit.
    spare: Vec<B>,
    /// How many of the waiting batches the next commit will still count for.
    ahead: usize,
    /// Other jobs that were taken while long work waited, since its last turn.
    passed: usize,
}

/// A job for a worker.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Job<B> {
    /// A batch is to be carried out.
    Run(B, Pace),
    /// A file is to be committed for all these batches, at least one.
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

    /// Whether long work has waited for as many other jobs as it has to.
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
                // A commit of one file does not count for another file in the same lane.
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

/// The lane that a batch was taken from, to be returned when the batch is done.
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
            // Beyond so many files at once, files share a lane and the workers of that lane.
            None => usize::try_from(file % LANES).expect("a small number"),
        };
        let lane = self.lanes.get_mut(index)?;
        if lane.is_unused() {
            lane.file = file;
            lane.passed = 0;
        }
        Some(lane)
    }

    /// The next job; `None` while no batch may have a turn.
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

    /// Of the lanes whose long work is due, the lane whose long work has waited longest. In the order of the turns,
    /// long work of other lanes would take the place.
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

    /// Takes back a `group`, now empty, whose commit has ended. The caller still has to call
    /// [`Lanes::done`].
    pub(super) fn committed(&mut self, LaneIndex { index, .. }: LaneIndex, group: Vec<B>) {
        debug_assert!(group.is_empty(), "what was committed for has gone on");
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.spare = group;
            lane.is_committing = false;
            lane.ahead = lane.waiting.len();
        }
    }

    /// The batches laid aside while a commit ran, for the planted fault that counts them in.
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

    /// Removes all waiting batches.
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
