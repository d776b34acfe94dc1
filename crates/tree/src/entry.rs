//! An open file or directory of a share: the handle for every later operation.
//!
//! An entry has the facts of the inode that a name leads to: identity, times, attributes. Its bytes are those of a
//! [`Body`], which the entry refuses to ask once the inode is a symbolic link.
//!
//! Reads and writes come in two forms. `try_*` never waits for a device: it returns
//! [`ShareError::WouldBlock`] and the caller moves the work to the blocking pool. [`super::inline`]
//! decides about other work on the calling thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use pmem::DurabilityClass;
use rustix::fs::{Timespec, Timestamps};
use rustix::io::Errno;

use super::attributes::{self, DosAttributes};
use super::body::{Body, Flushes, PlainFile};
use super::disk_clock;
use super::error::ShareError;
use super::file_time::from_file_time;
use super::handle::Handle;
use super::inline::InlineIo;
use super::inode::{FileKey, proc_name};
use super::marks::{self, Marks};
use super::metadata::Metadata;
use super::mounts::FileSystem;
use super::rights::MaySet;
use super::set_id;

/// An open file or directory.
#[derive(Debug)]
pub struct Entry {
    fd: Arc<Handle>,
    key: FileKey,
    is_directory: bool,
    /// The inode stands for a device, and `fd` is of O_PATH.
    is_device: bool,
    /// The inode can have xattrs of the `user` namespace.
    has_xattrs: bool,
    body: Arc<dyn Body>,
    base: Option<Base>,
    /// The object was a symbolic link when it was opened, and `fd` is of O_PATH.
    is_opened_link: bool,
    /// The symbolic link that replaced the file: [`super::Share::turn_into_link`].
    link: OnceLock<OwnedFd>,
    /// The bytes were moved to another file: [`super::Share::promote_stream`].
    superseded: AtomicBool,
    /// The generation of names in which this name was durable; the account of names (`unsynced`)
    /// knows whether it still is.
    durable_name: AtomicU64,
    marks: Marks,
}

/// The file a stream belongs to.
#[derive(Debug)]
pub(super) struct Base {
    /// The file; it may be a handle of O_PATH.
    pub(super) file: OwnedFd,
    pub(super) key: FileKey,
    /// The directory that holds its streams.
    pub(super) home: OwnedFd,
}

impl Entry {
    pub(super) fn new(
        fd: OwnedFd,
        key: FileKey,
        is_directory: bool,
        file_system: FileSystem,
    ) -> Self {
        let fd = Arc::new(Handle::new(fd));
        let body = Arc::new(PlainFile::new(Arc::clone(&fd), file_system));
        Self { has_xattrs: file_system.has_xattrs, is_directory, ..Self::with(fd, key, body) }
    }

    fn with(fd: Arc<Handle>, key: FileKey, body: Arc<dyn Body>) -> Self {
        Self {
            fd,
            key,
            is_directory: false,
            is_device: false,
            has_xattrs: false,
            body,
            base: None,
            is_opened_link: false,
            link: OnceLock::new(),
            superseded: AtomicBool::new(false),
            durable_name: AtomicU64::new(0),
            marks: Marks::default(),
        }
    }

    pub(super) fn of_link(link: OwnedFd, key: FileKey, file_system: FileSystem) -> Self {
        Self { is_opened_link: true, ..Self::new(link, key, false, file_system) }
    }

    pub(super) fn of_stream(
        fd: OwnedFd,
        key: FileKey,
        file_system: FileSystem,
        base: Base,
    ) -> Self {
        Self { base: Some(base), ..Self::new(fd, key, false, file_system) }
    }

    /// A device, whose name leads to `node`.
    pub(super) fn of_device(node: OwnedFd, key: FileKey, body: Arc<dyn Body>) -> Self {
        Self { is_device: true, ..Self::with(Arc::new(Handle::new(node)), key, body) }
    }

    pub(super) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// The inode that holds the bytes.
    pub fn key(&self) -> FileKey {
        self.key
    }

    /// Whether this is a stream beside the unnamed one.
    pub fn is_stream(&self) -> bool {
        self.base.is_some()
    }

    /// Whether the inode stands for a device: such a file has bytes of a fixed length and times, nothing else.
    pub fn is_device(&self) -> bool {
        self.is_device
    }

    // Refuses to change what the inode of a device does not have.
    pub(super) fn check_has_facts(&self) -> Result<(), ShareError> {
        if self.is_device { Err(ShareError::Unsupported) } else { Ok(()) }
    }

    /// Whether the inode can have extended attributes.
    pub(super) fn has_xattrs(&self) -> bool {
        self.has_xattrs
    }

    pub(super) fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    /// The inode that holds the facts of the file: for a stream the inode of its file.
    pub fn file_key(&self) -> FileKey {
        self.base.as_ref().map_or(self.key, |base| base.key)
    }

