//! Clocks that stand still until a test moves them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::TimeSource;

/// A monotonic clock and a wall clock that go on together when they are told to, and otherwise
/// stand still. The wall clock can be set besides, back too.
///
/// Tokio's timers do not follow it: they fire when the kernel's time has come, also where this clock stands still.
#[derive(Debug)]
pub struct ManualClock {
    shown: Mutex<Shown>,
}

#[derive(Clone, Copy, Debug)]
struct Shown {
    now: Instant,
    time_of_day: SystemTime,
}

impl ManualClock {
    /// Clocks that begin at this time of day. Where the monotonic clock begins means nothing, as
    /// always; only differences do.
    pub fn at(time_of_day: SystemTime) -> Self {
        Self { shown: Mutex::new(Shown { now: Instant::now(), time_of_day }) }
    }

    /// Lets time pass on both clocks.
    ///
    /// # Panics
    /// Where a clock would leave its range: the test asks for more than centuries.
    pub fn advance(&self, by: Duration) {
        let mut shown = self.lock();
        shown.now += by;
        shown.time_of_day += by;
    }

    /// Sets the wall clock alone, forward or back.
    pub fn set_time_of_day(&self, time_of_day: SystemTime) {
        self.lock().time_of_day = time_of_day;
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TimeSource for ManualClock {
    fn now(&self) -> Instant {
        self.lock().now
    }

    fn time_of_day(&self) -> SystemTime {
        self.lock().time_of_day
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_stand_still_until_they_are_advanced_together() {
        let clock = ManualClock::at(SystemTime::UNIX_EPOCH);
        let start = clock.now();
        assert_eq!(clock.now(), start);
        clock.advance(SECOND);
        assert_eq!(clock.now() - start, SECOND);
        assert_eq!(clock.time_of_day(), SystemTime::UNIX_EPOCH + SECOND);
    }

    #[test]
    fn setting_the_wall_clock_back_leaves_the_monotonic_clock() {
        let clock = ManualClock::at(SystemTime::UNIX_EPOCH + SECOND);
        let start = clock.now();
        clock.set_time_of_day(SystemTime::UNIX_EPOCH);
        assert_eq!(clock.time_of_day(), SystemTime::UNIX_EPOCH);
        assert_eq!(clock.now(), start);
    }

    const SECOND: Duration = Duration::from_secs(1);
}
