//! How long a server has left an owner waiting that does look for its answers.
//!
//! Time counts while the owner looks: one that was busy elsewhere for a minute, with the answer
//! lying in a socket buffer all the while, must not call the server silent when it comes back.

use std::time::{Duration, Instant};

/// Time spent looking without hearing anything.
#[derive(Debug)]
pub(crate) struct Silence {
    limit: Duration,
    lasted: Duration,
    /// The look before, if it was in vain too.
    looked: Option<Instant>,
}

impl Silence {
    /// Nothing is awaited yet.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, lasted: Duration::ZERO, looked: None }
    }

    /// Something came, or nothing is awaited.
    pub(crate) fn end(&mut self) {
        self.lasted = Duration::ZERO;
        self.looked = None;
    }

    /// Notes a look in vain; whether there were enough of them.
    pub(crate) fn is_too_long(&mut self) -> bool {
        self.look(Instant::now())
    }

    /// How long a wait between two looks may last to be counted in full.
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

// How often a waiting owner looks up, to see whether time is over or the region was recalled.
const LOOK_UP: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn looks_in_vain_add_up_to_the_limit() {
        let (mut silence, start) = (Silence::new(SECOND), Instant::now());
        assert!(!silence.look(start));
        assert!(!silence.look(start + SECOND / 2));
        assert!(silence.look(start + SECOND));
    }

    #[test]
    fn time_in_which_nobody_looked_does_not_count() {
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
