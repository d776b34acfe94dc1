//! CREATEs that may come again: a client that lost a channel before it had the answer sends the
//! request once more, with the replay flag and the create GUID of the first copy.
//!
//! ```text
//!               begin                 settle                   the handle is used, or closed
//!   (nothing) ---------> under way ------------> opened ------------------------> (nothing)
//!                            | failed
//!                            v
//!                        (nothing)
//! ```
//!
//! | a CREATE with the same GUID comes | with the replay flag | without |
//! |---|---|---|
//! | while the first is under way | it comes again later | refused, the GUID is taken |
//! | when it has opened the file  | gets the same open   | refused, the GUID is taken |
//! | when the open has been used  | opens anew           | opens anew |
//!
//! A client that uses a handle has its answer and does not ask again. Entries are bounded by the
//! requests under way and the opens there are: an open that others close, or that is used, before its CREATE is
//! settled gets no entry. Whoever ends an open says so first and forgets it then, and the code that enters it looks under
//! the lock of the table.
//!
//! Spec: MS-SMB2 §3.3.5.9, §3.3.5.9.10.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::lock_order as order;
use basics::ordered::{Mutex, MutexGuard};

/// Names a CREATE: which client, and the GUID it chose.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct CreateKey {
    pub(crate) client: [u8; 16],
    pub(crate) create: [u8; 16],
}

/// CREATEs that may come again. `T` is an open.
#[derive(Debug)]
pub(crate) struct Creates<T> {
    table: Mutex<Table<T>, order::Creates>,
}

#[derive(Debug)]
struct Table<T> {
    entries: HashMap<CreateKey, Entry<T>>,
    /// How many CREATEs have begun.
    begun: u64,
}

#[derive(Debug)]
enum Entry<T> {
    /// With the number of the CREATE.
    UnderWay(u64),
    Opened(Weak<T>),
}

impl<T> Entry<T> {
    fn is_of(&self, open: &T) -> bool {
        matches!(self, Self::Opened(other) if std::ptr::eq(other.as_ptr(), open))
    }
}

/// What is known of a CREATE that begins.
#[derive(Debug)]
pub(crate) enum Begun<T> {
    /// It is the first.
    First(Reservation<T>),
    /// The first copy is under way.
    UnderWay,
    /// The first copy has opened this.
    Opened(Arc<T>),
}

impl<T> Creates<T> {
    pub(crate) fn new() -> Self {
        Self { table: Mutex::new(Table { entries: HashMap::new(), begun: 0 }) }
    }

    /// A CREATE of this name begins.
    pub(crate) fn begin(self: &Arc<Self>, key: CreateKey) -> Begun<T> {
        let mut table = self.lock();
        match table.entries.get(&key) {
            Some(Entry::UnderWay(_)) => return Begun::UnderWay,
            Some(Entry::Opened(open)) => {
                if let Some(open) = open.upgrade() {
                    return Begun::Opened(open);
                }
            }
            None => {}
        }
        table.begun += 1;
        let number = table.begun;
        table.entries.insert(key, Entry::UnderWay(number));
        Begun::First(Reservation { creates: Arc::clone(self), key, number })
    }

    /// The open has been used or closed: its CREATE does not come again.
    pub(crate) fn forget(&self, key: CreateKey, open: &T) {
        let mut table = self.lock();
        // A later CREATE of the same name may have taken its place.
        if table.entries.get(&key).is_some_and(|entry| entry.is_of(open)) {
            table.entries.remove(&key);
        }
    }

    /// Another object stands for the open `old` from now on, unless `is_over` says that its CREATE does not come again.
    pub(crate) fn replace(
        &self,
        key: CreateKey,
        old: &T,
        open: &Arc<T>,
        is_over: impl FnOnce() -> bool,
    ) {
        let mut table = self.lock();
        if !is_over() {
            table.entries.insert(key, Entry::Opened(Arc::downgrade(open)));
        } else if table.entries.get(&key).is_some_and(|entry| entry.is_of(old)) {
            table.entries.remove(&key);
        }
    }

    /// An open from before the server started, which nobody has yet.
    pub(crate) fn restore(&self, key: CreateKey, open: &Arc<T>) {
        self.lock().entries.insert(key, Entry::Opened(Arc::downgrade(open)));
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    fn lock(&self) -> MutexGuard<'_, Table<T>, order::Creates> {
        self.table.lock()
    }
}

