//! A faster directory below the memory of a share whose files lie on a slow device: pages that were read from a file are
//! also there, and are read from there when they have left the memory.
//!
//! ```text
//!   memory (the budget)   hot      <---- read ----+
//!   tier (this)           cold     pages in a file without a name, on flash or persistent memory
//!   the file itself       all      every write goes here, and a flush is durable here
//! ```
//!
//! The file is the only truth: a page of the tier is a copy of what the file has, every write of the page ends the copy before
//! and after it, and the tier's file has no name, so that a crash leaves nothing of it. Bytes so are never in the tier alone.
//! Rejected: to move the cold pages, or whole files, from the file to a slower directory. The file would have holes, or be
//! away, for every program that opens it by its name, and a crash between the two directories would have to be recovered.
//!
//! ```text
//!   slot:  free --offered--> filling --written--> full --the hand of the clock, nobody reads it--> filling (another page)
//!            ^                  |                   |
//!            +--- the page was written meanwhile ---+
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use crate::bell::Bell;
use crate::pieces::{PAGE, wide};
use crate::pool::FRAME;
use crate::stats::count;

/// See the module.
#[derive(Debug)]
pub struct Tier {
    file: File,
    pages_max: usize,
    state: Mutex<State>,
    filler: Bell,
    next_file: AtomicU32,
    hits: AtomicU64,
    filled: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Where a page is, by its file and its number.
    index: BTreeMap<(u32, u64), usize>,
    slots: Vec<Slot>,
    hand: usize,
    queue: VecDeque<Fill>,
}

#[derive(Debug, Default)]
struct Slot {
    page: Option<(u32, u64)>,
    phase: Phase,
    readers: u32,
    was_used: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Phase {
    #[default]
    Free,
    Filling,
    Full,
}

#[derive(Debug)]
struct Fill {
    slot: usize,
    page: (u32, u64),
    bytes: Box<[u8]>,
}

/// What a tier has done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TierStats {
    /// Bytes of pages in it.
    pub used: u64,
    /// Pages read from it.
    pub hits: u64,
    /// Pages written to it.
    pub filled: u64,
}

impl Tier {
    /// A tier of at most `bytes` in a file without a name in `directory`, and the thread that fills it.
    ///
    /// # Errors
    ///
    /// The directory is not there or may not be written, its file system has no files without names, `bytes` are less than
    /// [`TIER_MIN`] or more than [`TIER_MAX`], or the process can have no more threads.
    pub fn open(directory: &Path, bytes: u64) -> io::Result<Arc<Self>> {
        if !(TIER_MIN..=TIER_MAX).contains(&bytes) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let open = |flags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).mode(0o600);
            options.custom_flags(libc::O_TMPFILE | flags).open(directory)
        };
        let file = open(0)?;
        let pages_max = usize::try_from(bytes / FRAME).expect("at most TIER_MAX");
        let tier = Arc::new(Self {
            file,
            pages_max,
            state: Mutex::default(),
            filler: Bell::new(),
            next_file: AtomicU32::new(0),
            hits: AtomicU64::new(0),
            filled: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&tier);
        let builder = thread::Builder::new().name("flash-tier".to_owned());
        tier.filler.belongs_to(builder.spawn(move || fill(&weak))?.thread());
        Ok(tier)
    }

    /// What it has done.
    pub fn stats(&self) -> TierStats {
        TierStats {
            used: wide(self.lock().index.len()) * FRAME,
            hits: self.hits.load(Ordering::Relaxed),
            filled: self.filled.load(Ordering::Relaxed),
        }
    }

    /// A number for a file; its pages are forgotten by [`Tier::forget`].
    pub(crate) fn enter(&self) -> u32 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// Reads pages from `first` on, as many as are here in a row; returns how many. `out` is whole pages.
    pub(crate) fn read(&self, file: u32, first: u64, out: &mut [u8]) -> usize {
        let mut slots = Vec::new();
        {
            let mut state = self.lock();
            while slots.len() < out.len() / PAGE {
                let key = (file, first + wide(slots.len()));
                let Some(slot) = state.index.get(&key).copied() else { break };
                let Some(found) = state.slots.get_mut(slot) else { break };
                if found.phase != Phase::Full {
                    break;
                }
                found.readers += 1;
                found.was_used = true;
                slots.push(slot);
            }
        }
        let mut came = 0;
        for run in slots.chunk_by(|one, next| one + 1 == *next) {
            let (from, to) = (came * PAGE, (came + run.len()) * PAGE);
            let at = wide(run[0]) * FRAME;
            if self.file.read_exact_at(&mut out[from..to], at).is_err() {
                break;
            }
            came += run.len();
        }
        let mut state = self.lock();
        for slot in &slots {
            if let Some(found) = state.slots.get_mut(*slot) {
                found.readers -= 1;
            }
        }
        if came < slots.len() {
            // It cannot be read: the file has the pages too.
            state.end(file, first + wide(came)..first + wide(slots.len()));
        }
        drop(state);
        count(&self.hits, wide(came));
        came
    }

    /// How many pages from `first` on are not here, at most `count_max`.
    pub(crate) fn missing(&self, file: u32, first: u64, count_max: u64) -> u64 {
        let state = self.lock();
        let next = state.index.range((file, first)..(file, first + count_max)).next();
        next.map_or(count_max, |((_, page), _)| page - first)
    }

    /// Whole pages that were read from the file: they are written here soon, or not at all if there is much to do. `is_now`
    /// tells, with the tier to itself, whether they are still what the file has.
    pub(crate) fn offer(&self, file: u32, first: u64, bytes: &[u8], is_now: impl Fn() -> bool) {
        let mut state = self.lock();
        if !is_now() {
            return;
        }
        for (number, bytes) in bytes.chunks_exact(PAGE).enumerate() {
            let page = (file, first + wide(number));
            if state.queue.len() >= QUEUE_MAX || state.index.contains_key(&page) {
                continue;
            }
            let Some(slot) = state.take_slot(self.pages_max) else { break };
            state.index.insert(page, slot);
            state.slots[slot].page = Some(page);
            state.queue.push_back(Fill { slot, page, bytes: bytes.into() });
        }
        drop(state);
        self.filler.ring();
    }

    /// The file has, or is about to have, other bytes there.
    pub(crate) fn forget(&self, file: u32, pages: Range<u64>) {
        self.lock().end(file, pages);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill_next(&self) -> bool {
        let Some(fill) = self.lock().queue.pop_front() else { return false };
        let written = self.file.write_all_at(&fill.bytes, wide(fill.slot) * FRAME);
        let mut state = self.lock();
        let is_wanted = state.slots.get(fill.slot).is_some_and(|it| it.page == Some(fill.page));
        if written.is_err() && is_wanted {
            state.index.remove(&fill.page);
        }
        if let Some(slot) = state.slots.get_mut(fill.slot) {
            let is_full = written.is_ok() && is_wanted;
            slot.phase = if is_full { Phase::Full } else { Phase::Free };
            slot.page = if is_full { Some(fill.page) } else { None };
        }
        drop(state);
        count(&self.filled, u64::from(written.is_ok()));
        true
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        self.filler.ring();
    }
}

