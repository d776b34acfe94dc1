//! Lanes: each owns a free block and a flog group, and carries one write at a time.
//!
//! A thread begins its search at a lane of its own, so that threads that write at the same time seldom meet, and passes
//! over lanes that are in use, whose free block somebody still reads, or whose free block the medium has lost.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::flog_entry::{Half, Sequence};

/// The lanes of an arena.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Box<[Lane]>,
}

/// A lane on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Lane(Mutex<LaneState>);

/// What the next write of a lane does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LaneState {
    /// The block that it goes to.
    pub(crate) free: u32,
    /// The half of the flog group that it overwrites.
    pub(crate) half: Half,
    /// The sequence number of that half.
    pub(crate) sequence: Sequence,
    /// Whether the medium has lost the free block, so that the lane carries no write.
    pub(crate) is_lost: bool,
}

/// A lane in use.
#[derive(Debug)]
pub(crate) struct LaneInUse<'l> {
    pub(crate) number: u32,
    pub(crate) state: MutexGuard<'l, LaneState>,
}

impl Lanes {
    pub(crate) fn new(states: Vec<LaneState>) -> Self {
        Self { lanes: states.into_iter().map(|state| Lane(Mutex::new(state))).collect() }
    }

    /// A lane whose free block `is_read` does not name. Waits until there is one; `None` once no lane is left whose
    /// block the medium can hold.
    pub(crate) fn acquire(&self, is_read: impl Fn(u32) -> bool) -> Option<LaneInUse<'_>> {
        let first = preferred();
        loop {
            let mut are_lost = true;
            for at in (0..self.lanes.len()).map(|step| (first + step) % self.lanes.len()) {
                let state = match self.lanes[at].0.try_lock() {
                    Ok(state) => state,
                    Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                    Err(TryLockError::WouldBlock) => {
                        are_lost = false;
                        continue;
                    }
                };
                if state.is_lost {
                    continue;
                }
                are_lost = false;
                if !is_read(state.free) {
                    let number = u32::try_from(at).expect("at most LANES_MAX");
                    return Some(LaneInUse { number, state });
                }
            }
            if are_lost {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// The states of all lanes, one after the other.
    pub(crate) fn states(&self) -> impl Iterator<Item = LaneState> {
        let state = |lane: &Lane| *lane.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.lanes.iter().map(state)
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }
}

/// The number that the calling thread prefers, the same for all its calls.
pub(crate) fn preferred() -> usize {
    PREFERRED.with(|number| match number.get() {
        0 => {
            number.set(THREADS.fetch_add(1, Ordering::Relaxed));
            number.get()
        }
        known => known,
    })
}

static THREADS: AtomicUsize = AtomicUsize::new(1);
thread_local! {
    static PREFERRED: Cell<usize> = const { Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(states: &[(u32, bool)]) -> Lanes {
        let state = |(free, is_lost): &(u32, bool)| LaneState {
            free: *free,
            half: Half::First,
            sequence: Sequence::FIRST,
            is_lost: *is_lost,
        };
        Lanes::new(states.iter().map(state).collect())
    }

    #[test]
    fn a_lane_is_passed_over_while_its_block_is_read_or_lost() {
        let lanes = lanes(&[(10, false), (11, true), (12, false)]);
        let first = lanes.acquire(|block| block == 10).unwrap();
        assert_eq!(first.state.free, 12);
        let second = lanes.acquire(|_| false).unwrap();
        assert_eq!(second.state.free, 10);
    }

    #[test]
    fn no_lane_is_found_when_every_block_is_lost() {
        assert!(lanes(&[(1, true), (2, true)]).acquire(|_| false).is_none());
    }
}
