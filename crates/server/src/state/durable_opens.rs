//! Durable opens by their serials: whether an open that a reconnect names can still come back.
//!
//! ```text
//!  made durable, or taken back by its client         the object is dropped
//!  ------------------------------------------> listed ---------------------> not listed
//! ```
//!
//! An object that stands for a durable open is listed by construction: its durability and its entry here are one
//! value. An open that comes back is a new object, which takes the entry over.
//!
//! The table is as long as there are durable opens. No object is dropped under its lock.
//!
//! Spec: MS-SMB2 §3.3.5.9.7, §3.3.5.9.12 (the look-up in GlobalOpenTable).

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::serial::OpenSerial;
use crate::lock_order as order;
use basics::ordered::{Mutex, MutexGuard};

/// All durable opens of a server. `T` is an open.
#[derive(Debug)]
pub(crate) struct DurableOpens<T> {
    table: Mutex<HashMap<OpenSerial, Weak<T>>, order::DurableOpens>,
}

impl<T> DurableOpens<T> {
    pub(crate) fn new() -> Self {
        Self { table: Mutex::default() }
    }

    /// Lists the object that stands for an open from now on. To be kept by that object.
    pub(crate) fn list(self: &Arc<Self>, serial: OpenSerial, open: &Arc<T>) -> Listed<T> {
        self.lock().insert(serial, Arc::downgrade(open));
        Listed { opens: Arc::clone(self), serial }
    }

    /// The object that stands for an open, whoever holds it.
    pub(crate) fn open(&self, serial: OpenSerial) -> Option<Arc<T>> {
        self.lock().get(&serial).and_then(Weak::upgrade)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OpenSerial, Weak<T>>, order::DurableOpens> {
        self.table.lock()
    }
}

/// The entry of an object, which goes with it.
#[derive(Debug)]
pub(crate) struct Listed<T> {
    opens: Arc<DurableOpens<T>>,
    serial: OpenSerial,
}

impl<T> Drop for Listed<T> {
    fn drop(&mut self) {
        let mut table = self.opens.lock();
        // Another object may stand for the open by now.
        if table.get(&self.serial).is_some_and(|open| open.strong_count() == 0) {
            table.remove(&self.serial);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    #[derive(Debug, Default)]
    struct Object {
        listed: OnceLock<Listed<Self>>,
    }

    fn listed(opens: &Arc<DurableOpens<Object>>, serial: u64) -> Arc<Object> {
        let object = Arc::new(Object::default());
        object.listed.set(opens.list(OpenSerial(serial), &object)).unwrap();
        object
    }

    #[test]
    fn an_open_is_found_under_its_serial_until_its_last_object_is_dropped() {
        let opens = Arc::new(DurableOpens::new());
        let is = |serial, object: &Arc<Object>| {
            opens.open(OpenSerial(serial)).is_some_and(|found| Arc::ptr_eq(&found, object))
        };
        let (one, two) = (listed(&opens, 1), listed(&opens, 2));
        assert!(is(1, &one) && is(2, &two));
        let back = listed(&opens, 1);
        assert!(is(1, &back));
        drop(one);
        assert!(is(1, &back), "the object before it takes the entry of nobody else");
        drop((back, two));
        assert_eq!(opens.len(), 0);
    }
}
