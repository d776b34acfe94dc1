//! How long a peer may leave an answer untaken.
//!
//! ```text
//!  takes something, however little, within 60 s          ---> may go on for ever
//!  nothing for 60 s                                      ---> dropped
//!  others wait for the memory: less than 64 KiB in 5 s,  ---> dropped
//!                       or than an eighth of what it holds
//! ```
//!
//! A slow peer is no dead one, whatever the length of the answer. But a peer that takes a byte now and then
//! would hold memory that is shared, so it is asked for more when that is wanted: who waits for it has it after 40 s. With
//! 64 KiB alone eight guests who send 8 MiB each would keep the room of all guests for ten minutes, at 100 KB/s together.

use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{
    WRITE_PART_WANTED, WRITE_PATIENCE, WRITE_PATIENCE_WANTED, WRITE_PROGRESS_WANTED,
};

/// See the module. Knows no socket.
#[derive(Debug)]
pub(super) struct Patience {
    /// When the peer had taken so much, and has taken nothing since.
    last: (Instant, u64),
    /// The beginning of the span in which it has to take enough, if that is wanted.
    span: (Instant, u64),
    /// So much memory of the peer's others have wanted since then.
    wanted: Option<usize>,
}

impl Patience {
    /// An answer waits; the peer has taken so many bytes up to now.
    pub(super) fn starting(now: Instant, taken: u64) -> Self {
        Self { last: (now, taken), span: (now, taken), wanted: None }
    }

    /// When to look again, at the latest.
    pub(super) fn look_at(&self) -> Instant {
        self.span.0 + LOOK_EVERY
    }

    /// Whether the peer has to go, now that it has taken so many bytes. `wanted`: how many bytes it holds, if others wait
    /// for some of them.
    pub(super) fn is_over(
        &mut self,
        now: Instant,
        taken: u64,
        wanted: impl FnOnce() -> Option<usize>,
    ) -> bool {
        if taken > self.last.1 {
            self.last = (now, taken);
        }
        if now.duration_since(self.span.0) >= LOOK_EVERY {
            let wanted = wanted();
            // Wanted from the beginning of the span: the peer had all of it.
            if let (Some(held), Some(_)) = (self.wanted, wanted) {
                let part = u64::try_from(held).unwrap_or(u64::MAX) / WRITE_PART_WANTED;
                if taken - self.span.1.min(taken) < part.max(WRITE_PROGRESS_WANTED) {
                    return true;
                }
            }
            (self.span, self.wanted) = ((now, taken), wanted);
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
            assert!(!patience.is_over(begin + SECOND * 59 * round, u64::from(round), || None));
        }
    }

    #[test]
    fn a_peer_that_takes_nothing_is_dropped_after_a_minute() {
        let begin = Instant::now();
        let mut patience = Patience::starting(begin, 7);
        for second in 1..60 {
            assert!(!patience.is_over(begin + SECOND * second, 7, || None), "{second} s");
        }
        assert!(patience.is_over(begin + SECOND * 60, 7, || None));
    }

    #[test]
    fn a_peer_that_takes_too_little_of_what_others_want_is_dropped_soon() {
        let begin = Instant::now();
        let mut patience = Patience::starting(begin, 0);
        assert!(
            !patience.is_over(begin + SECOND * 5, 100, || Some(1)),
            "wanted since a moment ago"
        );
        assert!(patience.is_over(begin + SECOND * 10, 200, || Some(1)));

        let mut patience = Patience::starting(begin, 0);
        for round in 1..100 {
            let taken = WRITE_PROGRESS_WANTED * u64::from(round);
            assert!(
                !patience.is_over(begin + SECOND * 5 * round, taken, || Some(1)),
                "fast enough"
            );
        }
    }

    #[test]
    fn a_peer_that_holds_much_of_what_others_want_gives_it_back_in_time() {
        let (begin, held) = (Instant::now(), 8 << 20);
        let trickles = |per_span: u64| {
            let mut patience = Patience::starting(begin, 0);
            let mut gone = (1..9).map(|span| begin + SECOND * 5 * span).zip(1..);
            gone.any(|(now, span)| patience.is_over(now, per_span * span, || Some(held)))
        };
        assert!(trickles(WRITE_PROGRESS_WANTED));
        assert!(!trickles(1 << 20), "all of it within 40 s");
    }
}
