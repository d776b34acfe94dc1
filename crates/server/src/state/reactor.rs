//! How long requests keep a thread that others wait for: a reactor of the runtime, an engine.
//!
//! Two looks at the clock for each frame, and an atomic maximum for those that took too long. What is
//! measured is the time on the wall: a thread that the system takes away meanwhile counts too.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use smb::Command;
use tracing::debug;

use crate::limits::REACTOR_TURN_MAX;

/// Turns that took longer than [`REACTOR_TURN_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Reactor {
    long_turns: AtomicU64,
    longest_us: AtomicU64,
}

impl Reactor {
    /// A request has had its turn.
    pub(crate) fn note(&self, begun: Instant, command: Command) {
        let took = begun.elapsed();
        if took > REACTOR_TURN_MAX {
            let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            self.long_turns.fetch_add(1, Ordering::Relaxed);
            self.longest_us.fetch_max(us, Ordering::Relaxed);
            debug!(?command, us, "a request kept a thread that others wait for");
        }
    }

    /// How many took too long.
    pub(crate) fn long_turns(&self) -> u64 {
        self.long_turns.load(Ordering::Relaxed)
    }

    /// Microseconds of the longest of them.
    pub(crate) fn longest_us(&self) -> u64 {
        self.longest_us.load(Ordering::Relaxed)
    }
}

/// A request that goes on as a task: each of its turns is noted.
pub(crate) struct Noted<F: ?Sized> {
    pub(crate) work: Pin<Box<F>>,
    pub(crate) reactor: Arc<Reactor>,
    pub(crate) command: Command,
}

impl<F: Future + ?Sized> Future for Noted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let begun = Instant::now();
        let outcome = self.work.as_mut().poll(context);
        self.reactor.note(begun, self.command);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_turn_that_takes_too_long_is_counted() {
        let reactor = Reactor::default();
        reactor.note(Instant::now() + REACTOR_TURN_MAX, Command::READ);
        assert_eq!((reactor.long_turns(), reactor.longest_us()), (0, 0));
        let Some(long_ago) = Instant::now().checked_sub(2 * REACTOR_TURN_MAX) else { return };
        reactor.note(long_ago, Command::READ);
        assert!(reactor.long_turns() == 1 && reactor.longest_us() >= 2_000);
    }
}
