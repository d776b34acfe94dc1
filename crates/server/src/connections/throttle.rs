//! How often passwords may be guessed.
//!
//! ```text
//!                           holds   one comes back every
//!  source and user name     10      2 s      guesses at one user from one place, in haste
//!                           64      15 s     and with patience
//!  source address           128     2 s      guesses at many users from one place
//!  user name                64      10 s     guesses at one user from many places
//! ```
//!
//! An attempt takes one of each before the password is looked at, so that attempts side by side gain
//! nothing; who proves to know it gets them back. Who finds one of the first three empty takes what will
//! come back next, and is answered when it has, whatever the password, alike for users there are and users
//! there are not. Each of those who do so side by side waits for one of its own. Who would wait longer
//! than [`HELD_FOR_MAX`], or beside too many, is refused at once: that password is not looked at.
//!
//! Nobody is kept out by what others do from other addresses: the store of a name alone keeps
//! nobody waiting. While it is empty, an address that has not logged this user on has 2 attempts instead of
//! 10 and 64. Nor by a neighbour at the same address, once logged on from there: then the store of the
//! address does not count.
//!
//! The tables are bounded, names are kept as keyed hashes, and there is no clock in here.

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
        let hunted = is_stranger && tables.users.spent(&user, now) >= USER.holds;
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
    /// What is missing in the store at `since`; more than it holds where some wait.
    spent: u32,
    since: Instant,
    /// The right password was given once.
    proven: bool,
}

impl<K: Copy + Eq + Hash> Table<K> {
    fn new(store: Store) -> Self {
        Self { store, entries: HashMap::new() }
    }

    fn spent(&self, key: &K, now: Instant) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.refilled(self.store.one_every, now).spent)
    }

    /// How long until there is one for the next who takes, in a store that holds so many.
    fn wait(&self, key: &K, holds: u32, now: Instant) -> Duration {
        let one_every = self.store.one_every;
        let entry = self.entries.get(key).map(|entry| entry.refilled(one_every, now));
        match entry.filter(|entry| entry.spent >= holds) {
            Some(entry) => {
                let missing = entry.spent - holds + 1;
                (entry.since + one_every * missing).saturating_duration_since(now)
            }
            None => Duration::ZERO,
        }
    }

    fn is_proven(&self, key: &K) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.proven)
    }

    fn take(&mut self, key: K, now: Instant) {
        let entry = self.entry(key, now);
        entry.spent = entry.spent.saturating_add(1);
    }

    fn give_back(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.spent = entry.spent.saturating_sub(1);
        }
    }

    fn set_proven(&mut self, key: K, now: Instant) {
        *self.entry(key, now) = Entry { spent: 0, since: now, proven: true };
    }

    fn entry(&mut self, key: K, now: Instant) -> &mut Entry {
        if self.entries.len() >= self.store.len_max && !self.entries.contains_key(&key) {
            self.make_room(now);
        }
        let one_every = self.store.one_every;
        let entry =
            self.entries.entry(key).or_insert(Entry { spent: 0, since: now, proven: false });
        *entry = entry.refilled(one_every, now);
        entry
    }

    // Full stores say nothing but who was proven, and go first. If that is not half of them, the
    // oldest go too: a table is gone through once for many newcomers, not for each.
    fn make_room(&mut self, now: Instant) {
        let (one_every, keep) = (self.store.one_every, self.store.len_max / 2);
        self.entries.retain(|_, entry| entry.refilled(one_every, now).spent > 0);
        if self.entries.len() > keep {
            let mut ages: Vec<Instant> = self.entries.values().map(|entry| entry.since).collect();
            let at = ages.len() - keep;
            let (_, youngest_to_go, _) = ages.select_nth_unstable(at - 1);
            let limit = *youngest_to_go;
            self.entries.retain(|_, entry| entry.since > limit);
        }
    }
}

impl Entry {
    fn refilled(self, one_every: Duration, now: Instant) -> Self {
        let elapsed = now.saturating_duration_since(self.since);
        let back = elapsed.as_nanos() / one_every.as_nanos();
        match u32::try_from(back).ok().filter(|back| *back < self.spent) {
            Some(back) => {
                Self { spent: self.spent - back, since: self.since + one_every * back, ..self }
            }
            None => Self { spent: 0, since: self.since.max(now), ..self },
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
