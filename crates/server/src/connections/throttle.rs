//! How often passwords may be guessed.
//!
//! ```text
//!  store of              holds   one comes back every   bounds
//!  source and user name  10      2 s                    guesses at one user from one address: 10 at once,
//!                        64      15 s                   70 in two minutes, then 5,760 a day
//!  source address        128     2 s                    guesses at many users from one address: 128 at once,
//!                                                       then 43,200 a day
//!  user name             64      10 s                   guesses at one user from many addresses: 64 at once, and
//!                                                       2 more from each address
//! ```
//!
//! An attempt takes one of each before the password is looked at, so that attempts side by side gain nothing; a client
//! that proves to know the password gets them back. An attempt that finds one of the first three stores empty takes
//! what will come back next, and is answered when that has come back, whatever the password, alike for users that exist
//! and users that do not. Attempts side by side wait for one each. An attempt that would wait longer than
//! [`HELD_FOR_MAX`], or beside too many others, is refused at once: that password is not looked at.
//!
//! Failures from other addresses keep nobody out: the store of a name alone makes nobody wait. While it is empty, an
//! address from which this user has not logged on has 2 attempts instead of 10 and 64. An address from which this user
//! has logged on does not depend on its neighbours either: the store of the address does not count for that user.
//!
//! A store is one time: when it will be full again, if nobody takes from it. Each take moves that time on by as long as
//! one takes to come back. The tables are bounded; names are kept as keyed hashes; there is no clock in here.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::lock_order as order;
use basics::ordered::{Mutex, MutexGuard};
/// The failed logons of all connections.
#[derive(Debug)]
pub(crate) struct Throttle {
    names: RandomState,
    tables: Mutex<Tables, order::Connections>,
    held: AtomicUsize,
}

#[derive(Debug)]
struct Tables {
    pairs: Table<(Source, User)>,
    patient: Table<(Source, User)>,
    sources: Table<Source>,
    users: Table<User>,
}

/// An attempt whose password may be looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    source: Source,
    user: User,
    /// Nobody is to know before what came of it.
    pub(crate) answer_at: Instant,
    /// Whether the store of the source gave for it.
    is_stranger: bool,
}

/// An answer that is held back. The number of those is bounded.
#[derive(Debug)]
pub(crate) struct Held(Arc<Throttle>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Too many failures: the password is not looked at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TooMany;

impl Throttle {
    pub(crate) fn new() -> Self {
        let tables = Tables {
            pairs: Table::new(PAIR),
            patient: Table::new(PATIENT_PAIR),
            sources: Table::new(SOURCE),
            users: Table::new(USER),
        };
        let held = AtomicUsize::new(0);
        Self { names: RandomState::new(), tables: Mutex::new(tables), held }
    }

    /// Takes an attempt at `user`, as the client wrote it, from `source`. It counts as failed until
    /// [`Throttle::succeeded`] or [`Throttle::undecided`].
    pub(crate) fn begin(
        &self,
        source: IpAddr,
        user: &str,
        now: Instant,
    ) -> Result<Attempt, TooMany> {
        let (source, user) = (Source::of(source), self.name(user));
        let pair = (source, user);
        let mut tables = self.lock();
        let is_stranger = !tables.pairs.is_proven(&pair);
        let hunted = is_stranger && !tables.users.wait(&user, USER.holds, now).is_zero();
        let holds = |store: Store| if hunted { PAIR_HOLDS_WHILE_HUNTED } else { store.holds };
        let mut wait = tables.pairs.wait(&pair, holds(PAIR), now);
        wait = wait.max(tables.patient.wait(&pair, holds(PATIENT_PAIR), now));
        if is_stranger {
            wait = wait.max(tables.sources.wait(&source, SOURCE.holds, now));
        }
        if wait > HELD_FOR_MAX {
            return Err(TooMany);
        }
        tables.pairs.take(pair, now);
        tables.patient.take(pair, now);
        tables.users.take(user, now);
        if is_stranger {
            tables.sources.take(source, now);
        }
        Ok(Attempt { source, user, answer_at: now + wait, is_stranger })
    }

    /// Has room for one more answer that is held back; `None` if there is none.
    pub(crate) fn hold(self: &Arc<Self>) -> Option<Held> {
        let held = Held(Arc::clone(self));
        (self.held.fetch_add(1, Ordering::AcqRel) < HELD_MAX).then_some(held)
    }

    /// The password was right: this user's failures from this source are forgotten.
    pub(crate) fn succeeded(&self, attempt: Attempt, now: Instant) {
        let mut tables = self.lock();
        tables.give_back(attempt);
        tables.pairs.set_proven((attempt.source, attempt.user), now);
        tables.patient.set_proven((attempt.source, attempt.user), now);
    }

    /// It did not come to the password.
    pub(crate) fn undecided(&self, attempt: Attempt) {
        let mut tables = self.lock();
        tables.give_back(attempt);
        tables.pairs.give_back(&(attempt.source, attempt.user));
        tables.patient.give_back(&(attempt.source, attempt.user));
    }

    // Domains and realms make no other user.
    fn name(&self, user: &str) -> User {
        let name = user.split_once('@').map_or(user, |(name, _realm)| name);
        User(self.names.hash_one(name.to_lowercase()))
    }

    fn lock(&self) -> MutexGuard<'_, Tables, order::Connections> {
        self.tables.lock()
    }
}

