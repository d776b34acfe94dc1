//! Requests for read-ahead: the pages behind a sequential reader are on their way before it asks.
//!
//! ```text
//!   reader misses at the page where its last run ended:   a stream
//!   |======= read =======|--- window, first half ---|M-- second half --|
//!                                                    ^ the first use of page M asks for the next window
//! ```
//!
//! The engine that finds the mark on a page may wait for nothing, so it leaves the number of the page in one of a few
//! places and wakes a thread. A request that is overwritten by a newer one is lost, which costs one miss.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::bell::Bell;

/// See the module.
#[derive(Debug)]
pub(crate) struct Ahead {
    places: [Place; PLACES],
    next: AtomicU64,
    pub(crate) bell: Bell,
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
        Self { places, next: AtomicU64::new(0), bell: Bell::new() }
    }

    /// Asks for the window of a stream that begins at a page. Waits for nothing.
    pub(crate) fn ask(&self, file: u32, page: u64) {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % PLACES as u64;
        let place = &self.places[usize::try_from(next).expect("a few")];
        place.page.store(page, Ordering::Relaxed);
        place.file.store(u64::from(file) + 1, Ordering::Release);
        self.bell.ring();
    }

    /// Two requests in one place at the same moment may give the file of one and the page of the other: a useless read.
    pub(crate) fn take(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.places.iter().filter_map(|place| {
            let file = place.file.swap(0, Ordering::AcqRel).checked_sub(1)?;
            Some((u32::try_from(file).ok()?, place.page.load(Ordering::Relaxed)))
        })
    }
}

/// Requests that wait at once.
const PLACES: usize = 32;
