//! The bytes of a regular file, which the kernel reads and writes.
//!
//! Directories and symbolic links have such a body too: the kernel refuses to read or write them.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, OnceLock};

use flash::Way;
use pmem::{CommitGroup, DurabilityClass, Medium, OpenOptions};
use rustix::io::Errno;
use tracing::error;

use super::append;
use super::{Body, Flushes, MapFailure, MapRefusal, Mappable, Span};
use crate::error::ShareError;
use crate::handle::Handle;
use crate::inline::{self, InlineIo};
use crate::mounts::FileSystem;

/// See the module.
#[derive(Debug)]
pub(crate) struct PlainFile {
    pub(super) fd: Arc<Handle>,
    file_system: FileSystem,
    /// Which file it is, once somebody has asked.
    inode: OnceLock<pmem::Inode>,
}

impl PlainFile {
    /// The bytes behind a descriptor.
    pub(crate) fn new(fd: Arc<Handle>, file_system: FileSystem) -> Self {
        Self { fd, file_system, inode: OnceLock::new() }
    }
}

impl Body for PlainFile {
    fn class(&self) -> DurabilityClass {
        self.file_system.class
    }

    fn inline_io(&self) -> InlineIo {
        self.file_system.inline
    }

    fn size(&self) -> Result<u64, ShareError> {
        Ok(self.file_size()?)
    }

    fn occupied(&self) -> u64 {
        inline::occupied(self.fd.as_fd())
    }

    fn try_read_at(&self, out: &mut Vec<u8>, len: usize, offset: u64) -> Result<usize, ShareError> {
        if self.file_system.inline == InlineIo::Everything {
            return self.read_at(out, len, offset);
        }
        if let Some(pages) = self.in_flash() {
            return self.read_pages(out, (len, offset), |at, room| pages.try_read_at(at, room));
        }
        let start = out.len();
        match append::read_cached(&*self.fd, out, len, offset) {
            Ok(got) if got == len => Ok(got),
            // Short: either end of file, or the rest is not in memory. Only a blocking read can
            // tell.
            Ok(_) | Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INTR) => {
                out.truncate(start);
                Err(ShareError::WouldBlock)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn read_at(&self, out: &mut Vec<u8>, len: usize, offset: u64) -> Result<usize, ShareError> {
        if let Some(pages) = self.in_flash() {
            return self.read_pages(out, (len, offset), |at, room| pages.read_at(at, room));
        }
        let start = out.len();
        let mut done = 0;
        while done < len {
            match append::read(&*self.fd, out, len - done, offset + done as u64) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    out.truncate(start);
                    return Err(errno.into());
                }
            }
        }
        Ok(done)
    }

