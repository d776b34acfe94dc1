//! Persistent opens that an earlier server has left and that are not restored yet.
//!
//! ```text
//!   log of opens --> left over --+--> restored, and an orphan
//!                       ^        +--> given up: its file is gone, or its user's rights, or its time is over
//!                       +--------+    undecided: the medium fails, descriptors are used up
//! ```
//!
//! As long as an open is left over no other client opens its file: the file would be taken from the client
//! that reconnects.
//!
//! Spec: MS-SMB2 §3.3.5.9.12 (the reconnect of a persistent open).

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::journal::OpenNote;
use super::name::SharePath;
use crate::lock_order as order;
use basics::ordered::{Mutex, MutexGuard};

/// The opens of one share that are left over.
#[derive(Debug)]
pub struct LeftOver {
    notes: Mutex<Notes, order::LeftOvers>,
    /// The number of left-over opens: it is mostly zero, and then no request takes a lock.
    count: AtomicUsize,
    /// Held while one of them is being restored.
    trying: Mutex<(), order::Restoring>,
}

/// Notes by the serials of their opens, and the number of notes for each inode.
#[derive(Debug, Default)]
struct Notes {
    of_serial: BTreeMap<u64, Waiting>,
    of_inode: HashMap<u64, usize>,
}

impl Notes {
    fn insert(&mut self, waiting: Waiting) {
        *self.of_inode.entry(waiting.note.inode).or_default() += 1;
        if let Some(before) = self.of_serial.insert(waiting.note.serial, waiting) {
            self.forget(&before);
        }
    }

    fn remove(&mut self, serial: u64) {
        if let Some(waiting) = self.of_serial.remove(&serial) {
            self.forget(&waiting);
        }
    }

    fn forget(&mut self, waiting: &Waiting) {
        let inode = waiting.note.inode;
        if let Some(count) = self.of_inode.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                self.of_inode.remove(&inode);
            }
        }
    }
}

#[derive(Debug)]
struct Waiting {
    note: OpenNote,
    since: Instant,
}

impl Waiting {
    // No open waits longer for its client.
    fn is_over(&self, now: Instant) -> bool {
        let patience = Duration::from_millis(u64::from(self.note.timeout_ms));
        now.saturating_duration_since(self.since) >= patience
    }
}

impl LeftOver {
    /// The opens left over at `since`.
    pub(super) fn new(left_over: Vec<OpenNote>, since: Instant) -> Self {
        let mut notes = Notes::default();
        left_over.into_iter().for_each(|note| notes.insert(Waiting { note, since }));
        let count = AtomicUsize::new(notes.of_serial.len());
        Self { notes: Mutex::new(notes), count, trying: Mutex::default() }
    }

    /// Whether no open is left over.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Whether an open of this file is left over.
    pub fn is_of(&self, inode: u64) -> bool {
        !self.is_empty() && self.lock().of_inode.contains_key(&inode)
    }

    /// Whether an open of a file below a directory is left over.
    pub fn is_below(&self, directory: &SharePath) -> bool {
        let is_there =
            |name: &String| SharePath::parse(name).is_ok_and(|path| path.is_below(directory));
        let is_below = |note: &OpenNote| is_there(&note.path) || note.earlier.iter().any(is_there);
        !self.is_empty() && self.lock().of_serial.values().any(|waiting| is_below(&waiting.note))
    }

    /// Whether this open of this user is left over.
    pub fn has(&self, serial: u64, user: &str) -> bool {
        let is_of_user = |waiting: &Waiting| waiting.note.user == user;
        !self.is_empty() && self.lock().of_serial.get(&serial).is_some_and(is_of_user)
    }

    /// The right to try to restore them. `None`: another thread is trying, and may wait for a disk.
    pub fn begin(&self) -> Option<Trying<'_>> {
        let one = self.trying.try_lock()?;
        Some(Trying { left_over: self, _one: one })
    }

    fn lock(&self) -> MutexGuard<'_, Notes, order::LeftOvers> {
        self.notes.lock()
    }
}

/// The right of one thread to restore left-over opens.
#[derive(Debug)]
pub struct Trying<'a> {
    left_over: &'a LeftOver,
    _one: MutexGuard<'a, (), order::Restoring>,
}

impl Trying<'_> {
    /// The notes of left-over opens.
    pub fn notes(&self) -> Vec<OpenNote> {
        self.left_over.lock().of_serial.values().map(|waiting| waiting.note.clone()).collect()
    }

    /// The note of this open, if it is left over.
    pub fn note(&self, serial: u64) -> Option<OpenNote> {
        self.left_over.lock().of_serial.get(&serial).map(|waiting| waiting.note.clone())
    }

    /// Opens whose time is over at `now`.
    pub fn expired(&self, now: Instant) -> Vec<OpenNote> {
        let notes = self.left_over.lock();
        let over = notes.of_serial.values().filter(|waiting| waiting.is_over(now));
        over.map(|waiting| waiting.note.clone()).collect()
    }

    /// Removes an open that was restored or lost.
    pub fn settle(&self, serial: u64) {
        let mut notes = self.left_over.lock();
        notes.remove(serial);
        self.left_over.count.store(notes.of_serial.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::super::journal::note_of_test;
    use super::*;

    #[test]
    fn one_thread_at_a_time_restores_left_over_opens_until_they_expire() {
        let left_over = LeftOver::new(vec![note_of_test(1), note_of_test(2)], Instant::now());
        let trying = left_over.begin().unwrap();
        assert!(left_over.begin().is_none());
        trying.settle(1);
        assert!(
            left_over.has(2, "user") && !left_over.has(2, "other") && !left_over.has(1, "user")
        );
        let now = Instant::now();
        assert_eq!(trying.expired(now), []);
        let patience = Duration::from_millis(u64::from(note_of_test(2).timeout_ms));
        assert_eq!(trying.expired(now + patience), [note_of_test(2)]);
        trying.settle(2);
        assert!(left_over.is_empty() && !left_over.is_of(note_of_test(2).inode));
        drop(trying);
        assert!(left_over.begin().is_some());
    }

    #[test]
    fn a_file_with_left_over_opens_is_closed_to_other_clients() {
        let of = |serial, inode| OpenNote { inode, ..note_of_test(serial) };
        let left_over = LeftOver::new(vec![of(1, 7), of(2, 7), of(3, 8)], Instant::now());
        let trying = left_over.begin().unwrap();
        for (settled, of_7, of_8) in
            [(1, true, true), (1, true, true), (3, true, false), (2, false, false)]
        {
            trying.settle(settled);
            assert_eq!((left_over.is_of(7), left_over.is_of(8)), (of_7, of_8));
            assert_eq!(trying.note(settled), None);
        }
        assert!(left_over.is_empty());
    }
}
