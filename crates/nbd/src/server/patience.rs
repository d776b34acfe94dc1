//! How long a connection looks for bytes before its thread sleeps.
//!
//! A sleep and a wake cost about 20 µs of processor time and 20 to 40 µs of latency on a virtual machine
//! (docs/measurements.md), so looking for less than that is faster and cheaper. The window doubles when bytes came
//! soon after the thread had gone to sleep, and halves when they did not: an idle connection does not spin.

use std::time::{Duration, Instant};

/// The window of a connection.
#[derive(Debug)]
pub(super) struct Patience {
    window: Duration,
}

impl Patience {
    pub(super) const fn new() -> Self {
        Self { window: WINDOW_MIN }
    }

    /// Looks until `look` finds something or the window is over.
    pub(super) fn spin<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        if let Some(found) = look() {
            return Some(found);
        }
        if self.window.is_zero() {
            return None;
        }
        let began = Instant::now();
        while began.elapsed() < self.window {
            for _ in 0..PAUSES {
                std::hint::spin_loop();
            }
            if let Some(found) = look() {
                return Some(found);
            }
        }
        None
    }

    /// Sleeps in `wait`, and learns from how long that took.
    pub(super) fn sleep<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let found = wait();
        self.window = match began.elapsed() < SOON {
            true => (self.window * 2).clamp(WINDOW_MIN, WINDOW_MAX),
            false => {
                let half = self.window / 2;
                if half < WINDOW_MIN { Duration::ZERO } else { half }
            }
        };
        found
    }
}

const WINDOW_MIN: Duration = Duration::from_micros(10);
/// A client that thinks for longer than this is not worth a processor.
const WINDOW_MAX: Duration = Duration::from_micros(80);
/// Bytes that come this soon would have come within a window.
const SOON: Duration = Duration::from_micros(100);
/// Pauses between two looks: a look is a system call.
const PAUSES: u32 = 16;
