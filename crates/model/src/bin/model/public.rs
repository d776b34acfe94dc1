//! What all clients may know of each other's files: the facts that are certain, and whether they
//! still are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A locked range.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Range {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) exclusive: bool,
}

impl Range {
    pub(crate) fn overlaps(&self, offset: u64, length: u64) -> bool {
        self.offset < offset + length && offset < self.offset + self.length
    }

    /// Whether a lock that the same open holds keeps `other` from being taken.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        let stacks = self.exclusive && !other.exclusive;
        self.overlaps(other.offset, other.length) && (self.exclusive || other.exclusive) && !stacks
    }
}

/// The facts about a file that are certain.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Known {
    /// Counts changes: while the count stays, the facts were certain all the time.
    pub(crate) turn: u64,
    /// `None` while its owner changes it.
    pub(crate) content: Option<Arc<Vec<u8>>>,
    /// Locks that the owner certainly holds, also while it has no connection.
    pub(crate) locks: Vec<Range>,
}

/// All files.
#[derive(Debug, Default)]
pub(crate) struct Public(Mutex<BTreeMap<String, Known>>);

impl Public {
    pub(crate) fn change(&self, path: &str, change: impl FnOnce(&mut Known)) {
        let mut files = self.lock();
        let known = files.entry(path.to_owned()).or_default();
        known.turn += 1;
        change(known);
    }

    pub(crate) fn known(&self, path: &str) -> Known {
        self.lock().get(path).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
