//! Durable opens whose connection is gone, until their client comes back or they are given up.
//!
//! ```text
//!            connection lost, logoff             DHnC, DH2C, replay: same user, GUID, lease
//!  +------+ -------------------------> +--------+ --------------------------> +------+
//!  | Held |                            | Orphan |                             | Held | (a new object)
//!  +------+                            +--------+                             +------+
//!      | closed, tree left                 | time is over, its caching is asked for, too many,
//!      v                                   v server stops
//!  +--------+ <-----------------------------
//!  | Closed |
//!  +--------+
//! ```
//!
//! What an orphan keeps: its place among the share modes, its locks, its lease or oplock, the wish
//! to delete the file. What it does not: push regions, which end with the connection, and the
//! answers under way. The table knows no clock and no opens; it says when to look again.
//!
//! Spec: MS-SMB2 §3.3.2.2 (timer), §3.3.7.1 (loss of a connection).

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use super::serial::OpenSerial;
use crate::access::Identity;

/// Orphans by their persistent id. `T` is an open.
#[derive(Debug)]
pub(crate) struct OrphanTable<T> {
    orphans: HashMap<OpenSerial, Orphan<T>>,
    /// All of them, the one whose time is over first in front.
    deadlines: BTreeSet<(Instant, OpenSerial)>,
    of_user: HashMap<Identity, usize>,
    total_max: usize,
    of_user_max: usize,
}

#[derive(Debug)]
struct Orphan<T> {
    value: T,
    user: Identity,
    deadline: Instant,
}

impl<T> OrphanTable<T> {
    /// An empty table that never holds more than `total_max` orphans, `of_user_max` of one user.
    pub(crate) fn new(total_max: usize, of_user_max: usize) -> Self {
        let (orphans, deadlines, of_user) = Default::default();
        Self { orphans, deadlines, of_user, total_max, of_user_max }
    }

    /// Keeps an open until `deadline`; gives it back if there are too many.
    pub(crate) fn insert(
        &mut self,
        serial: OpenSerial,
        user: Identity,
        deadline: Instant,
        value: T,
    ) -> Result<(), T> {
        let count = self.of_user.get(&user).copied().unwrap_or(0);
        if self.orphans.len() >= self.total_max || count >= self.of_user_max {
            return Err(value);
        }
        self.of_user.insert(user.clone(), count + 1);
        self.deadlines.insert((deadline, serial));
        self.orphans.insert(serial, Orphan { value, user, deadline });
        Ok(())
    }

    pub(crate) fn get(&self, serial: OpenSerial) -> Option<&T> {
        self.orphans.get(&serial).map(|orphan| &orphan.value)
    }

    /// Takes one out. Of several who try only one succeeds.
    pub(crate) fn take(&mut self, serial: OpenSerial) -> Option<T> {
        let orphan = self.orphans.remove(&serial)?;
        self.deadlines.remove(&(orphan.deadline, serial));
        if let Some(count) = self.of_user.get_mut(&orphan.user) {
            *count -= 1;
            if *count == 0 {
                self.of_user.remove(&orphan.user);
            }
        }
        Some(orphan.value)
    }

    /// Takes out those whose time is over.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Vec<T> {
        let over = self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now);
        let serials: Vec<_> = over.map(|(_, serial)| *serial).collect();
        serials.into_iter().filter_map(|serial| self.take(serial)).collect()
    }

    /// When the next one's time is over.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Takes everything out.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        self.of_user.clear();
        self.deadlines.clear();
        self.orphans.drain().map(|(_, orphan)| orphan.value).collect()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.orphans.values().map(|orphan| &orphan.value)
    }

    pub(crate) fn len(&self) -> usize {
        self.orphans.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn user(name: &str) -> Identity {
        Identity::user(name)
    }

    #[test]
    fn one_user_cannot_use_up_the_room_of_the_others() {
        let (now, mut table) = (Instant::now(), OrphanTable::new(3, 2));
        table.insert(OpenSerial(1), user("a"), now, 1).unwrap();
        table.insert(OpenSerial(2), user("a"), now, 2).unwrap();
        assert_eq!(table.insert(OpenSerial(3), user("a"), now, 3), Err(3));
        table.insert(OpenSerial(4), user("b"), now, 4).unwrap();
        assert_eq!(table.insert(OpenSerial(5), user("c"), now, 5), Err(5), "full");
        assert_eq!(table.take(OpenSerial(1)), Some(1));
        assert_eq!(table.take(OpenSerial(1)), None);
        table.insert(OpenSerial(6), user("a"), now, 6).unwrap();
    }

    #[test]
    fn time_takes_those_that_are_due_and_no_others() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut table = OrphanTable::new(9, 9);
        table.insert(OpenSerial(1), user("a"), now + second, 1).unwrap();
        table.insert(OpenSerial(2), user("a"), now + 2 * second, 2).unwrap();
        assert_eq!(table.next_deadline(), Some(now + second));
        assert!(table.take_expired(now + second - Duration::from_nanos(1)).is_empty());
        assert_eq!(table.take_expired(now + second), [1]);
        assert_eq!(table.next_deadline(), Some(now + 2 * second));
        assert_eq!(table.drain(), [2]);
        assert_eq!((table.len(), table.next_deadline()), (0, None));
    }

    #[test]
    fn the_counts_of_users_follow_any_history() {
        proptest::proptest!(|(steps in proptest::collection::vec((0u8..3, 0u64..6, 0u8..3), 0..200))| {
            let (now, mut table) = (Instant::now(), OrphanTable::new(4, 2));
            for (step, serial, name) in steps {
                let serial = OpenSerial(serial);
                match step {
                    0 if table.get(serial).is_none() => {
                        let _ = table.insert(serial, user(&name.to_string()), now, name);
                    }
                    1 => drop(table.take(serial)),
                    _ => {}
                }
                proptest::prop_assert!(table.len() <= 4);
                proptest::prop_assert_eq!(table.deadlines.len(), table.len());
                for name in 0..3u8 {
                    let there = table.orphans.values().filter(|orphan| orphan.value == name);
                    let there = there.count();
                    let counted = table.of_user.get(&user(&name.to_string())).copied();
                    proptest::prop_assert_eq!(counted.unwrap_or(0), there);
                    proptest::prop_assert!(there <= 2);
                }
            }
        });
    }
}