/// Keeps the name of a CREATE while it is under way. Dropped, it has failed.
#[derive(Debug)]
pub(crate) struct Reservation<T> {
    creates: Arc<Creates<T>>,
    key: CreateKey,
    number: u64,
}

impl<T> Reservation<T> {
    /// The CREATE has opened the file; `is_over`: and does not come again.
    pub(crate) fn settle(self, open: &Arc<T>, is_over: impl FnOnce() -> bool) {
        let mut table = self.creates.lock();
        if let Some(entry) = self.own(&mut table)
            && !is_over()
        {
            *entry = Entry::Opened(Arc::downgrade(open));
        }
        // What is left of the entry of this CREATE goes with `self`.
    }

    // Another object may stand for the open already, or another CREATE have taken the name of that.
    fn own<'a>(&self, table: &'a mut Table<T>) -> Option<&'a mut Entry<T>> {
        let is_own = |entry: &&mut Entry<T>| matches!(entry, Entry::UnderWay(number) if *number == self.number);
        table.entries.get_mut(&self.key).filter(is_own)
    }
}

impl<T> Drop for Reservation<T> {
    fn drop(&mut self) {
        let mut table = self.creates.lock();
        if self.own(&mut table).is_some() {
            table.entries.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CreateKey = CreateKey { client: [1; 16], create: [2; 16] };

    #[test]
    fn a_copy_meets_the_first_under_way_and_then_its_open() {
        let creates = Arc::new(Creates::new());
        let Begun::First(first) = creates.begin(KEY) else { panic!("nothing came before") };
        assert!(matches!(creates.begin(KEY), Begun::UnderWay));
        let open = Arc::new("open");
        first.settle(&open, || false);
        let Begun::Opened(found) = creates.begin(KEY) else { panic!("it is open") };
        assert!(Arc::ptr_eq(&found, &open));
        let other = CreateKey { client: [3; 16], ..KEY };
        assert!(matches!(creates.begin(other), Begun::First(_)), "another client's GUID");
    }

    #[test]
    fn a_create_that_failed_leaves_nothing() {
        let creates = Arc::new(Creates::<u8>::new());
        drop(creates.begin(KEY));
        assert_eq!(creates.len(), 0);
    }

    #[test]
    fn a_used_open_is_forgotten_and_its_successor_is_not() {
        let creates = Arc::new(Creates::new());
        let settle = |open: &Arc<&'static str>| match creates.begin(KEY) {
            Begun::First(first) => first.settle(open, || false),
            other => panic!("{other:?}"),
        };
        let (one, two) = (Arc::new("one"), Arc::new("two"));
        settle(&one);
        creates.forget(KEY, &one);
        settle(&two);
        creates.forget(KEY, &one);
        assert!(matches!(creates.begin(KEY), Begun::Opened(open) if *open == "two"));
        drop(two);
        assert!(matches!(creates.begin(KEY), Begun::First(_)), "closed without being used");
    }

    #[test]
    fn a_create_whose_open_is_over_leaves_nothing() {
        let creates = Arc::new(Creates::new());
        let Begun::First(first) = creates.begin(KEY) else { panic!("nothing came before") };
        first.settle(&Arc::new("open"), || true);
        assert_eq!(creates.len(), 0);
        let (old, new) = (Arc::new("old"), Arc::new("new"));
        creates.restore(KEY, &old);
        creates.replace(KEY, &old, &new, || true);
        assert_eq!(creates.len(), 0);
    }

    #[test]
    fn a_create_that_is_settled_late_takes_no_entry_from_others() {
        let creates = Arc::new(Creates::<&str>::new());
        let Begun::First(first) = creates.begin(KEY) else { panic!("nothing came before") };
        let (old, new) = (Arc::new("old"), Arc::new("new"));
        creates.replace(KEY, &old, &new, || false);
        first.settle(&old, || false);
        assert!(matches!(creates.begin(KEY), Begun::Opened(open) if *open == "new"));
        creates.forget(KEY, &new);
        // Of two that are under way at once each has its own entry.
        let Begun::First(second) = creates.begin(KEY) else { panic!("forgotten") };
        creates.replace(KEY, &old, &new, || false);
        drop(new);
        let Begun::First(third) = creates.begin(KEY) else { panic!("dropped") };
        drop(second);
        assert!(matches!(creates.begin(KEY), Begun::UnderWay));
        drop(third);
        assert_eq!(creates.len(), 0);
    }
}
