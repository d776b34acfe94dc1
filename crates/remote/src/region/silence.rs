//! Answer timeout that counts only the time in which the owner polls.
//!
//! An owner that was busy elsewhere for a minute, while the answer lay in a socket buffer, must not
//! treat the server as silent when it polls again.

use std::time::{Duration, Instant};

/// Time spent polling without an answer.
#[derive(Debug)]
pub(crate) struct Silence {
    limit: Duration,
    lasted: Duration,
    /// The time of the last poll, if it found nothing.
    looked: Option<Instant>,
}

impl Silence {
    /// No answer is awaited yet.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, lasted: Duration::ZERO, looked: None }
    }

    /// An answer came, or none is awaited.
    pub(crate) fn end(&mut self) {
        self.lasted = Duration::ZERO;
        self.looked = None;
    }

    /// Notes a poll without an answer; returns whether the timeout is over.
    pub(crate) fn is_too_long(&mut self, now: Instant) -> bool {
        self.look(now)
    }

    /// How long a wait between two polls may last to be counted in full.
    pub(crate) fn look_every(&self) -> Duration {
        LOOK_UP.min(self.limit / 2)
    }

    fn look(&mut self, now: Instant) -> bool {
        if let Some(before) = self.looked.replace(now) {
            let gap = now.saturating_duration_since(before);
            self.lasted = self.lasted.saturating_add(gap.min(self.look_every()));
        }
        self.lasted >= self.limit
    }
}

// How often a waiting owner checks whether its time is over or the region was recalled.
const LOOK_UP: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn polls_without_an_answer_add_up_to_the_timeout() {
        let (mut silence, start) = (Silence::new(SECOND), Instant::now());
        assert!(!silence.look(start));
        assert!(!silence.look(start + SECOND / 2));
        assert!(silence.look(start + SECOND));
    }

    #[test]
    fn time_without_polls_does_not_count() {
        let (mut silence, start) = (Silence::new(30 * SECOND), Instant::now());
        assert!(!silence.look(start));
        assert!(!silence.look(start + 3600 * SECOND));
    }

    #[test]
    fn an_answer_ends_it() {
        let (mut silence, start) = (Silence::new(SECOND), Instant::now());
        assert!(!silence.look(start));
        assert!(!silence.look(start + SECOND / 2));
        silence.end();
        assert!(!silence.look(start + SECOND));
        assert!(!silence.look(start + SECOND + SECOND / 2));
    }
}