    fn try_write_at(&self, bytes: &[u8], offset: u64) -> Result<(), ShareError> {
        match self.file_system.inline {
            InlineIo::Everything => self.write_at(bytes, offset),
            InlineIo::Cached | InlineIo::CachedReads => Err(ShareError::WouldBlock),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), ShareError> {
        let _changing = match self.to_change()? {
            Some(Way::Pages(pages)) => return self.write_pages(&pages, bytes, offset),
            other => other,
        };
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&*self.fd, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(ShareError::DiskFull),
                Ok(put) => done += put,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn persist(&self, flushes: &dyn Flushes) -> Result<(), ShareError> {
        if let Some(pages) = self.in_flash() {
            pages.write_back_all()?;
        }
        Ok(flushes.group_of(self.fd.as_fd())?.persist()?)
    }

    fn poison(&self, flushes: &dyn Flushes) {
        let noted = match flushes.group_of(self.fd.as_fd()) {
            Ok(group) => return group.poison(),
            // A loss is remembered however few descriptors are left.
            Err(_) => CommitGroup::poison_file(&*self.fd),
        };
        if let Err(error) = noted {
            error!(file = ?self.fd, %error, "a loss cannot be remembered");
        }
    }

    fn is_resizable(&self) -> bool {
        true
    }

    fn resize(&self, size: u64) -> Result<(), ShareError> {
        if size > i64::MAX.unsigned_abs() {
            return Err(ShareError::PeerInvalid);
        }
        let whole = Span { start: size.min(self.file_size()?), end: u64::MAX };
        self.around(whole, || Ok(rustix::fs::ftruncate(&*self.fd, size)?))
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<(), ShareError> {
        self.reserve_blocks(offset, len)
    }

    fn zero(&self, span: Span, is_sparse: bool) -> Result<(), ShareError> {
        self.around(span, || self.zero_blocks(span, is_sparse))
    }

    fn trim(&self, span: Span, is_sparse: bool) -> Result<(), ShareError> {
        self.around(span, || self.trim_blocks(span, is_sparse))
    }

    fn allocated(&self, span: Span, count_max: usize) -> Result<(Vec<Span>, bool), ShareError> {
        if let Some(pages) = self.in_flash() {
            // Their pages stay in memory: a client that asks again and again must not empty it.
            pages.write_back_range(span.start, span.end.saturating_sub(span.start))?;
        }
        self.written_blocks(span, count_max)
    }

    fn kernel_file(&self) -> Option<BorrowedFd<'_>> {
        // The kernel does not have the newest bytes.
        if self.in_flash().is_some() { None } else { Some(self.fd.as_fd()) }
    }

    fn change_by_kernel(&self) -> Result<Option<flash::Changing>, ShareError> {
        match self.to_change()? {
            // It has become a file in flash since `kernel_file` was asked.
            Some(Way::Pages(_)) => Err(ShareError::Unsupported),
            Some(Way::Kernel(changing)) => Ok(Some(changing)),
            None => Ok(None),
        }
    }

    fn clones(&self) -> bool {
        self.file_system.clones
    }

    fn mappable(&self) -> Result<&dyn Mappable, MapRefusal> {
        Ok(self)
    }
}

impl Mappable for PlainFile {
    // The medium outlives this handle, and so has a descriptor of its own.
    fn map(&self, range: Range<u64>, options: OpenOptions) -> Result<Arc<dyn Medium>, MapFailure> {
        let own = self.another_descriptor()?;
        if let Some(pages) = self.in_flash() {
            return Ok(flash::map_found(&own, pages, range.end)?);
        }
        Ok(pmem::map_range(&own, range, options)?)
    }

    fn map_lazily(
        &self,
        range: Range<u64>,
        pages: &flash::Share,
    ) -> Result<Arc<dyn Medium>, MapFailure> {
        Ok(flash::map_file(&self.another_descriptor()?, range.end, pages)?)
    }

    fn decide(&self) -> Result<Option<flash::Deciding>, ShareError> {
        // Other classes are mapped in one way only.
        let is_either = self.file_system.class == DurabilityClass::Storage;
        Ok(if is_either { Some(flash::Deciding::of(self.inode()?)) } else { None })
    }

    fn pages(&self) -> Option<flash::FileStats> {
        self.in_flash().map(|pages| pages.stats())
    }
}

impl PlainFile {
    /// How the bytes are changed at present; `None`: by the kernel always, since the file is of a class that is memory already.
    pub(super) fn to_change(&self) -> Result<Option<Way>, ShareError> {
        if self.file_system.class != DurabilityClass::Storage {
            return Ok(None);
        }
        Ok(Some(flash::to_change(self.fd.as_fd(), self.inode()?)))
    }

    fn inode(&self) -> Result<pmem::Inode, ShareError> {
        if let Some(inode) = self.inode.get() {
            return Ok(*inode);
        }
        let stat = rustix::fs::fstat(&*self.fd)?;
        Ok(*self.inode.get_or_init(|| (stat.st_dev, stat.st_ino)))
    }

    /// A descriptor for a medium, of a file that has lost no bytes.
    fn another_descriptor(&self) -> Result<File, ShareError> {
        if CommitGroup::is_file_poisoned(&*self.fd).unwrap_or(true) {
            return Err(ShareError::MediaPoisoned);
        }
        Ok(File::from(rustix::io::fcntl_dupfd_cloexec(&*self.fd, 0)?))
    }
}
