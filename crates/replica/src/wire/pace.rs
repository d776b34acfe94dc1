//! A cap on the bytes that a link sends in a second.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::options::{Cap, LinkOptions};

/// A bucket that fills at the rate of its cap, and may be owed to.
#[derive(Debug)]
pub(super) struct Pace {
    cap: Cap,
    /// When all that was sent so far is paid for.
    paid: Instant,
}

impl Pace {
    pub(super) fn new(cap: Cap, now: Instant) -> Self {
        Self { cap, paid: now }
    }

    /// One for all connections of a link.
    pub(super) fn shared(options: &LinkOptions) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self::new(options.bandwidth.clone(), Instant::now())))
    }

    /// Bytes in a second at most, if that is capped.
    pub(super) fn per_second(&self) -> Option<u64> {
        self.cap.per_second().map(std::num::NonZeroU64::get)
    }

    /// How many of `len` bytes go at once: with a low cap so few that the other end hears something several times in a second.
    pub(super) fn piece(&self, len: usize) -> usize {
        let most = self.per_second().map_or(u64::MAX, |cap| (cap / PIECES).max(PIECE_MIN));
        usize::try_from(most).map_or(len, |most| most.min(len))
    }

    /// How long to wait before `len` bytes are sent.
    pub(super) fn wait(&mut self, len: usize, now: Instant) -> Duration {
        let Some(per_second) = self.cap.per_second() else { return Duration::ZERO };
        let wait = self.paid.saturating_duration_since(now).saturating_sub(BURST);
        let cost =
            u128::try_from(len).unwrap_or(u128::MAX) * NS_PER_SECOND / u128::from(per_second.get());
        let cost = Duration::from_nanos(u64::try_from(cost).unwrap_or(u64::MAX));
        self.paid = self.paid.max(now) + cost;
        wait
    }
}

/// Pieces of what is sent in a second, at least.
const PIECES: u64 = 8;
const PIECE_MIN: u64 = 1024;
const NS_PER_SECOND: u128 = 1_000_000_000;
/// What was not sent in so long may be sent at once: a wait that is shorter costs more than it saves.
const BURST: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    #[test]
    fn a_second_of_waits_carries_what_the_rate_says() {
        let begin = Instant::now();
        let cap = Cap::from(NonZeroU64::new(10_000_000));
        let mut pace = Pace::new(cap.clone(), begin);
        let (mut now, mut sent) = (begin, 0);
        while now < begin + Duration::from_secs(1) {
            now += pace.wait(100_000, now);
            sent += 100_000;
        }
        assert!((10_000_000..=10_200_000).contains(&sent), "{sent}");
        // What was not used is not saved up.
        now += Duration::from_secs(100);
        assert_eq!(pace.wait(1_000_000, now), Duration::ZERO);
        assert_eq!(pace.wait(1, now), Duration::from_millis(95));
        cap.set(None);
        assert_eq!(pace.wait(1_000_000, now), Duration::ZERO);
    }
}