impl Tables {
    fn give_back(&mut self, attempt: Attempt) {
        self.users.give_back(&attempt.user);
        if attempt.is_stranger {
            self.sources.give_back(&attempt.source);
        }
    }
}

/// Where attempts come from: an address, or in IPv6 the network a customer is given at least.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Source(IpAddr);

impl Source {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(six) => {
                let [a, b, c, d, ..] = six.segments();
                Self(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
            four @ IpAddr::V4(_) => Self(four),
        }
    }
}

/// A name's keyed hash: two names of one hash share their stores, which nobody can bring about.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct User(u64);

/// How a kind of store is laid out.
#[derive(Clone, Copy, Debug)]
struct Store {
    holds: u32,
    one_every: Duration,
    /// Stores of this kind.
    len_max: usize,
}

#[derive(Debug)]
struct Table<K> {
    store: Store,
    entries: HashMap<K, Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// When the store is full again; past where it is full.
    full_at: Instant,
    /// The right password was given once.
    proven: bool,
}

impl<K: Copy + Eq + Hash> Table<K> {
    fn new(store: Store) -> Self {
        Self { store, entries: HashMap::new() }
    }

    /// How long until there is one for the next attempt, in a store that holds so many.
    fn wait(&self, key: &K, holds: u32, now: Instant) -> Duration {
        let left = now + self.store.one_every * (holds - 1);
        self.entries
            .get(key)
            .map_or(Duration::ZERO, |entry| entry.full_at.saturating_duration_since(left))
    }

    fn is_proven(&self, key: &K) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.proven)
    }

    fn take(&mut self, key: K, now: Instant) {
        let one_every = self.store.one_every;
        let entry = self.entry(key, now);
        entry.full_at = entry.full_at.max(now) + one_every;
    }

    fn give_back(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.full_at -= self.store.one_every;
        }
    }

    fn set_proven(&mut self, key: K, now: Instant) {
        *self.entry(key, now) = Entry { full_at: now, proven: true };
    }

    fn entry(&mut self, key: K, now: Instant) -> &mut Entry {
        if self.entries.len() >= self.store.len_max && !self.entries.contains_key(&key) {
            self.make_room(now);
        }
        self.entries.entry(key).or_insert(Entry { full_at: now, proven: false })
    }

    // Full stores say nothing but who was proven, and go first. If that is not half of them, those go too that are
    // full next: a table is gone through once for many newcomers, not for each.
    fn make_room(&mut self, now: Instant) {
        let keep = self.store.len_max / 2;
        self.entries.retain(|_, entry| entry.full_at > now);
        if self.entries.len() > keep {
            let mut times: Vec<_> = self.entries.values().map(|entry| entry.full_at).collect();
            let at = times.len() - keep;
            let (_, last_to_go, _) = times.select_nth_unstable(at - 1);
            let limit = *last_to_go;
            self.entries.retain(|_, entry| entry.full_at > limit);
        }
    }
}

