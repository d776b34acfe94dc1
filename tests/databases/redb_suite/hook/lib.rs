//! Where the copy of redb under test asks for its storage: a crate below redb, since the storage itself is above it.

use std::fmt::Debug;
use std::fs::File;
use std::io;

/// redb's `StorageBackend`, without the locks.
pub trait Storage: Debug + Send + Sync {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Fills `out` from the bytes at `offset`.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
    /// Sets the length.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes durable what was written.
    fn sync_data(&self) -> io::Result<()>;
    /// Writes.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// The last call.
    fn close(&self) -> io::Result<()>;
}

/// The storage that stands in for the file; `None` where the file itself is to be the storage.
pub fn open(file: &File) -> io::Result<Option<Box<dyn Storage>>> {
    // SAFETY: the harness, which every test program links, defines the function with this signature.
    unsafe { landfast_redb_open(file) }
}

unsafe extern "Rust" {
    fn landfast_redb_open(file: &File) -> io::Result<Option<Box<dyn Storage>>>;
}
