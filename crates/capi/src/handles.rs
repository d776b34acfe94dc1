//! Handles: numbers that name what a program has open.
//!
//! A number is used once, so a handle that was closed names nothing for ever, and a call with it is an error. A call under
//! way keeps what it uses: closing a handle while another thread uses it ends after that use.
//!
//! A child of a fork has the numbers and none of the threads behind them, and shares the sockets: what was opened before the
//! fork is refused there, and not closed either, as its last words would go into the parent's stream.

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};

use basics::{Key, Table};
use client::blocking;

use crate::fault::Fault;
use crate::forks;
use crate::kind::Kind;
use crate::stored::{StoreClient, StoreMapped};
use crate::waiting;

/// A session on one share: `landfast_connect`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(C)]
pub struct ClientHandle {
    /// 0 is no handle.
    pub id: u64,
}

/// An open file: `landfast_open`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(C)]
pub struct FileHandle {
    /// 0 is no handle.
    pub id: u64,
}

/// A mapped region of a file: `landfast_map`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(C)]
pub struct RegionHandle {
    /// 0 is no handle.
    pub id: u64,
}

/// A client of a striped store: `landfast_store_open`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(C)]
pub struct StoreHandle {
    /// 0 is no handle.
    pub id: u64,
}

/// A mapped region of a striped store: `landfast_store_map`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(C)]
pub struct StoreRegionHandle {
    /// 0 is no handle.
    pub id: u64,
}

/// A session, with its address for the texts of errors.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: blocking::Client,
    pub(crate) address: String,
}

/// An open file, with its path for the texts of errors.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: blocking::File,
    pub(crate) path: String,
}

/// A mapped region, which one thread at a time drives.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) held: Mutex<waiting::Held>,
    pub(crate) path: String,
}

/// What is open of one kind.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    kind: Kind,
    entries: RwLock<Table<Entry<T>>>,
}

/// Something that is open, and in which process.
#[derive(Debug)]
struct Entry<T> {
    value: Arc<T>,
    forks: u64,
}

impl<T> Registry<T> {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind, entries: RwLock::new(Table::new(HANDLES_MAX)) }
    }

    /// A number for `value`.
    pub(crate) fn add(&self, value: T) -> Result<u64, Fault> {
        let entry = Entry { value: Arc::new(value), forks: forks::count() };
        let added = self.write().insert(entry);
        let full = Fault::TooManyHandles { kind: self.kind, max: HANDLES_MAX };
        added.map(Key::to_bits).map_err(|_| full)
    }

    /// What the number names.
    pub(crate) fn find(&self, id: u64) -> Result<Arc<T>, Fault> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        self.own(id, entries.get(Key::from_bits(id))).map(|entry| Arc::clone(&entry.value))
    }

    /// Takes back the number.
    pub(crate) fn take(&self, id: u64) -> Result<Arc<T>, Fault> {
        let mut entries = self.write();
        self.own(id, entries.get(Key::from_bits(id)))?;
        let taken = entries.remove(Key::from_bits(id)).map(|entry| entry.value);
        taken.ok_or(Fault::Handle { kind: self.kind, id })
    }

    /// An entry that this process has made.
    fn own<'a>(&self, id: u64, entry: Option<&'a Entry<T>>) -> Result<&'a Entry<T>, Fault> {
        match entry {
            None => Err(Fault::Handle { kind: self.kind, id }),
            Some(entry) if entry.forks != forks::count() => {
                Err(Fault::Forked { kind: self.kind, id })
            }
            Some(entry) => Ok(entry),
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table<Entry<T>>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tables, held over a fork: a child has no thread that would give back what another one held.
pub(crate) struct AllHeld {
    _clients: Guard<Session>,
    _files: Guard<Opened>,
    _regions: Guard<Mapped>,
    _stores: Guard<StoreClient>,
    _store_regions: Guard<StoreMapped>,
}

type Guard<T> = RwLockWriteGuard<'static, Table<Entry<T>>>;

impl AllHeld {
    /// Waits for whoever uses a table, which nobody does for long or while it holds another one.
    pub(crate) fn all() -> Self {
        Self {
            _clients: CLIENTS.write(),
            _files: FILES.write(),
            _regions: REGIONS.write(),
            _stores: STORES.write(),
            _store_regions: STORE_REGIONS.write(),
        }
    }
}

pub(crate) static CLIENTS: Registry<Session> = Registry::new(Kind::Client);
pub(crate) static FILES: Registry<Opened> = Registry::new(Kind::File);
pub(crate) static REGIONS: Registry<Mapped> = Registry::new(Kind::Region);
pub(crate) static STORES: Registry<StoreClient> = Registry::new(Kind::Store);
pub(crate) static STORE_REGIONS: Registry<StoreMapped> = Registry::new(Kind::StoreRegion);

/// Handles of one kind that a process has open: a program that never closes gets an error before its memory ends.
const HANDLES_MAX: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_was_closed_names_nothing_for_ever() {
        let registry = Registry::new(Kind::File);
        let first = registry.add("first").unwrap();
        assert_eq!(*registry.take(first).unwrap(), "first");
        let second = registry.add("second").unwrap();
        assert_ne!(first, second);
        for gone in [first, 0, u64::MAX] {
            let error = registry.find(gone).unwrap_err();
            assert!(matches!(error, Fault::Handle { kind: Kind::File, id } if id == gone));
            registry.take(gone).unwrap_err();
        }
        assert_eq!(*registry.find(second).unwrap(), "second");
    }

    #[test]
    fn handles_have_a_bound() {
        let registry = Registry::new(Kind::File);
        for _ in 0..HANDLES_MAX {
            registry.add(()).unwrap();
        }
        let full = registry.add(()).unwrap_err();
        assert_eq!(full.to_string(), "65536 files are open in this process: close one first");
    }
}
