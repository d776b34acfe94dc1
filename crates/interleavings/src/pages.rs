//! The promises of a frame of `flash`: readers, placements, a write-back and an eviction meet at its state.

use std::sync::Arc;

use loom::thread;

use crate::header::{DIRTY, FETCHING, Header, Key, LOST, QUEUED, WRITING};
use crate::models::explore;
use crate::shared::{AtomicU64, Ordering};
use crate::stack::Stack;

/// A frame and its bytes: a number, which threads read and write without order of their own.
struct Frame {
    header: Header,
    bytes: AtomicU64,
}

fn frame(page: u64) -> Arc<Frame> {
    let frame = Frame { header: Header::new(), bytes: AtomicU64::new(0) };
    frame.bring(page);
    Arc::new(frame)
}

impl Frame {
    /// As a thread brings a page that has claimed the frame.
    fn bring(&self, page: u64) {
        self.header.set(FETCHING);
        self.header.set_key(key(page));
        self.bytes.store(page, Ordering::Relaxed);
        self.header.arrive();
    }

    fn read(&self, page: u64) -> Option<u64> {
        let before = self.header.pin(key(page))?;
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.header.unpin(before);
        Some(bytes)
    }

    /// Places a number in the page; `false`: it is not here.
    fn place(&self, page: u64, bytes: u64) -> bool {
        let Some(before) = self.header.pin(key(page)) else { return false };
        self.bytes.store(bytes, Ordering::Relaxed);
        self.header.placed();
        self.header.unpin(before);
        true
    }

    /// Writes back to a file of this page.
    fn write_back(&self, file: &AtomicU64) {
        if self.header.flags() & DIRTY != 0 {
            self.header.begin_write();
            file.store(self.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
            self.header.clear(WRITING);
        }
    }
}

fn key(page: u64) -> Key {
    Key { file: 1, page }
}

/// A reader gets the bytes of the page it asks for, while the frame is given to another page.
///
/// # Panics
/// It gets bytes of the other page.
pub fn a_reader_gets_its_page_or_none() {
    explore(|| {
        let frame = frame(1);
        let evicting = Arc::clone(&frame);
        let evictor = thread::spawn(move || {
            if evicting.header.try_evict() {
                evicting.header.set_key(key(u64::MAX));
                evicting.bring(2);
            }
        });
        for page in [1, 2] {
            assert!(frame.read(page).is_none_or(|bytes| bytes == page));
        }
        evictor.join().expect("it only evicts");
    });
}

/// What is placed in a page is in its file when the page leaves the memory, whenever a write-back came between.
///
/// # Panics
/// The page left, or counts as clean, with bytes that the file does not have.
pub fn no_placed_byte_leaves_unwritten() {
    explore(|| {
        let (frame, file) = (frame(1), Arc::new(AtomicU64::new(1)));
        let placing = Arc::clone(&frame);
        let placer = thread::spawn(move || placing.place(1, 7));
        let (writing, written) = (Arc::clone(&frame), Arc::clone(&file));
        let writer = thread::spawn(move || writing.write_back(&written));
        let was_evicted = frame.header.try_evict();
        let is_placed = placer.join().expect("it only places");
        writer.join().expect("it only writes");
        let is_clean = frame.header.flags() & (DIRTY | QUEUED) == 0;
        if is_placed && (was_evicted || is_clean) {
            assert!(file.load(Ordering::Relaxed) == 7, "placed, and nowhere");
        }
    });
}

/// Two placements and a write-back: what the file lacks is still dirty.
///
/// # Panics
/// A page is clean with bytes that the file does not have.
pub fn a_page_placed_during_its_write_back_stays_dirty() {
    explore(|| {
        let (frame, file) = (frame(1), Arc::new(AtomicU64::new(1)));
        frame.place(1, 5);
        let placing = Arc::clone(&frame);
        let placer = thread::spawn(move || placing.place(1, 7));
        frame.write_back(&file);
        placer.join().expect("it only places");
        let is_clean = frame.header.flags() & DIRTY == 0;
        assert!(!is_clean || file.load(Ordering::Relaxed) == 7);
        assert!(frame.header.flags() & LOST == 0);
    });
}

/// Two threads place in one page; one of them then looks for what has to be written.
///
/// # Panics
/// The look finds nothing, so that a flush would be answered without the bytes.
pub fn who_placed_in_a_page_finds_it_to_write() {
    explore(|| {
        let (frame, stack) = (frame(1), Arc::new(Stack::new()));
        let (placing, noting) = (Arc::clone(&frame), Arc::clone(&stack));
        let other = thread::spawn(move || noting.note(&placing.header, 0));
        stack.note(&frame.header, 0);
        let mut found = 0;
        stack.take(|_| &frame.header, |_| found += 1);
        assert!(found == 1, "placed, and nobody would write it");
        other.join().expect("it only notes");
    });
}
