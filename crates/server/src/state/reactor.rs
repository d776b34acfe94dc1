//! How long requests keep a thread that others wait for: a reactor of the runtime, an engine.
//!
//! One look at the clock for each frame: the end of a turn is where the next one begins. A turn that took too long is
//! counted with its command. What is measured is the time on the wall: a thread that the system takes away meanwhile counts too.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use basics::Clock;
use serde::{Deserialize, Serialize};
use smb::Command;
use tracing::debug;

use crate::limits::REACTOR_TURN_MAX;

/// Turns that took longer than [`REACTOR_TURN_MAX`], by the command of the request.
#[derive(Debug)]
pub(crate) struct Reactor {
    clock: Clock,
    by_command: [Slow; COMMANDS],
}

#[derive(Debug, Default)]
struct Slow {
    turns: AtomicU64,
    longest_us: AtomicU64,
}

/// The turns of one command that took too long.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LongTurns {
    /// Such as `READ`.
    pub command: String,
    /// How many, since the start.
    pub turns: u64,
    /// The longest of them, in microseconds.
    pub longest_us: u64,
}

impl Reactor {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, by_command: Default::default() }
    }

    /// A turn begins.
    pub(crate) fn begin(&self) -> Instant {
        self.clock.now()
    }

    /// A request has had its turn, which began at `begun`. Returns the end of the turn.
    pub(crate) fn note(&self, begun: Instant, command: Command) -> Instant {
        let now = self.clock.now();
        let took = now.saturating_duration_since(begun);
        if took > REACTOR_TURN_MAX {
            let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            // A command that nobody knows counts as the last one, which no client may send.
            let slow = &self.by_command[usize::from(command.0).min(COMMANDS - 1)];
            slow.turns.fetch_add(1, Ordering::Relaxed);
            slow.longest_us.fetch_max(us, Ordering::Relaxed);
            debug!(?command, us, "a request kept a thread that others wait for");
        }
        now
    }

    /// How many took too long.
    pub(crate) fn long_turns(&self) -> u64 {
        self.by_command.iter().map(|slow| slow.turns.load(Ordering::Relaxed)).sum()
    }

    /// Microseconds of the longest of them.
    pub(crate) fn longest_us(&self) -> u64 {
        let longest = self.by_command.iter().map(|slow| slow.longest_us.load(Ordering::Relaxed));
        longest.max().unwrap_or(0)
    }

    /// The commands that took too long, the one with the longest turn first.
    pub(crate) fn offenders(&self) -> Vec<LongTurns> {
        let row = |(code, slow): (u16, &Slow)| LongTurns {
            command: format!("{:?}", Command(code)),
            turns: slow.turns.load(Ordering::Relaxed),
            longest_us: slow.longest_us.load(Ordering::Relaxed),
        };
        let mut rows: Vec<_> = (0_u16..).zip(&self.by_command).map(row).collect();
        rows.retain(|row| row.turns > 0);
        rows.sort_by_key(|row| std::cmp::Reverse(row.longest_us));
        rows
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
        let begun = self.reactor.begin();
        let outcome = self.work.as_mut().poll(context);
        self.reactor.note(begun, self.command);
        outcome
    }
}

/// Commands of MS-SMB2 §2.2.1.2, and one place for all others.
const COMMANDS: usize = 20;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use basics::{ManualClock, TimeSource};

    use super::*;

    #[test]
    fn only_a_turn_that_takes_too_long_is_counted() {
        let time = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH));
        let reactor = Reactor::new(Clock::given(Arc::clone(&time) as Arc<dyn TimeSource>));
        let begun = reactor.begin();
        time.advance(REACTOR_TURN_MAX);
        reactor.note(begun, Command::READ);
        assert_eq!((reactor.long_turns(), reactor.longest_us()), (0, 0));
        assert_eq!(reactor.offenders(), []);
        time.advance(REACTOR_TURN_MAX);
        reactor.note(begun, Command::READ);
        assert_eq!((reactor.long_turns(), reactor.longest_us()), (1, 2_000));
        reactor.note(begun, Command(0xffff));
        let rows = reactor.offenders();
        assert!(rows.iter().any(|row| row.command == "READ" && row.turns == 1), "{rows:?}");
        assert_eq!((rows.len(), reactor.long_turns()), (2, 2));
    }
}
