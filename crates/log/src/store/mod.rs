//! The memory of one member of a log, wherever it is.

mod device;
mod local;
mod remote;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use pmem::{DurabilityClass, Medium};

pub use self::device::DeviceStore;
pub use self::local::{LocalStore, LocalStoreError};
pub use self::remote::RemoteStore;

/// Bytes with one writer, who places, commits and reads them. Offsets count from the first byte.
///
/// A commit has two halves, so that the commits of several members are under way at once. After an error the
/// log uses the store no more.
pub trait Store: Send + fmt::Debug {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether the store has no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a commit is worth.
    fn worth(&self) -> Worth;

    /// Reads into `out` what was placed, or what was there.
    ///
    /// # Errors
    ///
    /// The medium, the peer or the way to it failed.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError>;

    /// Places `bytes` at `offset`: a crash may undo them. A failure of a peer may be reported by the next commit.
    ///
    /// # Errors
    ///
    /// As [`Store::read`].
    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError>;

    /// Begins to make durable what was placed in the range. At most [`COMMITS_MAX`] commits are begun and not ended.
    ///
    /// # Errors
    ///
    /// As [`Store::read`].
    fn begin_commit(&mut self, offset: u64, len: u64) -> Result<(), StoreError>;

    /// Waits for the commits that were begun.
    ///
    /// # Durability
    ///
    /// On `Ok` the bytes of every range that was begun survive what [`Store::worth`] says. A crash before leaves any
    /// mixture of old and new aligned 8-byte words.
    ///
    /// # Errors
    ///
    /// As [`Store::read`]; it is then unknown what is durable.
    fn end_commit(&mut self) -> Result<(), StoreError>;

    /// Makes durable whatever is in the range, bytes of a program that has died included.
    ///
    /// # Durability
    ///
    /// As [`Store::end_commit`].
    ///
    /// # Errors
    ///
    /// As [`Store::end_commit`].
    fn settle(&mut self, offset: u64, len: u64) -> Result<(), StoreError>;

    /// The memory that the store is, at the same offsets, where any thread may place and persist there as well as by the
    /// store.
    fn memory(&self) -> Option<Arc<dyn Medium>> {
        None
    }
}

/// Most commits of one store under way: two pieces of a ring, and a label.
pub const COMMITS_MAX: usize = 3;

/// What a commit of a store is worth.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Worth {
    /// The durability class.
    pub class: DurabilityClass,
    /// The class is volatile, and persistence is emulated.
    pub is_emulated: bool,
    /// Whether the bytes are at another machine.
    pub is_remote: bool,
}

impl Worth {
    /// Whether a commit is made by instructions of this processor alone.
    pub(crate) fn is_quick(self) -> bool {
        !self.is_remote && self.class != DurabilityClass::Storage
    }
}

impl fmt::Display for Worth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_remote { "remote" } else { "local" };
        write!(f, "{place}, class {}", self.class)?;
        if self.is_emulated { f.write_str(", persistence EMULATED") } else { Ok(()) }
    }
}

/// Why a store failed.
#[derive(Clone, Debug)]
pub struct StoreError(Arc<dyn Error + Send + Sync>);

impl StoreError {
    /// A failure with this cause.
    pub fn new(cause: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(cause))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
