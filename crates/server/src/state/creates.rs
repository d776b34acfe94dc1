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
//! requests under way and the opens there are.
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
    table: Mutex<HashMap<CreateKey, Entry<T>>, order::Creates>,
}

#[derive(Debug)]
enum Entry<T> {
    UnderWay,
    Opened(Weak<T>),
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
        Self { table: Mutex::default() }
    }

    /// A CREATE of this name begins.
    pub(crate) fn begin(self: &Arc<Self>, key: CreateKey) -> Begun<T> {
        let mut table = self.lock();
        match table.get(&key) {
            Some(Entry::UnderWay) => return Begun::UnderWay,
            Some(Entry::Opened(open)) => {
                if let Some(open) = open.upgrade() {
                    return Begun::Opened(open);
                }
            }
            None => {}
        }
        table.insert(key, Entry::UnderWay);
        Begun::First(Reservation { creates: Arc::clone(self), key, is_settled: false })
    }

    /// The open has been used or closed: its CREATE does not come again.
    pub(crate) fn forget(&self, key: CreateKey, open: &T) {
        let mut table = self.lock();
        // A later CREATE of the same name may have taken its place.
        let is_it = table.get(&key).is_some_and(|entry| match entry {
            Entry::UnderWay => false,
            Entry::Opened(other) => std::ptr::eq(other.as_ptr(), open),
        });
        if is_it {
            table.remove(&key);
        }
    }

    /// Another object stands for the open from now on.
    pub(crate) fn replace(&self, key: CreateKey, open: &Arc<T>) {
        self.lock().insert(key, Entry::Opened(Arc::downgrade(open)));
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CreateKey, Entry<T>>, order::Creates> {
        self.table.lock()
    }
}

/// Keeps the name of a CREATE while it is under way. Dropped, it has failed.
#[derive(Debug)]
pub(crate) struct Reservation<T> {
    creates: Arc<Creates<T>>,
    key: CreateKey,
    is_settled: bool,
}

impl<T> Reservation<T> {
    /// The CREATE has opened the file.
    pub(crate) fn settle(mut self, open: &Arc<T>) {
        self.is_settled = true;
        self.creates.replace(self.key, open);
    }
}

impl<T> Drop for Reservation<T> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.creates.lock().remove(&self.key);
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
        first.settle(&open);
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
            Begun::First(first) => first.settle(open),
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
}
