//! What of a compound is done before others of its thread have their turn.

use std::time::Instant;

use crate::limits::{IO_INLINE_MAX, REACTOR_TURN_MAX};

/// See the module.
pub(super) struct Shift {
    begun: Instant,
    /// Bytes of answers when it began.
    made: usize,
    requests: usize,
}

impl Shift {
    /// It begins, with so many bytes of answers made.
    pub(super) fn begin(now: Instant, made: usize) -> Self {
        Self { begun: now, made, requests: 0 }
    }

    /// Whether it is over now that one more request is done, and so many bytes of answers are made.
    pub(super) fn is_over(&mut self, now: Instant, made: usize) -> bool {
        self.requests += 1;
        self.requests >= SHIFT_REQUESTS
            || made.saturating_sub(self.made) >= IO_INLINE_MAX
            || now.duration_since(self.begun) >= REACTOR_TURN_MAX
    }
}

/// Requests of a compound carried out in a row, unless they come to [`IO_INLINE_MAX`] or [`REACTOR_TURN_MAX`] before: what clients chain for one file is shorter.
const SHIFT_REQUESTS: usize = 16;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_compound_gives_up_its_thread_after_16_requests_a_mib_or_a_millisecond() {
        let begun = Instant::now();
        let requests = |each: Duration, bytes: usize| {
            let mut shift = Shift::begin(begun, 100);
            (1..).find(|done| {
                let count = u32::try_from(*done).unwrap();
                shift.is_over(begun + each * count, 100 + bytes * done)
            })
        };
        assert_eq!(requests(Duration::ZERO, 0), Some(16));
        assert_eq!(requests(Duration::ZERO, IO_INLINE_MAX / 4), Some(4));
        assert_eq!(requests(REACTOR_TURN_MAX / 2, 0), Some(2));
        assert_eq!(requests(REACTOR_TURN_MAX, 0), Some(1));
    }
}
