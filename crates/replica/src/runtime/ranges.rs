//! Locks of ranges of volumes: writes that overlap are made one after the other, and a copy of a range is read while nobody
//! writes to it.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::format::Extent;

/// The ranges that somebody has.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    held: Mutex<Vec<Extent>>,
    freed: Condvar,
}

/// A range that the owner of this has for itself.
#[derive(Debug)]
pub(super) struct Held<'r> {
    ranges: &'r Ranges,
    extent: Extent,
}

impl Ranges {
    /// Waits until nobody has a part of `extent`, and has it.
    pub(super) fn hold(&self, extent: Extent) -> Held<'_> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while held.iter().any(|other| overlap(other, &extent)) {
            held = self.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        held.push(extent);
        Held { ranges: self, extent }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut held = self.ranges.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = held.iter().position(|other| *other == self.extent) {
            held.swap_remove(at);
        }
        drop(held);
        self.ranges.freed.notify_all();
    }
}

fn overlap(one: &Extent, other: &Extent) -> bool {
    one.volume == other.volume
        && one.offset < other.offset + other.len
        && other.offset < one.offset + one.len
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    const fn extent(volume: u8, offset: u64) -> Extent {
        Extent { volume, offset, len: 4096 }
    }

    #[test]
    fn ranges_that_overlap_are_had_one_after_the_other() {
        let (ranges, is_free) = (Ranges::default(), AtomicBool::new(false));
        let first = ranges.hold(extent(0, 4096));
        let (_other, _beside) = (ranges.hold(extent(1, 4096)), ranges.hold(extent(0, 8192)));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _second = ranges.hold(extent(0, 4608 - 512));
                assert!(is_free.load(Ordering::SeqCst));
            });
            thread::sleep(Duration::from_millis(20));
            is_free.store(true, Ordering::SeqCst);
            drop(first);
        });
    }
}
