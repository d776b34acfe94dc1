//! Which frame holds which page: chains of frames that a thread follows without a lock.
//!
//! ```text
//!   buckets:  [ ] [f3] [ ] [f9] ...            as many as there are frames, or more
//!                  |        |
//!   headers:      f3 -> f7  f9 -> none         a chain goes through the headers themselves
//! ```
//!
//! The table has the size of the budget and not of the files: a file of a terabyte costs as much as an empty file, and
//! the state of a page that is not here is that nothing here names it. Only holders of the cache's lock change a chain. A
//! reader that follows a chain while it is changed may be led into another chain and not find its page, which is the
//! answer that it has to ask the holder of the lock; it never finds a wrong page, because it looks at the key of the frame
//! after it has pinned the frame.

use std::sync::atomic::{AtomicU32, Ordering};

use pmem::{AtomicOp, Frames, MapError};

use crate::header::{self, Header, Key, NONE};

/// See the module.
#[derive(Debug)]
pub(crate) struct Table {
    headers: Box<[Header]>,
    buckets: Box<[AtomicU32]>,
    frames: Frames,
}

impl Table {
    pub(crate) fn new(count: u32) -> Result<Self, MapError> {
        let frames = Frames::new(count)?;
        let of = |number: u32| usize::try_from(number).expect("32 bits fit an address");
        let headers = (0..count).map(|_| Header::new()).collect();
        let buckets = of(count).next_power_of_two();
        let buckets = (0..buckets).map(|_| AtomicU32::new(NONE)).collect();
        Ok(Self { headers, buckets, frames })
    }

    /// The page for as long as the pin lasts, if it has its bytes. Waits for nothing.
    pub(crate) fn pin(&self, key: Key) -> Option<Pinned<'_>> {
        let mut at = self.bucket(key).load(Ordering::Acquire);
        for _ in 0..STEPS_MAX {
            let header = self.headers.get(index(at))?;
            if header.key() == key {
                return self.try_pin(at, header, key);
            }
            at = header.next.load(Ordering::Acquire);
        }
        None
    }

    /// Whether the page has its bytes here, at this moment. No use of the page.
    pub(crate) fn has(&self, key: Key) -> bool {
        let mut at = self.bucket(key).load(Ordering::Acquire);
        for _ in 0..STEPS_MAX {
            let Some(header) = self.headers.get(index(at)) else { return false };
            if header.key() == key {
                return header.flags() & (header::RESIDENT | header::LOST) == header::RESIDENT;
            }
            at = header.next.load(Ordering::Acquire);
        }
        false
    }

    fn try_pin<'t>(&'t self, frame: u32, header: &'t Header, key: Key) -> Option<Pinned<'t>> {
        let before = header.pin(key)?;
        Some(Pinned { table: self, header, frame, before })
    }

    /// The frame of a page. The caller has the lock of the cache.
    pub(crate) fn locate(&self, key: Key) -> Option<u32> {
        let mut at = self.bucket(key).load(Ordering::Acquire);
        while let Some(header) = self.headers.get(index(at)) {
            if header.key() == key {
                return Some(at);
            }
            at = header.next.load(Ordering::Acquire);
        }
        None
    }

    /// Enters a page. The caller has the lock of the cache, and the frame is in no chain.
    pub(crate) fn link(&self, frame: u32, key: Key) {
        let header = self.header(frame);
        header.set_key(key);
        let bucket = self.bucket(key);
        header.next.store(bucket.load(Ordering::Relaxed), Ordering::Release);
        bucket.store(frame, Ordering::Release);
    }

    /// Removes the page of a frame. The caller has the lock of the cache.
    pub(crate) fn unlink(&self, frame: u32) {
        let header = self.header(frame);
        let after = header.next.load(Ordering::Relaxed);
        let mut link = self.bucket(header.key());
        loop {
            let at = link.load(Ordering::Relaxed);
            if at == frame {
                link.store(after, Ordering::Release);
                break;
            }
            match self.headers.get(index(at)) {
                Some(header) => link = &header.next,
                None => break,
            }
        }
        header.set_key(Key { file: NONE, page: 0 });
    }

    pub(crate) fn header(&self, frame: u32) -> &Header {
        &self.headers[index(frame)]
    }

    pub(crate) fn frames(&self) -> &Frames {
        &self.frames
    }

    pub(crate) fn count(&self) -> u32 {
        self.frames.count()
    }

    fn bucket(&self, key: Key) -> &AtomicU32 {
        let mask = self.buckets.len() - 1;
        let low =
            usize::try_from(key.hash() & u64::from(u32::MAX)).expect("32 bits fit an address");
        &self.buckets[low & mask]
    }
}

/// A page that is not evicted as long as this lives.
#[derive(Debug)]
pub(crate) struct Pinned<'t> {
    table: &'t Table,
    header: &'t Header,
    frame: u32,
    before: u64,
}

impl Pinned<'_> {
    pub(crate) fn load(&self, at: usize, out: &mut [u8]) {
        self.table.frames.load(self.frame, at, out);
    }

    pub(crate) fn store(&self, at: usize, bytes: &[u8]) {
        self.table.frames.store(self.frame, at, bytes);
    }

    pub(crate) fn atomic(&self, at: usize, op: AtomicOp) -> u64 {
        self.table.frames.atomic(self.frame, at, op)
    }

    pub(crate) fn frame(&self) -> u32 {
        self.frame
    }

    pub(crate) fn header(&self) -> &Header {
        self.header
    }

    /// Whether this use asks for read-ahead; of several uses at once one does.
    pub(crate) fn takes_ahead(&self) -> bool {
        self.before & header::AHEAD != 0 && self.header.clear(header::AHEAD) & header::AHEAD != 0
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.header.unpin(self.before);
    }
}

fn index(frame: u32) -> usize {
    usize::try_from(frame).expect("32 bits fit an address")
}

/// Frames that a reader without the lock looks at. Chains have one or two; a longer way is that of a reader who was led
/// astray.
const STEPS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::FETCHING;

    fn key(page: u64) -> Key {
        Key { file: 1, page }
    }

    #[test]
    fn a_page_is_found_from_its_arrival_to_its_eviction() {
        let table = Table::new(8).unwrap();
        table.header(3).set(FETCHING);
        table.link(3, key(70));
        assert!(table.pin(key(70)).is_none(), "its bytes are not here");
        assert_eq!(table.locate(key(70)), Some(3));
        table.frames().store(3, 0, b"abc");
        table.header(3).arrive();
        let mut out = [0; 3];
        table.pin(key(70)).unwrap().load(0, &mut out);
        assert_eq!(&out, b"abc");
        assert_eq!(table.header(3).uses(), 1);
        assert!(table.pin(Key { file: 2, page: 70 }).is_none());
        assert!(table.header(3).try_evict());
        table.unlink(3);
        assert!(table.pin(key(70)).is_none() && table.locate(key(70)).is_none());
    }

    #[test]
    fn frames_of_one_bucket_are_entered_and_removed_in_any_order() {
        let table = Table::new(4).unwrap();
        for removed in 0..4 {
            (0..4).for_each(|frame| table.link(frame, key(u64::from(frame) * 1000)));
            table.unlink(removed);
            for frame in 0..4 {
                let found = table.locate(key(u64::from(frame) * 1000));
                assert_eq!(found, (frame != removed).then_some(frame));
            }
            (0..4).filter(|frame| *frame != removed).for_each(|frame| table.unlink(frame));
        }
    }
}
