//! Decides how long an engine spins before it sleeps: the window grows after sleeps that were short
//! and shrinks after long ones.
//!
//! ```text
//!   event inside the window ............... keep
//!   slept, event within 200 us in all ..... double: 0 -> 10 -> 20 .. -> 200 us
//!   slept longer .......................... halve:  .. 20 -> 10 -> 0
//!   pushed off the core while spinning .... at most 10 us for the next rounds
//! ```
//!
//! A sleep and wake costs about 20 us of processor time and 20-40 us of latency on a 2-core
//! virtual machine, so below some 30 us spinning is both faster and cheaper. Predicting the gap
//! by an average was rejected: the measured gap then contains the wake-up itself, and the
//! predictor locks itself into sleeping.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::interface::PollPolicy;

/// The state of one engine's window; also for loops that are compared with an engine and must
/// wait as it does.
#[derive(Debug)]
pub struct PollWindow {
    policy: PollPolicy,
    window: Duration,
    guard: CrowdGuard,
}

impl PollWindow {
    /// A window that has seen nothing yet.
    pub fn new(policy: PollPolicy) -> Self {
        Self { policy, window: FIRST, guard: CrowdGuard::default() }
    }

    /// Waits for `ready`: spins the window, then calls `sleep`, which returns when there may be
    /// something.
    pub fn wait(&mut self, mut ready: impl FnMut() -> bool, sleep: impl FnOnce()) {
        let began = Instant::now();
        self.look_around(began);
        let spin = self.spin_for();
        while spin.is_none_or(|spin| began.elapsed() < spin) {
            if ready() {
                return;
            }
            std::hint::spin_loop();
        }
        sleep();
        self.slept(began.elapsed(), true);
    }

    /// How long to spin now. `None`: for ever.
    pub(crate) fn spin_for(&self) -> Option<Duration> {
        match self.policy {
            PollPolicy::Spin => None,
            PollPolicy::Block => Some(Duration::ZERO),
            PollPolicy::Fixed(micros) => Some(Duration::from_micros(u64::from(micros))),
            PollPolicy::Adaptive => Some(self.window.min(self.guard.cap)),
        }
    }

    /// Checks at intervals whether this thread has to queue for its core.
    pub(crate) fn look_around(&mut self, now: Instant) {
        // A look costs three system calls, and is left out for a window that the guard would not
        // cut: a late event soon closes a window that an early event among late ones has opened.
        let can_be_cut = self.policy == PollPolicy::Adaptive && self.window > CROWDED;
        if can_be_cut && self.guard.is_due(now) {
            let queued = queued_for_core();
            self.guard.observe(now, queued);
        }
    }

    /// Records the end of a wait that slept: an event came `waited` after the wait began, or
    /// (`came` false) none did.
    pub(crate) fn slept(&mut self, waited: Duration, came: bool) {
        if came && waited < LONGEST {
            self.window = (self.window * 2).clamp(FIRST, LONGEST);
        } else {
            self.window /= 2;
            if self.window < FIRST {
                self.window = Duration::ZERO;
            }
        }
    }
}

/// Caps the window while other threads want the core of this thread: spinning would then only delay
/// them, and often the peer that this engine waits for is one of them.
#[derive(Debug)]
struct CrowdGuard {
    cap: Duration,
    looked: Option<(Instant, Duration)>,
}

impl Default for CrowdGuard {
    fn default() -> Self {
        Self { cap: LONGEST, looked: None }
    }
}

impl CrowdGuard {
    fn is_due(&self, now: Instant) -> bool {
        self.looked.is_none_or(|(then, _)| now.duration_since(then) >= LOOK_EVERY)
    }

