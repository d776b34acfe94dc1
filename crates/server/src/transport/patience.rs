//! How long a peer may leave an answer unreceived.
//!
//! ```text
//!   receives something, however little, within 60 s       ---> may go on for ever
//!  nothing for 60 s                                      ---> dropped
//!  others wait for the memory: less than 64 KiB in 5 s,  ---> dropped
//!                       or than an eighth of what it holds
//! ```
//!
//! A slow peer is not dead, whatever the length of the answer. But a peer that receives a byte at times would hold shared
//! memory, so it has to receive more when others want the memory: they get it after 40 s. With 64 KiB alone eight guests
//! who send 8 MiB each would keep the room of all guests for ten minutes, at 100 KB/s together.

use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{
    WRITE_PART_WANTED, WRITE_PATIENCE, WRITE_PATIENCE_WANTED, WRITE_PROGRESS_WANTED,
};

/// See the module. Uses no socket.
#[derive(Debug)]
pub(super) struct Patience {
    /// When the peer had received so many bytes, since when it has received none.
    last: (Instant, u64),
    /// The beginning of the span in which the peer has to receive enough, if others want its
    /// memory.
    span: (Instant, u64),
    /// The bytes of the peer's memory that others have wanted since then.
    wanted: Option<usize>,
}

impl Patience {
    /// Begins with an answer that waits; the peer has received `taken` bytes so far.
    pub(super) fn starting(now: Instant, taken: u64) -> Self {
        Self { last: (now, taken), span: (now, taken), wanted: None }
    }

    /// The latest time of the next check.
    pub(super) fn look_at(&self) -> Instant {
        self.span.0 + LOOK_EVERY
    }

    /// Whether the peer is to be dropped, after it has received `taken` bytes. `wanted`: how many bytes it holds, if
    /// others wait for some of them.
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
            // Others wanted the memory from the beginning of the span: the peer had all of that
            // time.
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
    fn a_slow_peer_is_not_dropped_while_it_receives_something() {
        let begin = Instant::now();
        let mut patience = Patience::starting(begin, 0);
        for round in 1..1_000_u32 {
            assert!(!patience.is_over(begin + SECOND * 59 * round, u64::from(round), || None));
        }
    }

    #[test]
    fn a_peer_that_receives_nothing_is_dropped_after_a_minute() {
        let begin = Instant::now();
        let mut patience = Patience::starting(begin, 7);
        for second in 1..60 {
            assert!(!patience.is_over(begin + SECOND * second, 7, || None), "{second} s");
        }
        assert!(patience.is_over(begin + SECOND * 60, 7, || None));
    }

    #[test]
    fn a_peer_too_slow_with_memory_that_others_want_is_dropped_soon() {
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
    fn a_peer_with_much_memory_that_others_want_frees_it_in_time() {
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
