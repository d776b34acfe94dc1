//! How an engine waits: it works, spins as long as its window says, then sleeps.

use std::time::{Duration, Instant};

use super::poll_window::PollWindow;

/// What the loop needs of an engine.
pub(crate) trait Waiting {
    /// Does a round of work. `true`: something was done.
    fn work(&mut self) -> bool;

    /// Whether there is an event for the owner, or a call of another thread; the call is taken.
    fn has_news(&mut self) -> bool;

    /// What time it is.
    fn now(&self) -> Instant;

    /// How long to spin.
    fn window(&mut self) -> &mut PollWindow;

    /// Sleeps until an event comes, `left` is over or a deadline of the engine is due. Returns at
    /// once if work is queued.
    fn sleep(&mut self, idle_since: Instant, left: Option<Duration>);
}

/// [`crate::Engine::wait`].
#[inline]
pub(crate) fn wait(engine: &mut impl Waiting, timeout: Option<Duration>) {
    let start = engine.now();
    let mut idle_since = start;
    engine.window().look_around(start);
    loop {
        let worked = engine.work();
        if engine.has_news() {
            return;
        }
        let now = engine.now();
        let left = timeout.map(|timeout| timeout.saturating_sub(now - start));
        if left == Some(Duration::ZERO) {
            return;
        }
        if worked {
            idle_since = now;
            continue;
        }
        let idle = now - idle_since;
        if engine.window().spin_for().is_some_and(|window| idle >= window) {
            engine.sleep(idle_since, left);
            idle_since = engine.now();
            engine.window().look_around(idle_since);
        } else {
            std::hint::spin_loop();
        }
    }
}
