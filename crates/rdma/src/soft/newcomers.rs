//! Incoming connections until they are answered: their number is bounded, and this module chooses
//! which is dropped for the next.
//!
//! ```text
//!   accept(2) --> half open --whole request--> asked --owner's answer--> (gone from here)
//!                     |                          |
//!                     | oldest, when full        | oldest, when full and
//!                     v                          v more than half are asked
//!                   dropped                    dropped
//! ```
//!
//! The oldest is dropped, not the newest. The request of an honest peer arrives a round trip after
//! its connection, most often before the connection is even accepted; to have it dropped, a flood
//! must fill the whole table within that time. If the newest were refused, an attacker could keep
//! everybody out by filling the table with silent connections once per deadline.
//!
//! A connection that has asked is about to be answered and is spared, up to half of the places.
//! Beyond that half, a flood of complete requests that the owner answers more slowly would leave no
//! place in which others can ask. Such a flood drops the oldest of the connections that asked.

use std::collections::VecDeque;

use super::incoming::Incoming;
use basics::{Key, Table};

/// See the module.
#[derive(Debug)]
pub(super) struct Newcomers {
    table: Table<Incoming>,
    half_open: Ages,
    asked: Ages,
    asked_count: usize,
    max: usize,
}

impl Newcomers {
    pub(super) fn new(max: u32) -> Self {
        Self {
            table: Table::new(max),
            half_open: Ages::default(),
            asked: Ages::default(),
            asked_count: 0,
            max: usize::try_from(max).expect("32 bits fit usize"),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Inserts a connection; `None` when the table is full.
    pub(super) fn insert(&mut self, incoming: Incoming) -> Option<Key> {
        let key = self.table.insert(incoming).ok()?;
        let table = &self.table;
        self.half_open.note(key, self.max, |key| is_half_open(table, key));
        Some(key)
    }

    /// The connection to drop before another comes; `None` while there is room.
    pub(super) fn in_the_way(&mut self) -> Option<Key> {
        if !self.table.is_full() {
            return None;
        }
        let table = &self.table;
        let half_open = self.half_open.oldest(|key| is_half_open(table, key));
        let spared = self.asked_count <= self.max / 2;
        half_open.filter(|_| spared).or_else(|| self.asked.oldest(|key| is_asked(table, key)))
    }

    pub(super) fn get(&self, key: Key) -> Option<&Incoming> {
        self.table.get(key)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Incoming> {
        self.table.get_mut(key)
    }

    pub(super) fn at(&mut self, index: u32) -> Option<(Key, &mut Incoming)> {
        self.table.at(index)
    }

    /// Notes that the owner is being asked about this connection.
    pub(super) fn asks(&mut self, key: Key) {
        let Some(incoming) = self.table.get_mut(key).filter(|incoming| !incoming.asked) else {
            return;
        };
        incoming.asked = true;
        self.asked_count += 1;
        let table = &self.table;
        self.asked.note(key, self.max, |key| is_asked(table, key));
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Incoming> {
        let incoming = self.table.remove(key)?;
        self.asked_count -= usize::from(incoming.asked);
        Some(incoming)
    }
}

fn is_half_open(table: &Table<Incoming>, key: Key) -> bool {
    table.get(key).is_some_and(|incoming| !incoming.asked)
}

fn is_asked(table: &Table<Incoming>, key: Key) -> bool {
    table.get(key).is_some_and(|incoming| incoming.asked)
}

/// Keys in the order of arrival. A key that is no longer wanted stays until it is met, or until
/// there are twice as many keys as the table has places: a few steps for each arrival.
#[derive(Debug, Default)]
struct Ages {
    keys: VecDeque<Key>,
}

impl Ages {
    fn note(&mut self, key: Key, max: usize, is_meant: impl Fn(Key) -> bool) {
        if self.keys.len() >= 2 * max {
            self.keys.retain(|key| is_meant(*key));
        }
        self.keys.push_back(key);
    }

    fn oldest(&mut self, is_meant: impl Fn(Key) -> bool) -> Option<Key> {
        while let Some(key) = self.keys.front().copied() {
            if is_meant(key) {
                return Some(key);
            }
            self.keys.pop_front();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_dropped_connections_do_not_pile_up() {
        let mut ages = Ages::default();
        let key = |index| Key { index, generation: 0 };
        for index in 0..1000 {
            // The first key stays wanted, and every other key is unwanted when the next comes.
            ages.note(key(index), 4, |key| key.index == 0);
            assert!(ages.keys.len() <= 8);
        }
        assert_eq!(ages.oldest(|key| key.index == 0), Some(key(0)));
        assert_eq!(ages.oldest(|key| key.index == 999), Some(key(999)));
        assert_eq!(ages.oldest(|_| false), None);
    }
}
