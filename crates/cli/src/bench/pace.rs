//! Decides when the next operation may be issued: the planned number at once, and a pause after
//! each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use super::plan::Dice;

/// The places for outstanding operations, and the time when each is free again.
#[derive(Debug)]
pub(crate) struct Pace {
    think: Duration,
    free: usize,
    pausing: BinaryHeap<Reverse<Instant>>,
    dice: Dice,
}

impl Pace {
    /// `outstanding` places; `think` is the mean of an exponential distribution.
    pub(crate) fn new(outstanding: usize, think: Duration) -> Self {
        let pausing = BinaryHeap::with_capacity(outstanding);
        Self { think, free: outstanding, pausing, dice: Dice::new(0) }
    }

    /// Takes a place, if one is free now.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        while self.pausing.peek().is_some_and(|Reverse(end)| *end <= now) {
            self.pausing.pop();
            self.free += 1;
        }
        if self.free == 0 {
            return false;
        }
        self.free -= 1;
        true
    }

    /// Returns the place of a finished operation: the place pauses, then is free.
    pub(crate) fn give_back(&mut self, now: Instant) {
        if self.think.is_zero() {
            self.free += 1;
        } else {
            let pause = self.think.mul_f64(-self.dice.fraction().ln());
            self.pausing.push(Reverse(now + pause));
        }
    }

    /// The time until a pausing place is free; `None` if none pauses.
    pub(crate) fn until_next(&self, now: Instant) -> Option<Duration> {
        self.pausing.peek().map(|Reverse(end)| end.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_after_its_pause() {
        let start = Instant::now();
        let mut pace = Pace::new(1, Duration::from_micros(100));
        assert!(pace.take(start) && !pace.take(start));
        pace.give_back(start);
        let pause = pace.until_next(start).unwrap();
        assert!(!pace.take(start + pause - Duration::from_nanos(1)));
        assert!(pace.take(start + pause));
    }

    #[test]
    fn without_a_pause_a_place_is_free_at_once() {
        let start = Instant::now();
        let mut pace = Pace::new(2, Duration::ZERO);
        assert!(pace.take(start) && pace.take(start) && !pace.take(start));
        pace.give_back(start);
        assert_eq!(pace.until_next(start), None);
        assert!(pace.take(start));
    }

    #[test]
    fn pauses_have_the_asked_mean() {
        let start = Instant::now();
        let think = Duration::from_micros(500);
        let mut pace = Pace::new(1, think);
        let mut sum = Duration::ZERO;
        for _ in 0..10_000 {
            pace.give_back(start);
            sum += pace.pausing.pop().unwrap().0 - start;
        }
        let mean = sum / 10_000;
        assert!(mean > think * 9 / 10 && mean < think * 11 / 10, "{mean:?}");
    }
}
