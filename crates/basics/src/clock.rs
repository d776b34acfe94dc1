//! Two clocks: one that only goes forward, and the time of day.

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// A monotonic clock and a wall clock. Clones show the same time.
#[derive(Clone)]
pub struct Clock(Source);

// An enum and not a trait object alone: engines read the clock in each round. The kernel's clock behind this branch
// took 41 to 46 ns a read, without it 40 to 45 ns (two processors of a virtual machine, busy, 2026-11-23).
#[derive(Clone)]
enum Source {
    Host,
    Given(Arc<dyn TimeSource>),
}

impl Clock {
    /// The kernel's clocks.
    pub const fn host() -> Self {
        Self(Source::Host)
    }

    /// A clock that shows what `source` says.
    pub fn given(source: Arc<dyn TimeSource>) -> Self {
        Self(Source::Given(source))
    }

    /// The monotonic clock: never less than at an earlier call.
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::Host => Instant::now(),
            Source::Given(source) => source.now(),
        }
    }

    /// The wall clock, which may be set back.
    pub fn time_of_day(&self) -> SystemTime {
        match &self.0 {
            Source::Host => SystemTime::now(),
            Source::Given(source) => source.time_of_day(),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Host => "Clock(host)",
            Source::Given(_) => "Clock(given)",
        })
    }
}

/// Clocks that a test or a simulator keeps.
pub trait TimeSource: Send + Sync {
    /// The monotonic clock. Never goes back.
    fn now(&self) -> Instant;

    /// The wall clock.
    fn time_of_day(&self) -> SystemTime;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ManualClock;

    #[test]
    fn the_clock_of_the_host_reads_the_kernel_s_clock() {
        let (before, clock) = (Instant::now(), Clock::host());
        let shown = clock.now();
        assert!(before <= shown && shown <= Instant::now());
    }

    #[test]
    fn clones_of_a_given_clock_show_one_time() {
        let source = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH));
        let clock = Clock::given(Arc::clone(&source) as Arc<dyn TimeSource>);
        let (clone, start) = (clock.clone(), clock.now());
        source.advance(Duration::from_secs(7));
        assert_eq!(clone.now() - start, Duration::from_secs(7));
        assert_eq!(clone.now(), clock.now());
    }
}
