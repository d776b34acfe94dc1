//! Read-ahead for streams: the pages behind a sequential reader are on their way before it asks.
//!
//! ```text
//!   reader misses at the page where its last run ended:   a stream
//!   |======= read =======|--- window, first half ---|M-- second half --|
//!                                                    ^ the first use of page M asks for the next window
//! ```
//!
//! The engine that finds the mark on a page may wait for nothing, so it leaves the number of the page in one of a few
//! places and wakes a thread. A request that is overwritten by a newer one is lost, which costs one miss.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, Thread};

use crate::pool::Pool;

/// Requests for read-ahead, and the thread that carries them out.
#[derive(Debug)]
pub(crate) struct Ahead {
    places: [Place; PLACES],
    next: AtomicU64,
    thread: OnceLock<Thread>,
}

/// A request: the file's number and one, and the first page.
#[derive(Debug, Default)]
struct Place {
    file: AtomicU64,
    page: AtomicU64,
}

impl Ahead {
    pub(crate) fn new() -> Self {
        let places = std::array::from_fn(|_| Place::default());
        Self { places, next: AtomicU64::new(0), thread: OnceLock::new() }
    }

    pub(crate) fn start(pool: &Arc<Pool>) -> io::Result<()> {
        let weak = Arc::downgrade(pool);
        let builder = thread::Builder::new().name("flash-reader".to_owned());
        let handle = builder.spawn(move || run(&weak))?;
        let _ = pool.ahead.thread.set(handle.thread().clone());
        Ok(())
    }

    /// Asks for the window of a stream that begins at a page. Waits for nothing.
    pub(crate) fn ask(&self, file: u32, page: u64) {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % PLACES as u64;
        let place = &self.places[usize::try_from(next).expect("a few")];
        place.page.store(page, Ordering::Relaxed);
        place.file.store(u64::from(file) + 1, Ordering::Release);
        self.ring();
    }

    pub(crate) fn ring(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Two requests in one place at the same moment may give the file of one and the page of the other: a useless read.
    fn take(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.places.iter().filter_map(|place| {
            let file = place.file.swap(0, Ordering::AcqRel).checked_sub(1)?;
            Some((u32::try_from(file).ok()?, place.page.load(Ordering::Relaxed)))
        })
    }
}

fn run(pool: &Weak<Pool>) {
    loop {
        let Some(pool) = pool.upgrade() else { return };
        let asked: Vec<(u32, u64)> = pool.ahead.take().collect();
        for (file, page) in &asked {
            if let Some(file) = pool.file(*file) {
                file.read_ahead(*page);
            }
        }
        drop(pool);
        if asked.is_empty() {
            thread::park();
        }
    }
}

/// The streams of one file that are followed at once: the page where each will go on.
#[derive(Debug)]
pub(crate) struct Streams {
    next: [AtomicU64; STREAMS],
    turn: AtomicU64,
}

impl Streams {
    pub(crate) fn new() -> Self {
        let next = std::array::from_fn(|_| AtomicU64::new(u64::MAX));
        Self { next, turn: AtomicU64::new(0) }
    }

    /// Notes a miss of the pages from `first` up to `end`; `true` if a stream goes on there.
    pub(crate) fn missed(&self, first: u64, end: u64) -> bool {
        let known = self.next.iter().find(|next| next.load(Ordering::Relaxed) == first);
        if let Some(next) = known {
            // A stream whose window was read ahead misses again at its end.
            next.store(end + WINDOW, Ordering::Relaxed);
            return true;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % STREAMS as u64;
        self.next[usize::try_from(turn).expect("a few")].store(end, Ordering::Relaxed);
        false
    }
}

/// Pages of a window of read-ahead: 512 KiB.
pub(crate) const WINDOW: u64 = 128;
const STREAMS: usize = 16;
/// Requests that wait at once.
const PLACES: usize = 32;