    pub(super) fn facts_fd(&self) -> BorrowedFd<'_> {
        match (self.link.get(), &self.base) {
            (Some(link), _) => link.as_fd(),
            (None, Some(base)) => base.file.as_fd(),
            (None, None) => self.fd.as_fd(),
        }
    }

    /// The bytes.
    ///
    /// # Errors
    ///
    /// [`ShareError::NoBytes`]: a symbolic link has none. The bytes of the file that it replaced belong to no name.
    pub fn body(&self) -> Result<&dyn Body, ShareError> {
        if self.is_link() { Err(ShareError::NoBytes) } else { Ok(&*self.body) }
    }

    pub(super) fn name_is_durable_since(&self, generation: u64) -> bool {
        self.durable_name.load(Ordering::Acquire) == generation
    }

    pub(super) fn note_durable_name(&self, generation: u64) {
        self.durable_name.store(generation, Ordering::Release);
    }

    /// Whether the bytes were moved to another file, so that bytes written here are lost.
    pub fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
    }

    pub(super) fn set_superseded(&self) {
        self.superseded.store(true, Ordering::Release);
    }

    /// Whether it is a symbolic link, since it was opened or by now.
    pub fn is_link(&self) -> bool {
        self.is_opened_link || self.link.get().is_some()
    }

    /// Whether a symbolic link has its name.
    pub fn has_become_link(&self) -> bool {
        self.link.get().is_some()
    }

    /// The symbolic link that replaced the file.
    pub(super) fn link(&self) -> Option<&OwnedFd> {
        self.link.get()
    }

    pub(super) fn set_link(&self, link: OwnedFd) {
        let _ = self.link.set(link);
    }

    /// A directory, else a regular file.
    pub fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// Neither a directory nor a symbolic link.
    pub fn has_bytes(&self) -> bool {
        !self.is_directory && !self.is_link()
    }

    /// What may be done on the calling thread if it is little work.
    pub fn inline_io(&self) -> InlineIo {
        self.body.inline_io()
    }

    /// What the pages of the file do, if a region of it is mapped lazily.
    pub fn pages(&self) -> Option<flash::FileStats> {
        self.body.mappable().ok()?.pages()
    }

    /// The durability class of a write to this file.
    pub fn class(&self) -> DurabilityClass {
        self.body.class()
    }

    /// Whether the file can share blocks with other files of its file system.
    pub fn clones(&self) -> bool {
        self.body.clones()
    }

    /// Whether the body frees ranges that are zeroed, whatever the inode says.
    pub(super) fn frees(&self) -> bool {
        self.body.is_sparse()
    }

    /// The bytes that the file occupies, those behind its end included.
    pub(super) fn occupied(&self) -> u64 {
        self.body.occupied()
    }

    /// The descriptor of the inode.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Times, sizes, attributes. Inodes are in memory while open: this does not wait in practice.
    /// The sizes of a stream are its own, the other facts are its file's.
    pub fn metadata(&self) -> Result<Metadata, ShareError> {
        if let Some(link) = self.link.get() {
            return Metadata::of(link);
        }
        let Some(base) = &self.base else { return self.metadata_of_file() };
        let stat = rustix::fs::fstat(&*self.fd)?;
        let mut metadata = Metadata::of(&base.file)?;
        metadata.is_directory = false;
        metadata.attributes = metadata.attributes.of_stream();
        metadata.size = u64::try_from(stat.st_size).unwrap_or(0);
        metadata.allocation = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        Ok(metadata)
    }

    /// Appends `len` bytes without waiting. A short count means end of file. After an error nothing
    /// is appended.
    pub fn try_read_at(
        &self,
        out: &mut Vec<u8>,
        len: usize,
        offset: u64,
    ) -> Result<usize, ShareError> {
        self.body.try_read_at(out, len, offset)
    }

    /// Writes without waiting.
    pub fn try_write_at(&self, bytes: &[u8], offset: u64) -> Result<(), ShareError> {
        // What a change does to the facts of a file in memory waits for nothing either.
        if self.inline_io() == InlineIo::Everything && !self.is_device {
            return self.write_at(bytes, offset);
        }
        self.body()?.try_write_at(bytes, offset)
    }

    /// Appends `len` bytes; may wait. A short count means end of file. After an error nothing is
    /// appended.
    pub fn read_at(&self, out: &mut Vec<u8>, len: usize, offset: u64) -> Result<usize, ShareError> {
        self.body.read_at(out, len, offset)
    }

    /// Writes all of `bytes`; may wait. Placed and visible; durable only on a device.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), ShareError> {
        let body = self.body()?;
        self.modify(|| body.write_at(bytes, offset))
    }

    /// Makes the bytes durable, sharing the flush with other opens of the file; may wait.
    ///
    /// # Durability
    ///
    /// As [`Body::persist`].
    pub fn persist(&self, flushes: &dyn Flushes) -> Result<(), ShareError> {
        self.body.persist(flushes)
    }

    /// Bytes of the file may be lost: no later [`Entry::persist`] succeeds.
    pub fn poison(&self, flushes: &dyn Flushes) {
        self.body.poison(flushes);
    }

    /// The end of the bytes of this handle.
    pub fn data_size(&self) -> Result<u64, ShareError> {
        self.body.size()
    }

    /// Whether the end of the bytes can be moved.
    pub fn is_resizable(&self) -> bool {
        self.body.is_resizable()
    }

    /// Moves the end of file.
    pub fn set_size(&self, size: u64) -> Result<(), ShareError> {
        let body = self.body()?;
        self.modify(|| body.resize(size))
    }

    /// Reserves blocks so that the first `allocation` bytes need no new space. Reserving less
    /// than the file holds truncates it, as MS-FSA §2.1.5.15.1 says.
    pub fn set_allocation(&self, allocation: u64) -> Result<(), ShareError> {
        if !self.is_resizable() {
            return Err(ShareError::Unsupported);
        }
        let size = self.data_size()?;
        if allocation < size {
            return self.set_size(allocation);
        }
        self.reserve(0, allocation)
    }

    /// Reserves the blocks of a range inside the file without moving its end. Blocks that exist
    /// stay unchanged; new ones make the kernel move the file's times.
    pub fn reserve(&self, offset: u64, len: u64) -> Result<(), ShareError> {
        self.body()?.reserve(offset, len)
    }

    /// Clears the file's set-ID bits and capabilities: bytes are about to be changed without the kernel.
    pub fn take_set_id(&self) -> Result<(), ShareError> {
        // A device is not executed.
        if self.is_device {
            return Ok(());
        }
        if self.is_link() { Err(ShareError::NoBytes) } else { set_id::take_from(&*self.fd) }
    }

    /// Sets times and attributes; `None` leaves a field unchanged. For a stream they are its
    /// file's.
    pub fn set_basic(&self, _leave: impl MaySet, change: BasicChange) -> Result<(), ShareError> {
        self.note(change)?;
        if let Some(keeps) = change.keeps_write {
            self.marks.keep_write_time(keeps);
        }
        Ok(())
    }

    /// Notes the present as the time of last write, for bytes that no system call wrote.
    pub fn note_written(&self) -> Result<(), ShareError> {
        if self.keeps_write_time() {
            return Ok(());
        }
        let write = Some(disk_clock::file_time());
        self.note(BasicChange { write, ..BasicChange::default() })
    }

    /// Gives the file the creation time of the file that had its name before.
    pub fn inherit_creation(&self, at: u64) -> Result<(), ShareError> {
        self.note(BasicChange { creation: Some(at), ..BasicChange::default() })
    }

    fn note(&self, change: BasicChange) -> Result<(), ShareError> {
        let fd = self.facts_fd();
        let notes = change.attributes.is_some() || change.creation.is_some();
        let notes = notes || change.change.is_some();
        // The attributes are kept in an xattr, which a device node cannot have.
        if notes {
            self.check_has_facts()?;
        }
        if change.access.is_some() || change.write.is_some() {
            let times = Timestamps {
                last_access: change.access.map_or(OMIT, from_file_time),
                last_modification: change.write.map_or(OMIT, from_file_time),
            };
            let set = rustix::fs::futimens(fd, &times);
            match set {
                // An O_PATH handle: opening its /proc name reaches the same inode.
                Err(Errno::BADF) => rustix::fs::utimensat(
                    rustix::fs::CWD,
                    proc_name(fd),
                    &times,
                    rustix::fs::AtFlags::empty(),
                )?,
                other => other?,
            }
        }
        // Last: no later step may move the inode's own change time once a change time is noted.
        if notes {
            let is_directory = self.is_directory || self.metadata_of_file()?.is_directory;
            attributes::change(fd, self.file_key(), is_directory, |stored| {
                stored.attributes =
                    change.attributes.map(DosAttributes::settable).or(stored.attributes);
                stored.creation = change.creation.or(stored.creation);
                if let Some(time) = change.change {
                    stored.change = Some(attributes::NotedChange::now(time));
                }
            })?;
            if let Some(set) = change.attributes {
                marks::note_attributes(set);
            }
        }
        Ok(())
    }

    /// Length of the file's unnamed stream and bytes reserved for it; a directory has none.
    pub fn unnamed_stream(&self) -> Result<Option<(u64, u64)>, ShareError> {
        let file = self.metadata_of_file()?;
        Ok((!file.is_directory).then_some((file.size, file.allocation)))
    }

    fn metadata_of_file(&self) -> Result<Metadata, ShareError> {
        if self.is_device {
            return Metadata::of_device(self.facts_fd(), &*self.body);
        }
        Metadata::of(self.facts_fd())
    }
}

/// Times (FILETIME) and attributes to set; `None` leaves a field unchanged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BasicChange {
    /// Creation time.
    pub creation: Option<u64>,
    /// Last read.
    pub access: Option<u64>,
    /// Last write.
    pub write: Option<u64>,
    /// Last change of anything.
    pub change: Option<u64>,
    /// DOS attributes.
    pub attributes: Option<DosAttributes>,
    /// Whether changes of bytes by this handle leave the time of last write alone from now on.
    pub keeps_write: Option<bool>,
}

pub(super) const OMIT: Timespec = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
