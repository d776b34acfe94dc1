//! How long a peer may leave an answer untaken.
//!
//! ```text
//!  takes something, however little, within 60 s          ---> may go on for ever
//!  nothing for 60 s                                      ---> dropped
//!  others wait for the memory: less than 64 KiB in 5 s   ---> dropped
//! ```
//!
//! A slow peer is no dead one, whatever the length of the answer. But a peer that takes a byte now and then
//! would hold memory that is shared, so it is asked for more when that is wanted.

use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{WRITE_PATIENCE, WRITE_PATIENCE_WANTED, WRITE_PROGRESS_WANTED};

/// See the module. Knows no socket.
#[derive(Debug)]
pub(super) struct Patience {
    /// When the peer had taken so much, and has taken nothing since.
    last: (Instant, u64),
    /// The beginning of the span in which it has to take enough, if that is wanted.
    span: (Instant, u64),
    was_wanted: bool,
}

impl Patience {
    /// An answer waits; the peer has taken so many bytes up to now.
    pub(super) fn starting(now: Instant, taken: u64) -> Self {
        Self { last: (now, taken), span: (now, taken), was_wanted: false }
    }

    /// When to look again, at the latest.
    pub(super) fn look_at(&self) -> Instant {
        self.span.0 + LOOK_EVERY
    }

    /// Whether the peer has to go, now that it has taken so many bytes.
    pub(super) fn is_over(&mut self, now: Instant, taken: u64, is_wanted: bool) -> bool {
        if taken > self.last.1 {
            self.last = (now, taken);
        }
        if now.duration_since(self.span.0) >= LOOK_EVERY {
            let is_slow = taken - self.span.1.min(taken) < WRITE_PROGRESS_WANTED;
            // Wanted from the beginning of the span: the peer had all of it.
            if is_slow && is_wanted && self.was_wanted {
                return true;
            }
            (self.span, self.was_wanted) = ((now, taken), is_wanted);
        }
        now.duration_since(self.last.0) >= WRITE_PATIENCE
    }
}

const LOOK_EVERY: Duration = WRITE_PATIENCE_WANTED;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_slow_peer_is_not_dropped_while_it_takes_something() {
        let begin = Instant::now();
        let mut patience = Patience::starting(begin, 0);
        for round in 1..1_000_u32 {
            assert!(!patience.is_over(begin + SECOND * 59 * round, u64::from(round), false));
        }
    }

    #[test]
    fn a_peer_that_takes_nothing_is_dropped_after_a_minute() {
        let begin = Instant::now();
        let mut patience = Patience::starting(begin, 7);
        for second in 1..60 {
            assert!(!patience.is_over(begin + SECOND * second, 7, false), "{second} s");
        }
        assert!(patience.is_over(begin + SECOND * 60, 7, false));
    }

    #[test]
    fn a_peer_that_takes_too_little_of_what_others_want_is_dropped_soon() {
        let begin = Instant::now();
        let mut patience = Patience::starting(begin, 0);
        assert!(!patience.is_over(begin + SECOND * 5, 100, true), "wanted since a moment ago");
        assert!(patience.is_over(begin + SECOND * 10, 200, true));

        let mut patience = Patience::starting(begin, 0);
        for round in 1..100 {
            let taken = WRITE_PROGRESS_WANTED * u64::from(round);
            assert!(!patience.is_over(begin + SECOND * 5 * round, taken, true), "fast enough");
        }
    }
}
