//! Checks every crash state against the claims acknowledged before the crash.

use std::fmt;

use super::{CrashPoint, Log, Replay};

/// The claims acknowledged as durable to a program, each with its position in the log.
#[derive(Clone, Debug)]
pub struct AckLog<T> {
    entries: Vec<(usize, T)>,
}

impl<T> AckLog<T> {
    /// A log without acknowledgements.
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Notes that `claim` was acknowledged at `position`: the value of
    /// [`super::Recorder::position`] after the acknowledgement.
    pub fn note(&mut self, position: usize, claim: T) {
        let after = self.entries.partition_point(|(at, _)| *at <= position);
        self.entries.insert(after, (position, claim));
    }

    /// The claims acknowledged after at most `position` events, oldest first.
    pub fn up_to(&self, position: usize) -> &[(usize, T)] {
        &self.entries[..self.entries.partition_point(|(at, _)| *at <= position)]
    }
}

impl<T> Default for AckLog<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Limits the work of a check.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// States tried at each point: all states if there are at most this many, else this many samples.
    pub states_per_point: u64,
    /// Selects the samples. The same seed tries the same states.
    pub seed: u64,
}

/// One state that the medium may be in after the crash.
#[derive(Debug)]
pub struct CrashState<'a, T> {
    /// The bytes of the medium.
    pub image: &'a [u8],
    /// How many events had happened.
    pub at: usize,
    /// The claims acknowledged before the crash, oldest first.
    pub acknowledged: &'a [(usize, T)],
}

/// Simulates a crash after every event of `log`, and calls `holds` with each resulting state.
///
/// Returns the number of states that `holds` accepted.
///
/// # Errors
///
/// The first state that `holds` refuses.
pub fn check<T, E>(
    log: &Log,
    acknowledged: &AckLog<T>,
    budget: Budget,
    mut holds: impl FnMut(CrashState<'_, T>) -> Result<(), E>,
) -> Result<u64, Violation<E>> {
    let mut replay = Replay::new(log);
    let mut image = Vec::new();
    let mut shown = 0;
    loop {
        let point = replay.point();
        let at = point.at();
        let acknowledged = acknowledged.up_to(at);
        let exhaustive = point.count().filter(|count| *count <= budget.states_per_point);
        for number in 0..exhaustive.unwrap_or(budget.states_per_point) {
            let seed = make(&point, exhaustive.is_some(), number, budget.seed, &mut image);
            holds(CrashState { image: &image, at, acknowledged }).map_err(|error| Violation {
                at,
                state: seed,
                error,
            })?;
            shown += 1;
        }
        if !replay.step() {
            return Ok(shown);
        }
    }
}

fn make(point: &CrashPoint<'_>, all: bool, number: u64, seed: u64, image: &mut Vec<u8>) -> StateId {
    if all {
        point.nth(number, image);
        return StateId::Nth(number);
    }
    // The first two samples are the two ends; after them the budget's seed takes part.
    let sample = match number {
        0 | 1 => number,
        _ => (seed ^ (number << 32)).wrapping_add(number).max(2),
    };
    point.sample(sample, image);
    StateId::Sample(sample)
}

/// A state that breaks a promise, with the data that reproduces the state.
#[derive(Clone, Debug)]
pub struct Violation<E> {
    /// How many events had happened.
    pub at: usize,
    /// The state at that point.
    pub state: StateId,
    /// The error that `holds` returned.
    pub error: E,
}

/// Names a state of a [`CrashPoint`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StateId {
    /// Made by [`CrashPoint::nth`].
    Nth(u64),
    /// Made by [`CrashPoint::sample`].
    Sample(u64),
}

impl<E: fmt::Display> fmt::Display for Violation<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, state, error } = self;
        write!(f, "a crash after event {at} may leave state {state:?}: {error}")
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for Violation<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_counts_from_the_position_of_its_note() {
        let mut log = AckLog::new();
        log.note(5, "later");
        log.note(2, "sooner");
        assert_eq!(log.up_to(1), []);
        assert_eq!(log.up_to(4), [(2, "sooner")]);
        assert_eq!(log.up_to(5), [(2, "sooner"), (5, "later")]);
    }

    #[test]
    fn the_first_samples_are_the_two_ends_whatever_the_seed() {
        let events = (0..64_usize).map(|word| crate::crash::Event::Stream {
            cpu: 0,
            offset: word * 64,
            bytes: vec![1; 64],
        });
        let class = crate::DurabilityClass::Pmem;
        let log = Log { class, initial: vec![0; 4096], events: events.collect() };
        for seed in [0, 1, 0x5eed] {
            let mut last = Vec::new();
            let holds = |state: CrashState<'_, ()>| {
                if state.at == 64 {
                    last.push(state.image.to_vec());
                }
                Ok::<(), ()>(())
            };
            check(&log, &AckLog::new(), Budget { states_per_point: 2, seed }, holds).unwrap();
            assert_eq!(last, [vec![0; 4096], vec![1; 4096]]);
        }
    }

    #[test]
    fn a_violation_names_the_event_and_the_state() {
        let violation = Violation { at: 7, state: StateId::Sample(3), error: "lost" };
        let text = "a crash after event 7 may leave state Sample(3): lost";
        assert_eq!(violation.to_string(), text);
    }
}
