//! Which page leaves when a frame is needed: S3-FIFO, over the numbers of frames.
//!
//! ```text
//!   new page ------------> [ small: a tenth ] --used twice--> [ main ] --used--> back to its end
//!      |  seen lately             | not                          | not used
//!      |                          v                              v
//!      +----> [ main ]        evicted, its hash to the ghost   evicted
//! ```
//!
//! A scan passes through the small queue and leaves the main queue alone. Measured against the crates that offer such a
//! policy: `quick_cache` (S3-FIFO too) and `moka` keep keys and values of their own and take a lock for each hit; here a
//! hit must be an addition to the frame's word, which an engine thread does without a lock, and an eviction must be able
//! to find a page pinned or dirty and go on to the next. Neither crate can be asked that, so the policy is here: two
//! queues of frames (`queue.rs`) and an array of hashes.
//!
//! Spec: Yang et al., "FIFO Queues are All You Need for Cache Eviction" (SOSP 2023).

use crate::header::{IN_MAIN, Key};
use crate::queue::{Links, Queue};
use crate::table::Table;

/// See the module.
#[derive(Debug)]
pub(crate) struct Policy {
    small: Queue,
    main: Queue,
    /// Hashes of pages that left the small queue: a newer one takes the place of an older one.
    ghost: Box<[u32]>,
}

impl Policy {
    /// A policy for at most `frames` pages.
    pub(crate) fn new(frames: u32) -> Self {
        let ghosts = usize::try_from(frames).expect("32 bits fit an address").next_power_of_two();
        Self { small: Queue::new(), main: Queue::new(), ghost: vec![0; ghosts].into_boxed_slice() }
    }

    /// A page has come.
    pub(crate) fn entered(&mut self, (table, links): Frames<'_>, frame: u32, key: Key) {
        let (place, mark) = self.ghost_of(key);
        if self.ghost.get(place) == Some(&mark) {
            self.enter_main((table, links), frame);
        } else {
            self.small.push(links, frame);
        }
    }

    /// Takes a page out of use and returns its frame, whose key still stands in the header; `None` if no page could be,
    /// within [`TRIES_MAX`].
    pub(crate) fn evict(&mut self, (table, links): Frames<'_>) -> Option<u32> {
        let (mut busy, small_max) = (0, (self.small.len() + self.main.len()) / 10);
        let tries = 4 * (self.small.len() + self.main.len());
        for _ in 0..tries.min(TRIES_MAX) {
            let is_small_first = self.small.len() > small_max && busy < BUSY_MAX;
            let from_small = is_small_first || self.main.is_empty();
            let evicted = if from_small {
                self.evict_small((table, links), &mut busy)
            } else {
                self.evict_main((table, links))
            };
            if evicted.is_some() {
                return evicted;
            }
        }
        None
    }

    fn evict_small(&mut self, (table, links): Frames<'_>, busy: &mut usize) -> Option<u32> {
        let frame = self.small.pop(links)?;
        let header = table.header(frame);
        if header.uses() > 1 {
            header.forget_uses();
            self.enter_main((table, links), frame);
            return None;
        }
        if header.try_evict() {
            let (place, mark) = self.ghost_of(header.key());
            if let Some(ghost) = self.ghost.get_mut(place) {
                *ghost = mark;
            }
            return Some(frame);
        }
        *busy += 1;
        self.small.push(links, frame);
        None
    }

    fn evict_main(&mut self, (table, links): Frames<'_>) -> Option<u32> {
        let frame = self.main.pop(links)?;
        let header = table.header(frame);
        if header.uses() > 0 {
            header.age();
        } else if header.try_evict() {
            return Some(frame);
        }
        self.main.push(links, frame);
        None
    }

    fn enter_main(&mut self, (table, links): Frames<'_>, frame: u32) {
        table.header(frame).set(IN_MAIN);
        self.main.push(links, frame);
    }

    /// Takes a frame out, whatever its place. `flags` are those of its header before it became free.
    pub(crate) fn remove(&mut self, links: &mut Links, frame: u32, flags: u64) {
        let queue = if flags & IN_MAIN != 0 { &mut self.main } else { &mut self.small };
        queue.remove(links, frame);
    }

    /// Pages here.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    fn ghost_of(&self, key: Key) -> (usize, u32) {
        let hash = key.hash();
        let place = usize::try_from(hash & u64::from(u32::MAX)).expect("32 bits fit an address");
        // 0 is an empty place.
        let mark = u32::try_from(hash >> 32).expect("the upper half of 64 bits") | 1;
        (place & (self.ghost.len() - 1), mark)
    }
}

/// The frames, and their neighbours in the queues.
pub(crate) type Frames<'c> = (&'c Table, &'c mut Links);

/// Frames that one eviction looks at. Where more in a row are dirty or pinned, the caller waits for the write-back.
const TRIES_MAX: usize = 4096;
/// Frames of the small queue found dirty or pinned before the main queue has its turn.
const BUSY_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::FETCHING;

    const FRAMES: u32 = 100;

    struct Rig {
        table: Table,
        policy: Policy,
        links: Links,
        free: Vec<u32>,
    }

    impl Rig {
        fn new() -> Self {
            let (table, policy) = (Table::new(FRAMES).unwrap(), Policy::new(FRAMES));
            Self { table, policy, links: Links::new(FRAMES), free: (0..FRAMES).collect() }
        }

        /// Uses a page; returns whether it was here.
        fn touch(&mut self, page: u64) -> bool {
            let key = Key { file: 0, page };
            if self.table.pin(key).is_some() {
                return true;
            }
            let frame = self.free.pop().or_else(|| {
                let frame = self.policy.evict((&self.table, &mut self.links))?;
                self.table.unlink(frame);
                Some(frame)
            });
            let frame = frame.unwrap();
            self.table.header(frame).set(FETCHING);
            self.table.link(frame, key);
            self.policy.entered((&self.table, &mut self.links), frame, key);
            self.table.header(frame).arrive();
            false
        }
    }

    #[test]
    fn pages_in_use_survive_a_scan_of_many_times_the_budget() {
        let mut rig = Rig::new();
        for _ in 0..4 {
            (0..50).for_each(|page| _ = rig.touch(page));
        }
        (1000..3000).for_each(|page| _ = rig.touch(page));
        let left = (0..50).filter(|page| rig.touch(*page)).count();
        assert!(left >= 45, "{left} of 50");
        assert_eq!(rig.policy.len(), usize::try_from(FRAMES).unwrap());
    }

    #[test]
    fn a_page_that_comes_back_soon_goes_to_the_main_queue() {
        let mut rig = Rig::new();
        (0..u64::from(FRAMES)).for_each(|page| _ = rig.touch(page));
        // It pushes the oldest out.
        rig.touch(500);
        assert!(!rig.touch(0));
        assert_eq!(rig.policy.main.len(), 1);
    }

    #[test]
    fn a_cache_of_dirty_pages_evicts_none() {
        let mut rig = Rig::new();
        (0..u64::from(FRAMES)).for_each(|page| _ = rig.touch(page));
        (0..FRAMES).for_each(|frame| _ = rig.table.header(frame).set(crate::header::DIRTY));
        assert_eq!(rig.policy.evict((&rig.table, &mut rig.links)), None);
        rig.table.header(40).clear(crate::header::DIRTY);
        assert_eq!(rig.policy.evict((&rig.table, &mut rig.links)), Some(40));
    }
}