    /// `queued` is the time this thread has ever spent runnable without a core.
    fn observe(&mut self, now: Instant, queued: Option<Duration>) {
        let Some(queued) = queued else {
            // The host has no such file, or the thread is new: look again later.
            self.looked = Some((now, Duration::ZERO));
            return;
        };
        if let Some((then, queued_then)) = self.looked {
            let lately = queued.saturating_sub(queued_then);
            let crowded = lately * CROWDED_PART > now.duration_since(then);
            self.cap = if crowded { CROWDED } else { LONGEST };
        }
        self.looked = Some((now, queued));
    }
}

/// The second number of schedstat: nanoseconds spent runnable and not running. About 2 us to
/// read, so once per [`LOOK_EVERY`] it is not seen in any measurement.
fn queued_for_core() -> Option<Duration> {
    let mut text = [0; 96];
    let file = File::open("/proc/thread-self/schedstat").ok()?;
    let len = file.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..len)?).ok()?;
    let nanos = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

const FIRST: Duration = Duration::from_micros(10);
const LONGEST: Duration = Duration::from_micros(200);
/// The longest window on a crowded core.
const CROWDED: Duration = FIRST;
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A core is crowded if the thread queued for more than one part in this many of its time.
const CROWDED_PART: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_events_after_sleep_widen_the_window_and_late_ones_close_it() {
        let mut window = PollWindow::new(PollPolicy::Adaptive);
        let widths: Vec<_> = (0..6)
            .map(|_| {
                window.slept(Duration::from_micros(150), true);
                window.spin_for().unwrap().as_micros()
            })
            .collect();
        assert_eq!(widths, [20, 40, 80, 160, 200, 200]);
        let widths: Vec<_> = (0..7)
            .map(|_| {
                window.slept(Duration::from_millis(3), true);
                window.spin_for().unwrap().as_micros()
            })
            .collect();
        assert_eq!(widths, [100, 50, 25, 12, 0, 0, 0]);
        window.slept(Duration::from_micros(150), true);
        assert_eq!(window.spin_for(), Some(FIRST), "a closed window opens again");
    }

    #[test]
    fn silence_closes_the_window_however_short_the_wait_was() {
        let mut window = PollWindow::new(PollPolicy::Adaptive);
        window.slept(Duration::from_micros(100), false);
        assert_eq!(window.spin_for(), Some(Duration::ZERO));
    }

    #[test]
    fn the_window_of_the_other_policies_never_changes() {
        for (policy, spin) in [
            (PollPolicy::Spin, None),
            (PollPolicy::Block, Some(Duration::ZERO)),
            (PollPolicy::Fixed(50), Some(Duration::from_micros(50))),
        ] {
            let mut window = PollWindow::new(policy);
            window.slept(Duration::from_micros(1), true);
            assert_eq!(window.spin_for(), spin);
        }
    }

    #[test]
    fn a_crowded_core_caps_the_window_while_it_is_crowded() {
        let start = Instant::now();
        let mut guard = CrowdGuard::default();
        assert!(guard.is_due(start));
        guard.observe(start, Some(Duration::from_millis(1)));
        let later = start + LOOK_EVERY;
        assert!(guard.is_due(later) && !guard.is_due(later - Duration::from_nanos(1)));
        guard.observe(later, Some(Duration::from_millis(6)));
        assert_eq!(guard.cap, CROWDED, "5 of 20 ms queued");
        guard.observe(later + LOOK_EVERY, Some(Duration::from_millis(7)));
        assert_eq!(guard.cap, LONGEST, "1 of 20 ms queued");
    }

    #[test]
    fn only_a_window_that_can_be_cut_costs_a_look() {
        let mut window = PollWindow::new(PollPolicy::Adaptive);
        let start = Instant::now();
        for (waited, looks) in [(10, true), (3000, false), (3000, false), (150, false), (150, true)]
        {
            window.slept(Duration::from_micros(waited), true);
            window.guard = CrowdGuard::default();
            window.look_around(start);
            assert_eq!(window.guard.looked.is_some(), looks, "{:?}", window.spin_for());
        }
    }

    #[test]
    fn this_host_reports_how_long_a_thread_was_queued() {
        assert!(queued_for_core().is_some());
    }
}
