//! redb on a file with a log: its sync is a commit of the log.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use logged::{Logged, LoggedError};
use redb::StorageBackend;

/// A logged file as redb's storage.
///
/// When redb closes it, the base has everything, and needs the log no more.
#[derive(Debug)]
pub struct LoggedBackend {
    /// `None` once redb has closed the storage.
    file: Mutex<Option<Logged>>,
}

impl LoggedBackend {
    /// redb's storage in this file.
    pub fn new(file: Logged) -> Self {
        Self { file: Mutex::new(Some(file)) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Logged) -> Result<T, LoggedError>) -> io::Result<T> {
        match self.lock().as_mut() {
            Some(file) => act(file).map_err(io::Error::other),
            None => Err(io::Error::other("the storage is closed")),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Logged>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageBackend for LoggedBackend {
    fn len(&self) -> io::Result<u64> {
        self.with(|file| Ok(file.len()))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let count = self.with(|file| file.read(offset, out))?;
        if count == out.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|file| file.set_len(len))
    }

    /// # Durability
    ///
    /// On `Ok` every earlier write survives what the members of the log survive.
    fn sync_data(&self) -> io::Result<()> {
        self.with(Logged::commit)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|file| file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        let file = self.lock().take();
        file.map_or(Ok(()), |file| file.close().map_err(io::Error::other))
    }
}
