//! The pages of one file whose bytes are not in the file, and their way there.
//!
//! ```text
//!   place (any thread) --no lock--> stack --drain--> pages --take--> writing --> in the file
//!                                                     ^                |  \---> lost
//!                                                     +-- placed again-+
//! ```
//!
//! A placement puts its frame on a stack (`stack.rs`) without a lock. A write-back empties the stack into an ordered list
//! under the lock, takes pages of its range from the list, and writes them outside the lock. A page is written by one
//! write-back at a time: two could reach the device in the wrong order. Each write has a number, by which a waiter knows
//! whether the write began after its own call, and so covers the bytes that were placed before the call.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pmem::MediumError;

use crate::header::WRITING;
use crate::stack::Stack;
use crate::table::{Pinned, Table};

/// See the module.
#[derive(Debug)]
pub(crate) struct Dirt {
    stack: Stack,
    state: Mutex<State>,
    written: Condvar,
    /// How many pages are lost.
    lost: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// Dirty pages and their frames.
    pages: BTreeMap<u64, u32>,
    /// Pages being written, and the number of the write.
    writing: BTreeMap<u64, u64>,
    begun: u64,
    /// Pages whose write has failed.
    lost: BTreeMap<u64, MediumError>,
}

/// One write-back's view of what is left for it to do.
#[derive(Debug)]
pub(crate) struct Plan {
    ticket: u64,
    left: VecDeque<u64>,
    /// Writes of others that cover this call.
    waits: Vec<(u64, u64)>,
}

/// A page that the caller writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Taken {
    pub(crate) page: u64,
    pub(crate) frame: u32,
}

impl Dirt {
    pub(crate) fn new() -> Self {
        Self {
            stack: Stack::new(),
            state: Mutex::default(),
            written: Condvar::new(),
            lost: AtomicUsize::new(0),
        }
    }

    /// Notes that bytes were placed in a page. `true`: the page was clean.
    pub(crate) fn note(&self, pinned: &Pinned<'_>) -> bool {
        self.note_frame(pinned.header(), pinned.frame())
    }

    /// [`Dirt::note`] for a page that nobody else can reach yet.
    pub(crate) fn note_frame(&self, header: &crate::header::Header, frame: u32) -> bool {
        self.stack.note(header, frame)
    }

    /// What has to be written so that everything placed in the pages before this call is in the file.
    pub(crate) fn plan(&self, table: &Table, pages: Range<u64>) -> Plan {
        let mut state = self.lock();
        self.drain(table, &mut state);
        let left = state.pages.range(pages.clone()).map(|(page, _)| *page).collect();
        let writing = state.writing.range(pages);
        let waits = writing.map(|(page, number)| (*page, *number)).collect();
        Plan { ticket: state.begun, left, waits }
    }

    /// Takes some of the pages that the plan still has to write; waits while others write them. `None`: all is done.
    pub(crate) fn take(&self, table: &Table, plan: &mut Plan, max: usize) -> Option<Vec<Taken>> {
        let mut state = self.lock();
        loop {
            self.drain(table, &mut state);
            let taken = state.take(plan, max);
            if !taken.is_empty() {
                state.begun += 1;
                let number = state.begun;
                for Taken { page, frame } in &taken {
                    state.writing.insert(*page, number);
                    table.header(*frame).begin_write();
                }
                return Some(taken);
            }
            let State { writing, .. } = &*state;
            plan.waits.retain(|(page, number)| writing.get(page) == Some(number));
            if plan.left.is_empty() && plan.waits.is_empty() {
                return None;
            }
            state = self.written.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The pages were written, or not.
    pub(crate) fn ended(
        &self,
        table: &Table,
        taken: &[Taken],
        failed: impl Fn(u64) -> Option<MediumError>,
    ) -> usize {
        let mut state = self.lock();
        let mut failures = 0;
        for Taken { page, frame } in taken {
            state.writing.remove(page);
            if let Some(error) = failed(*page) {
                failures += 1;
                state.lost.entry(*page).or_insert(error);
                table.header(*frame).set(crate::header::LOST);
            }
            table.header(*frame).clear(WRITING);
        }
        self.lost.store(state.lost.len(), Ordering::Release);
        drop(state);
        self.written.notify_all();
        failures
    }

    /// Why a page of the range is lost, if one is.
    pub(crate) fn lost(&self, pages: Range<u64>) -> Option<MediumError> {
        self.lock().lost.range(pages).next().map(|(_, error)| *error)
    }

    /// How many pages are lost.
    pub(crate) fn lost_count(&self) -> usize {
        self.lost.load(Ordering::Acquire)
    }

    /// Pages that are dirty, or being written.
    pub(crate) fn count(&self, table: &Table) -> usize {
        let mut state = self.lock();
        self.drain(table, &mut state);
        state.pages.len() + state.writing.len()
    }

    /// The first page of the range whose bytes the file does not have: dirty, being written, or lost.
    pub(crate) fn first_in(&self, table: &Table, pages: Range<u64>) -> Option<u64> {
        let mut state = self.lock();
        self.drain(table, &mut state);
        let dirty = state.pages.range(pages.clone()).next().map(|(page, _)| *page);
        let writing = state.writing.range(pages.clone()).next().map(|(page, _)| *page);
        // The file may have a hole where a lost page was.
        let lost = state.lost.range(pages).next().map(|(page, _)| *page);
        dirty.into_iter().chain(writing).chain(lost).min()
    }

    fn drain(&self, table: &Table, state: &mut State) {
        self.stack.take(
            |frame| table.header(frame),
            |frame| {
                state.pages.insert(table.header(frame).key().page, frame);
            },
        );
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, plan: &mut Plan, max: usize) -> Vec<Taken> {
        let (mut taken, mut blocked) = (Vec::new(), Vec::new());
        while taken.len() < max {
            let Some(page) = plan.left.pop_front() else { break };
            match self.writing.get(&page) {
                Some(number) if *number > plan.ticket => plan.waits.push((page, *number)),
                // This write began before the call: another has to follow it.
                Some(_) => blocked.push(page),
                None => {
                    let frame = self.pages.remove(&page);
                    // Otherwise another has written it meanwhile, whole.
                    taken.extend(frame.map(|frame| Taken { page, frame }));
                }
            }
        }
        plan.left.extend(blocked);
        taken
    }
}
