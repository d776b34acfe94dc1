//! A member in a file, or in other memory, of this machine.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use pmem::{MapError, Medium, MediumError, OpenOptions};
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use super::{Store, StoreError, Worth};
use crate::create::HEAD_LEN;
use crate::format::label::MAGIC;

/// A medium of this machine as a store.
#[derive(Debug)]
pub struct LocalStore {
    medium: Arc<dyn Medium>,
    /// Locked for as long as the store lives, so that no second program appends.
    _owned: Option<File>,
}

impl LocalStore {
    /// The whole of a medium. The caller sees to it that nobody else writes to the medium.
    pub fn of_medium(medium: Arc<dyn Medium>) -> Self {
        Self { medium, _owned: None }
    }

    /// The file at `path`, which gets `len` bytes, reserved, if it has less.
    ///
    /// # Errors
    ///
    /// [`LocalStoreError::InUse`] while another program has the log open; otherwise what the operating system says.
    pub fn open(path: &Path, len: u64, options: OpenOptions) -> Result<Self, LocalStoreError> {
        let (file, len) = owned_file(path, len)?;
        let medium = pmem::map_file(&file, len, options)?;
        Ok(Self { medium, _owned: Some(file) })
    }
}

/// The file at `path`, locked, with at least `len` bytes that are reserved, and how many it has.
pub(super) fn owned_file(path: &Path, len: u64) -> Result<(File, u64), LocalStoreError> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(LocalStoreError::Open)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| {
        if errno == rustix::io::Errno::WOULDBLOCK {
            LocalStoreError::InUse
        } else {
            LocalStoreError::Open(errno.into())
        }
    })?;
    let has = pmem::length(&file)?;
    let Some(is_log) = is_log_or_empty(&file).map_err(LocalStoreError::Open)? else {
        return Err(LocalStoreError::Foreign);
    };
    let reserved = has.max(len);
    // Also a file that is long enough, as long as it has no label: it may be sparse, and whoever made it may have died
    // before its name was durable, which no commit in memory would make it.
    if reserved > 0 && (has < len || !is_log) {
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, flags, 0, reserved)
            .map_err(|errno| LocalStoreError::Reserve { len: reserved, cause: errno.into() })?;
        file.sync_all().map_err(LocalStoreError::Open)?;
        sync_directory_of(path)?;
    }
    Ok((file, reserved))
}

/// Whether the file holds a log or an archive (`true`), or nothing where the labels of one lie (`false`). Looked at before the
/// file grows: a file that was named by mistake stays as it was (`None`).
fn is_log_or_empty(file: &File) -> io::Result<Option<bool>> {
    let mut head = [0; HEAD_LEN];
    let mut len = 0;
    while len < HEAD_LEN {
        match file.read_at(&mut head[len..], len as u64)? {
            0 => break,
            count => len += count,
        }
    }
    let slots = head.chunks(HEAD_LEN / 2);
    let is_log = slots.into_iter().any(|slot| slot.starts_with(&MAGIC));
    Ok((is_log || head == [0; HEAD_LEN]).then_some(is_log))
}

/// The name of a new file is durable with the file.
fn sync_directory_of(path: &Path) -> Result<(), LocalStoreError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory =
        File::open(parent.unwrap_or_else(|| Path::new("."))).map_err(LocalStoreError::Open)?;
    directory.sync_all().map_err(LocalStoreError::Open)
}

impl Store for LocalStore {
    fn len(&self) -> u64 {
        self.medium.len()
    }

    fn worth(&self) -> Worth {
        let is_emulated = self.medium.is_emulated();
        Worth { class: self.medium.class(), is_emulated, is_remote: false }
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.medium.read(offset, out).map_err(failed)
    }

    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.medium.place(offset, bytes).map_err(failed)
    }

    /// The commit of a medium of this machine ends before it returns.
    fn begin_commit(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.medium.persist(offset, len).map_err(failed)
    }

    fn end_commit(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn settle(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.medium.persist_foreign(offset, len).map_err(failed)
    }

    fn memory(&self) -> Option<Arc<dyn Medium>> {
        Some(Arc::clone(&self.medium))
    }
}

fn failed(error: MediumError) -> StoreError {
    StoreError::new(error)
}

/// Why a file of this machine is no store.
#[derive(Debug, Error)]
pub enum LocalStoreError {
    /// The caller's: another program has it open.
    #[error("another program has the log open")]
    InUse,
    /// The caller's: the file is something else.
    #[error(
        "the file holds something that is no log, and is left as it is: name another one, or remove it"
    )]
    Foreign,
    /// The operating system did not open, lock or sync the file.
    #[error("cannot open the file of the log: {0}")]
    Open(io::Error),
    /// The file system has no room.
    #[error("cannot reserve {len} bytes for the log: {cause}")]
    Reserve {
        /// Bytes wanted.
        len: u64,
        /// Why not.
        cause: io::Error,
    },
    /// The file cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
}