// Ten: what Windows gives before it locks an account. Two seconds: by which it delays its answers.
const PAIR: Store = Store { holds: 10, one_every: Duration::from_secs(2), len_max: 32_768 };
// Then 5,760 a day. No longer than clients wait for an answer.
const PATIENT_PAIR: Store =
    Store { holds: 64, one_every: Duration::from_secs(15), len_max: 32_768 };
const PAIR_HOLDS_WHILE_HUNTED: u32 = 2;
// An office behind one address mistypes less.
const SOURCE: Store = Store { holds: 128, one_every: Duration::from_secs(2), len_max: 16_384 };
/// The longest an answer is held back: smbclient waits for 20 s, a connection may take 30 s to log on.
const HELD_FOR_MAX: Duration = Duration::from_secs(16);
/// Answers held back at once, of all connections; one takes about a kilobyte.
const HELD_MAX: usize = 4_096;
const USER: Store = Store { holds: 64, one_every: Duration::from_secs(10), len_max: 16_384 };

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    // How many are answered at once.
    fn failures(throttle: &Throttle, from: IpAddr, user: &str, now: Instant) -> usize {
        let is_answered = |_: &i32| match throttle.begin(from, user, now) {
            Ok(attempt) if attempt.answer_at == now => true,
            Ok(attempt) => {
                throttle.undecided(attempt);
                false
            }
            Err(TooMany) => false,
        };
        (0..1000).take_while(is_answered).count()
    }

    // What the next one waits.
    fn wait(throttle: &Throttle, user: &str, now: Instant) -> Result<u64, TooMany> {
        let attempt = throttle.begin(address(1), user, now)?;
        Ok(attempt.answer_at.duration_since(now).as_secs())
    }

    #[test]
    fn guesses_at_one_user_end_and_come_back_one_by_one() {
        let (throttle, start) = (Throttle::new(), Instant::now());
        assert_eq!(failures(&throttle, address(1), "alice", start), 10);
        let later = start + Duration::from_millis(1_999);
        assert_eq!(failures(&throttle, address(1), "ALICE@realm", later), 0, "the same user");
        let later = start + Duration::from_secs(5);
        assert_eq!(failures(&throttle, address(1), "alice", later), 2);
        let later = start + Duration::from_secs(3600);
        assert_eq!(failures(&throttle, address(1), "alice", later), 10);
    }

    #[test]
    fn who_goes_on_guessing_waits_and_side_by_side_each_for_itself() {
        let (throttle, now) = (Throttle::new(), Instant::now());
        assert_eq!(failures(&throttle, address(1), "alice", now), 10);
        let waits: Vec<_> = (0..10).map(|_| wait(&throttle, "alice", now)).collect();
        let expected: Vec<_> =
            [2, 4, 6, 8, 10, 12, 14, 16].map(Ok).into_iter().chain([Err(TooMany); 2]).collect();
        assert_eq!(waits, expected);
        assert_eq!(wait(&throttle, "alice", now + Duration::from_secs(2)), Ok(16));
        assert_eq!(wait(&throttle, "bob", now), Ok(0));
    }

    #[test]
    fn who_waits_for_each_answer_guesses_seventy_times_and_then_four_times_a_minute() {
        let (throttle, start) = (Throttle::new(), Instant::now());
        let mut now = start;
        let mut answered = Vec::new();
        while now < start + Duration::from_secs(3600) {
            now = throttle.begin(address(1), "alice", now).unwrap().answer_at;
            answered.push(now);
        }
        let within = |seconds| {
            answered.iter().filter(|at| **at <= start + Duration::from_secs(seconds)).count()
        };
        assert_eq!((within(0), within(20), within(120)), (10, 20, 70));
        assert_eq!(within(3600) - within(3000), 600 / 15);
    }

    #[test]
    fn answers_held_back_are_bounded() {
        let throttle = Arc::new(Throttle::new());
        let held: Vec<_> = (0..HELD_MAX).map(|_| throttle.hold().unwrap()).collect();
        assert!(throttle.hold().is_none());
        drop(held);
        throttle.hold().unwrap();
    }

    #[test]
    fn the_right_password_forgets_the_wrong_ones() {
        let (throttle, now) = (Throttle::new(), Instant::now());
        for _ in 0..50 {
            for _ in 0..9 {
                throttle.begin(address(1), "alice", now).unwrap();
            }
            let attempt = throttle.begin(address(1), "alice", now).unwrap();
            throttle.succeeded(attempt, now);
        }
        assert_eq!(failures(&throttle, address(1), "alice", now), 10);
    }

    #[test]
    fn an_attempt_that_did_not_come_to_the_password_costs_nothing() {
        let (throttle, now) = (Throttle::new(), Instant::now());
        for _ in 0..500 {
            let attempt = throttle.begin(address(1), "alice", now).unwrap();
            throttle.undecided(attempt);
        }
        assert_eq!(failures(&throttle, address(1), "alice", now), 10);
    }

    #[test]
    fn guesses_at_many_users_from_one_address_end_for_all_but_who_was_there() {
        let (throttle, now) = (Throttle::new(), Instant::now());
        let attempt = throttle.begin(address(1), "alice", now).unwrap();
        throttle.succeeded(attempt, now);
        let sprayed: Vec<_> =
            (0..1000).map_while(|n| wait(&throttle, &format!("user{n}"), now).ok()).collect();
        assert_eq!(sprayed.iter().filter(|wait| **wait == 0).count(), 128);
        assert_eq!(sprayed[128..], [2, 4, 6, 8, 10, 12, 14, 16]);
        assert_eq!(throttle.begin(address(1), "bob", now).unwrap_err(), TooMany);
        assert_eq!(failures(&throttle, address(1), "alice", now), 10);
        assert_eq!(failures(&throttle, address(2), "bob", now), 10);
    }

    #[test]
    fn nobody_is_kept_out_by_failures_from_other_addresses() {
        let (throttle, now) = (Throttle::new(), Instant::now());
        let attempt = throttle.begin(address(250), "alice", now).unwrap();
        throttle.succeeded(attempt, now);
        let guesses: usize =
            (0..200).map(|last| failures(&throttle, address(last), "alice", now)).sum();
        // Seven addresses empty the store of the name; the others have two attempts each.
        assert_eq!(guesses, 64 + 193 * 2);
        assert_eq!(failures(&throttle, address(250), "alice", now), 10, "who was there before");
        assert_eq!(failures(&throttle, address(251), "alice", now), 2, "who was never there");
    }

    #[test]
    fn the_tables_stay_bounded_and_keep_the_latest() {
        let (throttle, start) = (Throttle::new(), Instant::now());
        for n in 0..100_000_u32 {
            let from = IpAddr::from(n.to_be_bytes());
            let now = start + Duration::from_micros(u64::from(n));
            let _ = throttle.begin(from, &format!("user{n}"), now);
        }
        let now = start + Duration::from_micros(100_000);
        assert_eq!(
            failures(&throttle, IpAddr::from(99_999_u32.to_be_bytes()), "user99999", now),
            9
        );
        let tables = throttle.lock();
        assert!(tables.pairs.entries.len() <= PAIR.len_max);
        assert!(tables.patient.entries.len() <= PATIENT_PAIR.len_max);
        assert!(tables.sources.entries.len() <= SOURCE.len_max);
        assert!(tables.users.entries.len() <= USER.len_max);
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let (throttle, now) = (Throttle::new(), Instant::now());
        let host = |n: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, n]);
        let total: usize = (0..5).map(|n| failures(&throttle, host(n), "alice", now)).sum();
        assert_eq!(total, 10);
        let mapped = IpAddr::V6(std::net::Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
        assert_eq!(failures(&throttle, mapped, "alice", now), 10);
        assert_eq!(failures(&throttle, address(1), "alice", now), 0);
    }
}