impl State {
    /// A slot for another page, whose copy here ends: one that was not read since the hand passed last.
    fn take_slot(&mut self, pages_max: usize) -> Option<usize> {
        if self.slots.len() < pages_max {
            self.slots.push(Slot { phase: Phase::Filling, ..Slot::default() });
            return self.fresh(self.slots.len() - 1);
        }
        for _ in 0..LOOKS_MAX {
            let at = self.hand % self.slots.len();
            self.hand = at + 1;
            let slot = &mut self.slots[at];
            if slot.readers > 0 || slot.phase == Phase::Filling {
                continue;
            }
            if slot.phase == Phase::Full && std::mem::take(&mut slot.was_used) {
                continue;
            }
            if let Some(page) = slot.page.take() {
                self.index.remove(&page);
            }
            return self.fresh(at);
        }
        None
    }

    fn fresh(&mut self, at: usize) -> Option<usize> {
        self.slots.get_mut(at)?.phase = Phase::Filling;
        Some(at)
    }

    fn end(&mut self, file: u32, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        while let Some((page, slot)) =
            self.index.range((file, pages.start)..(file, pages.end)).next().map(|(a, b)| (*a, *b))
        {
            self.index.remove(&page);
            if let Some(slot) = self.slots.get_mut(slot) {
                slot.page = None;
                if slot.phase == Phase::Full {
                    slot.phase = Phase::Free;
                }
            }
        }
    }
}

fn fill(tier: &Weak<Tier>) {
    loop {
        let Some(tier) = tier.upgrade() else { return };
        let has_filled = tier.fill_next();
        drop(tier);
        if !has_filled {
            thread::park();
        }
    }
}

/// The smallest tier: less would hold a few read-aheads.
pub const TIER_MIN: u64 = 1 << 20;
/// The largest, 4 TiB. A page of it takes some 100 bytes of memory once it is used, beside the budget.
pub const TIER_MAX: u64 = 1 << 42;
/// Pages that wait to be written to a tier: 1 MiB. Further ones are not offered: the slow device brings fewer than flash takes.
const QUEUE_MAX: usize = 256;
/// Slots that are looked at for one that may be taken.
const LOOKS_MAX: usize = 256;
