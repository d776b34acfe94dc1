//! The table of blocks that are being read: no block is written while somebody reads it.
//!
//! ```text
//!   reader                          writer of the same sector, then of any sector in the lane
//!   map says block 7                map says block 9 from now on; 7 is free
//!   note 7 here, fence              fence, then look for 7 here: it is read, take another lane
//!   map still says 7?  no: again
//! ```
//!
//! Either the reader's second look at the map finds the new entry, or the writer's look at this table finds the note:
//! both put a full fence between their store and their load. Linux calls this the read tracking table.
//!
//! Spec: Linux Documentation/driver-api/nvdimm/btt.rst §3 d.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::lanes::preferred;

/// The blocks that readers of an arena hold.
#[derive(Debug)]
pub(crate) struct Readers {
    slots: Box<[Slot]>,
}

/// A slot on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot(AtomicU32);

/// A slot that a reader has taken.
#[derive(Debug)]
pub(crate) struct Reader<'r> {
    slot: &'r AtomicU32,
}

impl Readers {
    pub(crate) fn new() -> Self {
        Self { slots: (0..READERS_MAX).map(|_| Slot::default()).collect() }
    }

    /// Takes a slot; waits until one is free.
    pub(crate) fn enter(&self) -> Reader<'_> {
        let first = preferred();
        loop {
            for step in 0..READERS_MAX {
                let slot = &self.slots[(first + step) % READERS_MAX].0;
                let taken = slot.compare_exchange(FREE, IDLE, Ordering::AcqRel, Ordering::Relaxed);
                if taken.is_ok() {
                    return Reader { slot };
                }
            }
            std::thread::yield_now();
        }
    }

    /// Whether somebody reads `block`, which the calling thread has seen leave the map.
    pub(crate) fn read(&self, block: u32) -> bool {
        // The change of the map happened before the caller took the lane. The fence puts it before the look below.
        fence(Ordering::SeqCst);
        self.slots.iter().any(|slot| slot.0.load(Ordering::Acquire) == HELD | block)
    }

    /// Forgets all readers: the fault that the table prevents.
    #[cfg(test)]
    pub(crate) fn forget_all(&self) {
        for slot in &self.slots {
            slot.0.store(IDLE, Ordering::SeqCst);
        }
    }
}

impl Reader<'_> {
    /// Notes that the reader is about to read `block`. Its next look at the map comes after the note.
    pub(crate) fn hold(&self, block: u32) {
        self.slot.store(HELD | block, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.slot.store(FREE, Ordering::Release);
    }
}

const FREE: u32 = 0;
/// Taken, and no block is held. Blocks have 30 bits.
const IDLE: u32 = 1 << 30;
const HELD: u32 = 1 << 31;
/// Readers of an arena at the same time; more wait. A writer looks at each slot: 32 lines of its nearest cache.
const READERS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_read_from_its_note_to_the_end_of_the_reader() {
        let readers = Readers::new();
        let reader = readers.enter();
        assert!(!readers.read(0));
        reader.hold(7);
        assert!(readers.read(7) && !readers.read(8));
        reader.hold(8);
        assert!(!readers.read(7) && readers.read(8));
        drop(reader);
        assert!(!readers.read(8));
    }

    #[test]
    fn a_slot_is_used_again_after_its_reader() {
        let readers = Readers::new();
        for _ in 0..2 * READERS_MAX {
            readers.enter().hold(1);
        }
        let all: Vec<_> = (0..READERS_MAX).map(|_| readers.enter()).collect();
        assert_eq!(all.len(), READERS_MAX);
    }
}
