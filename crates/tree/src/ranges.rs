//! Ranges of an open file: holes, zeros, copies and clones.
//!
//! A file without the mark of sparse files is presented as fully allocated: see `body/holes.rs`.
//!
//! Spec: MS-FSA §2.1.5.9 (controls); copy_file_range(2).

use rustix::io::Errno;

use super::attributes;
use super::body::Span;
use super::entry::Entry;
use super::error::ShareError;
use super::rights::MaySet;

impl Entry {
    /// Whether the file is marked sparse, or stands for a body that frees what is zeroed.
    pub fn is_sparse(&self) -> bool {
        self.is_device() && self.frees() || attributes::load(self.as_fd()).sparse
    }

    /// Marks the file sparse, or fills its holes and removes the mark.
    pub fn set_sparse(&self, _leave: impl MaySet, sparse: bool) -> Result<(), ShareError> {
        if self.is_device() && self.frees() && sparse {
            return Ok(());
        }
        self.check_has_facts()?;
        if attributes::try_load(self.as_fd())?.sparse == sparse {
            return Ok(());
        }
        if !sparse {
            self.reserve(0, self.data_size()?)?;
        }
        let is_directory = self.is_directory();
        attributes::change(self.as_fd(), self.key(), is_directory, |stored| stored.sparse = sparse)
    }

    /// Zeroes bytes without moving the end of the file; a sparse file frees their blocks.
    pub fn zero(&self, span: Span) -> Result<(), ShareError> {
        let (body, is_sparse) = (self.body()?, self.is_sparse());
        self.modify(|| body.zero(span, is_sparse))
    }

    /// Discards bytes: their blocks go back to the device, which may erase them. A file that is not
    /// sparse gets other blocks at once.
    pub fn trim(&self, span: Span) -> Result<(), ShareError> {
        let (body, is_sparse) = (self.body()?, self.is_sparse());
        self.modify(|| body.trim(span, is_sparse))
    }

    /// The allocated parts of `span`, at most `count_max`; and whether there are more.
    pub fn allocated(&self, span: Span, count_max: usize) -> Result<(Vec<Span>, bool), ShareError> {
        if !self.is_sparse() {
            return Ok(span.whole(self.data_size()?, count_max));
        }
        self.body()?.allocated(span, count_max)
    }

    /// Copies `len` bytes from another open file, or from another place in this one, within the machine.
    /// If the ranges overlap, the bytes before the copy count. At most [`COPY_MAX`].
    pub fn copy_from(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        len: usize,
    ) -> Result<(), ShareError> {
        if len > COPY_MAX {
            return Err(ShareError::PeerInvalid);
        }
        if source.key() != self.key() {
            match self.modify(|| self.copy_in_kernel(source, source_offset, offset, len)) {
                // The files are on different file systems, or on one that cannot copy: through
                // memory.
                Err(
                    ShareError::CrossDevice | ShareError::Unsupported | ShareError::PeerInvalid,
                ) => {}
                other => return other,
            }
        }
        let mut bytes = Vec::new();
        if source.read_at(&mut bytes, len, source_offset)? < len {
            return Err(ShareError::PeerInvalid);
        }
        self.write_at(&bytes, offset)
    }

    /// Lets a range share the blocks of another, if the file system can; all of it, or nothing that
    /// a reader could distinguish from the state before.
    pub fn clone_from(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        len: u64,
    ) -> Result<(), ShareError> {
        self.modify(|| {
            let mut done = 0;
            // copy_file_range(2) clones if it can (btrfs, XFS), some GiB at a time.
            while done < len {
                let step = usize::try_from((len - done).min(CLONE_STEP)).expect("a GiB fits usize");
                self.copy_in_kernel(source, source_offset + done, offset + done, step)?;
                done += step as u64;
            }
            Ok(())
        })
    }

    fn copy_in_kernel(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        len: usize,
    ) -> Result<(), ShareError> {
        let (from_file, to_file) = (source.body()?.kernel_file(), self.body()?.kernel_file());
        let (Some(from_file), Some(to_file)) = (from_file, to_file) else {
            return Err(ShareError::Unsupported);
        };
        let _changing = self.body()?.change_by_kernel()?;
        let (mut from, mut to) = (source_offset, offset);
        let mut rest = len;
        while rest > 0 {
            let copied = rustix::fs::copy_file_range(
                from_file,
                Some(&mut from),
                to_file,
                Some(&mut to),
                rest,
            );
            match copied {
                Ok(0) => return Err(ShareError::PeerInvalid),
                Ok(copied) => rest -= copied,
                Err(Errno::INTR) => {}
                Err(Errno::XDEV) => return Err(ShareError::CrossDevice),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// Most bytes of one copy.
pub const COPY_MAX: usize = 1 << 20;
const CLONE_STEP: u64 = 1 << 30;
