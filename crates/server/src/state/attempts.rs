//! Failed logons by address: who guesses is made to wait.
//!
//! Each address may fail some times in a row and gets the chances back one by one as time passes. One that
//! has none left is refused before anything is compared, so that waiting cannot be told from being wrong
//! by the time it takes. A logon that succeeds gives all chances back.
//!
//! Spec: none; Windows Server delays each failed NTLM logon by two seconds.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Failed logons of all addresses.
#[derive(Debug, Default)]
pub(crate) struct FailedLogons(Mutex<HashMap<IpAddr, Failures>>);

/// Those of one address.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    /// When the count was right; it falls by one each [`CHANCE_EACH`].
    at: Instant,
}

impl Failures {
    fn now(self, now: Instant) -> Self {
        let regained = now.saturating_duration_since(self.at).as_nanos() / CHANCE_EACH.as_nanos();
        let regained = u32::try_from(regained).unwrap_or(u32::MAX);
        if regained >= self.count {
            return Self { count: 0, at: now };
        }
        Self { count: self.count - regained, at: self.at + CHANCE_EACH * regained }
    }
}

impl FailedLogons {
    /// Whether an address has to wait before it may try again.
    pub(crate) fn must_wait(&self, address: IpAddr, now: Instant) -> bool {
        self.lock().get(&address).is_some_and(|failures| failures.now(now).count >= CHANCES)
    }

    /// Notes a failure.
    pub(crate) fn note(&self, address: IpAddr, now: Instant) {
        let mut table = self.lock();
        if table.len() >= ADDRESSES_MAX && !table.contains_key(&address) {
            table.retain(|_, failures| failures.now(now).count > 0);
            // Who has failed least has the least to be remembered.
            let least = table.iter().min_by_key(|(_, failures)| failures.now(now).count);
            if let Some(least) =
                least.map(|(address, _)| *address).filter(|_| table.len() >= ADDRESSES_MAX)
            {
                table.remove(&least);
            }
        }
        let failures = table.entry(address).or_insert(Failures { count: 0, at: now });
        *failures = failures.now(now);
        failures.count = failures.count.saturating_add(1).min(CHANCES);
    }

    /// Forgets the failures of an address that has logged on.
    pub(crate) fn forgive(&self, address: IpAddr) {
        self.lock().remove(&address);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Failures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Failures in a row.
const CHANCES: u32 = 20;
/// When one of them is given back: 1,200 guesses an hour and address.
const CHANCE_EACH: Duration = Duration::from_secs(3);
/// Addresses remembered: some hundred KiB.
const ADDRESSES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_guesses_has_to_wait_and_gets_its_chances_back() {
        let (failed, start) = (FailedLogons::default(), Instant::now());
        let (guesser, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        for _ in 0..CHANCES {
            assert!(!failed.must_wait(guesser, start));
            failed.note(guesser, start);
        }
        assert!(failed.must_wait(guesser, start) && !failed.must_wait(other, start));
        assert!(failed.must_wait(guesser, start + CHANCE_EACH / 2));
        let later = start + CHANCE_EACH;
        assert!(!failed.must_wait(guesser, later));
        failed.note(guesser, later);
        assert!(failed.must_wait(guesser, later));
        failed.forgive(guesser);
        assert!(!failed.must_wait(guesser, later));
    }

    #[test]
    fn the_table_stays_bounded() {
        let (failed, now) = (FailedLogons::default(), Instant::now());
        let guesser = "192.0.2.1".parse().unwrap();
        (0..2).for_each(|_| failed.note(guesser, now));
        for number in 0..u32::try_from(2 * ADDRESSES_MAX).unwrap() {
            failed.note(IpAddr::from(number.to_be_bytes()), now);
        }
        assert!(failed.lock().len() <= ADDRESSES_MAX);
        assert!(failed.lock().contains_key(&guesser), "who failed most is remembered");
    }
}
