//! redb's file backend with its bytes in our storage: the locks stay those of redb's own backend, on the file itself.
//!
//! The storage is opened with the first call that is no lock: redb locks first, and a database that another one has open
//! is refused before its log is touched.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::sync::OnceLock;

use landfast_redb_hook::Storage;

use super::optimized;
use crate::{BackendError, DatabaseError, StorageBackend};

/// See the module.
#[derive(Debug)]
pub struct FileBackend {
    own: optimized::FileBackend,
    file: File,
    storage: OnceLock<Result<Option<Box<dyn Storage>>, String>>,
}

impl FileBackend {
    /// Creates a new backend which stores data to the given file.
    pub fn new(file: File) -> Result<Self, DatabaseError> {
        Ok(Self::from_file(file))
    }

    pub(crate) fn from_file(file: File) -> Self {
        let copy = file.try_clone().expect("a descriptor for the test");
        Self { own: optimized::FileBackend::from_file(file), file: copy, storage: OnceLock::new() }
    }

    fn storage(&self) -> io::Result<Option<&dyn Storage>> {
        let open = || landfast_redb_hook::open(&self.file).map_err(|error| error.to_string());
        match self.storage.get_or_init(open) {
            Ok(storage) => Ok(storage.as_deref()),
            Err(error) => Err(io::Error::other(error.clone())),
        }
    }
}

impl StorageBackend for FileBackend {
    fn len(&self) -> io::Result<u64> {
        self.storage()?.map_or_else(|| self.own.len(), |ours| ours.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.storage()? {
            Some(ours) => ours.read(offset, out),
            None => self.own.read(offset, out),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.storage()?.map_or_else(|| self.own.set_len(len), |ours| ours.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.storage()?.map_or_else(|| self.own.sync_data(), |ours| ours.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self.storage()? {
            Some(ours) => ours.write(offset, data),
            None => self.own.write(offset, data),
        }
    }

    fn close(&self) -> io::Result<()> {
        let closed = match self.storage.get() {
            Some(Ok(Some(ours))) => ours.close(),
            _ => Ok(()),
        };
        closed.and(self.own.close())
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.own.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.own.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.own.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.own.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.own.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.own.query_lock_range(start, end)
    }
}
