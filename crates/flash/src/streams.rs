//! The sequential readers of one file.

use std::sync::atomic::{AtomicU64, Ordering};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_where_the_last_one_ended_is_a_stream() {
        let streams = Streams::new();
        assert!(!streams.missed(10, 11));
        assert!(!streams.missed(500, 501));
        assert!(streams.missed(11, 12));
        // Its window was read ahead: it misses again behind that.
        assert!(!streams.missed(12, 13));
        assert!(streams.missed(12 + WINDOW, 13 + WINDOW));
    }
}
