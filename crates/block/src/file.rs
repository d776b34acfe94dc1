//! A file, or a block device of this machine, as a disk.
//!
//! A durable write is `pwrite` and a group commit: the writes that wait at the same time share one `fdatasync`
//! ([`pmem::CommitGroup`]). The device adds no layout, so a block is as whole after a crash as the disk leaves it:
//! disks write their own logical blocks whole, and the page cache of ext4 and XFS writes a page in one request.
//! This is why a volume on such a disk has no translation table: the table would cost three `fdatasync` for each write
//! and give nothing that the disk does not.
//!
//! Spec: pwrite(2), fdatasync(2), fallocate(2), lseek(2) "SEEK_DATA".

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pmem::{CommitGroup, DurabilityClass};
use rustix::fs::{FallocateFlags, FileType, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::range::length_of;
use crate::{BlockDevice, BlockError, Extent, Geometry, State, Survives, Zeroing};

/// A file as a disk. Whole blocks of [`FileDevice::BLOCK`] bytes of it are used.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    group: CommitGroup,
    size: AtomicU64,
    /// Held while the file grows: of two at once the smaller would cut off what the larger has given, and others have filled.
    growing: Mutex<()>,
    is_read_only: bool,
    is_regular: bool,
    class: DurabilityClass,
}

impl FileDevice {
    /// Bytes of a block.
    pub const BLOCK: u32 = 512;

    /// The whole blocks of `file`, for reading alone if `file` was opened so.
    ///
    /// # Errors
    ///
    /// The file is neither a regular file nor a block device, is not open for reading, or cannot be examined.
    pub fn new(file: File) -> Result<Self, OpenFailure> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
            return Err(OpenFailure::ConfigKind);
        }
        let is_read_only = match rustix::fs::fcntl_getfl(&file)? & OFlags::RWMODE {
            OFlags::RDWR => false,
            OFlags::WRONLY => return Err(OpenFailure::ConfigNotReadable),
            _ => true,
        };
        let length = rustix::fs::seek(&file, SeekFrom::End(0))?;
        let group = CommitGroup::of(&file).map_err(|error| OpenFailure::MediaOpen(code(&error)))?;
        // A flush of a file in memory succeeds, and keeps nothing. What is written by system calls lies in the page cache,
        // on a DAX file system too.
        let class = match pmem::is_in_memory(&file) {
            true => DurabilityClass::Volatile,
            false => DurabilityClass::Storage,
        };
        Ok(Self {
            file,
            group,
            size: AtomicU64::new(length - length % u64::from(Self::BLOCK)),
            growing: Mutex::new(()),
            is_read_only,
            is_regular: kind == FileType::RegularFile,
            class,
        })
    }

    fn write_all(&self, mut offset: u64, mut bytes: &[u8]) -> Result<(), BlockError> {
        while !bytes.is_empty() {
            match rustix::io::pwrite(&self.file, bytes, offset) {
                Ok(0) => return Err(BlockError::MediaFull),
                Ok(count) => {
                    offset += length_of(&bytes[..count]);
                    bytes = &bytes[count..];
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn write_zero_bytes(&self, mut offset: u64, mut len: u64) -> Result<(), BlockError> {
        while len > 0 {
            let part = len.min(length_of(&ZEROES));
            let zeroes = &ZEROES[..usize::try_from(part).expect("at most the length of ZEROES")];
            self.write_all(offset, zeroes)?;
            (offset, len) = (offset + part, len - part);
        }
        Ok(())
    }

    fn settle(&self, survives: Survives) -> Result<(), BlockError> {
        match survives {
            Survives::Placed => Ok(()),
            Survives::Durable => Ok(self.group.persist()?),
        }
    }

    /// Where data or a hole begins at or after `offset`; `None` where the file system cannot tell.
    fn seek(&self, to: SeekFrom, end: u64) -> Result<Option<u64>, BlockError> {
        match rustix::fs::seek(&self.file, to) {
            Ok(found) => Ok(Some(found.min(end))),
            // Nothing but a hole is left.
            Err(Errno::NXIO) => Ok(Some(end)),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl BlockDevice for FileDevice {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: self.size.load(Ordering::Acquire),
            block: Self::BLOCK,
            is_atomic: false,
            is_read_only: self.is_read_only,
            class: self.class,
            may_wait: true,
        }
    }

    fn read(&self, mut offset: u64, mut out: &mut [u8]) -> Result<(), BlockError> {
        self.geometry().check_read(offset, length_of(out))?;
        while !out.is_empty() {
            match rustix::io::pread(&self.file, &mut *out, offset) {
                Ok(0) => return Err(BlockError::MediaTruncated),
                Ok(count) => {
                    offset += length_of(&out[..count]);
                    out = &mut out[count..];
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8], survives: Survives) -> Result<(), BlockError> {
        self.geometry().check_change(offset, length_of(bytes))?;
        self.write_all(offset, bytes)?;
        self.settle(survives)
    }

    fn flush(&self) -> Result<(), BlockError> {
        Ok(self.group.persist()?)
    }

    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        zeroing: Zeroing,
        survives: Survives,
    ) -> Result<(), BlockError> {
        self.geometry().check_change(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let how = match zeroing {
            Zeroing::MayFree => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Zeroing::KeepSpace => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        };
        let allocate = || rustix::fs::fallocate(&self.file, how, offset, len);
        match rustix::io::retry_on_intr(allocate) {
            Ok(()) => {}
            // A file system or a device that can do neither: the bytes are written.
            Err(Errno::OPNOTSUPP | Errno::NODEV | Errno::NOSYS) => {
                self.write_zero_bytes(offset, len)?;
            }
            Err(errno) => return Err(errno.into()),
        }
        self.settle(survives)
    }

    fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError> {
        self.geometry().check_status(offset, len)?;
        let (block, end) = (u64::from(Self::BLOCK), offset + len);
        let Some(data) = self.seek(SeekFrom::Data(offset), end)? else {
            return Ok(Extent { len, state: State::Data });
        };
        // A hole may end inside a block, whose other part is data then.
        let hole = (data - offset) - (data - offset) % block;
        if hole > 0 {
            return Ok(Extent { len: hole, state: State::Hole });
        }
        let after = self.seek(SeekFrom::Hole(data.min(end - 1)), end)?.unwrap_or(end);
        let run = (after - offset).next_multiple_of(block).clamp(block, len);
        Ok(Extent { len: run, state: State::Data })
    }

    fn resize(&self, size: u64) -> Result<u64, BlockError> {
        let size = size.next_multiple_of(u64::from(Self::BLOCK));
        if self.is_read_only {
            return Err(BlockError::ConfigReadOnly);
        }
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let present = self.size.load(Ordering::Acquire);
        if !self.is_regular || size < present {
            return Err(BlockError::ConfigFixedSize);
        }
        rustix::fs::ftruncate(&self.file, size)?;
        self.group.persist_whole()?;
        self.size.store(size, Ordering::Release);
        Ok(size)
    }
}

/// Why a file is no disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OpenFailure {
    /// It is a directory, a pipe or another thing without blocks.
    #[error("only regular files and block devices have blocks")]
    ConfigKind,
    /// It is open for writing only.
    #[error("the file is not open for reading")]
    ConfigNotReadable,
    /// The operating system refused; the number is its `errno`.
    #[error("the file cannot be examined: {}", io::Error::from_raw_os_error(*.0))]
    MediaOpen(i32),
}

impl From<Errno> for OpenFailure {
    fn from(errno: Errno) -> Self {
        Self::MediaOpen(errno.raw_os_error())
    }
}

fn code(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())
}

static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(size: u64) -> FileDevice {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        FileDevice::new(file).unwrap()
    }

    #[test]
    fn a_file_reads_what_was_written_and_zeroes_after_a_trim() {
        let disk = disk(1 << 20);
        disk.write(0, &[9; 8192], Survives::Durable).unwrap();
        disk.trim(4096, 4096, Survives::Durable).unwrap();
        let mut bytes = [1; 8192];
        disk.read(0, &mut bytes).unwrap();
        assert_eq!(bytes[..4096], [9; 4096]);
        assert_eq!(bytes[4096..], [0; 4096]);
    }

    #[test]
    fn a_file_in_memory_promises_what_memory_does() {
        let class_in = |directory| {
            let file = tempfile::tempfile_in(directory).unwrap();
            FileDevice::new(file).unwrap().geometry().class
        };
        assert_eq!(class_in("/dev/shm"), DurabilityClass::Volatile);
        assert_eq!(class_in(env!("CARGO_MANIFEST_DIR")), DurabilityClass::Storage);
    }

    #[test]
    fn the_states_of_a_file_cover_the_range_in_whole_blocks() {
        let disk = disk(1 << 20);
        disk.write(65536, &[9; 4096], Survives::Durable).unwrap();
        let (mut at, mut states) = (0, Vec::new());
        while at < 1 << 20 {
            let extent = disk.status(at, (1 << 20) - at).unwrap();
            assert!(extent.len > 0 && extent.len.is_multiple_of(512), "{extent:?}");
            states.push((at, extent.state));
            at += extent.len;
        }
        assert_eq!(at, 1 << 20);
        let data = states.iter().filter(|(_, state)| *state == State::Data).count();
        assert!(data >= 1, "{states:?}");
    }

    #[test]
    fn a_file_grows_and_never_shrinks() {
        let disk = disk(4096);
        assert_eq!(disk.resize(10_000), Ok(10_240));
        assert_eq!(disk.geometry().size, 10_240);
        assert_eq!(disk.resize(4096), Err(BlockError::ConfigFixedSize));
        disk.write(9728, &[3; 512], Survives::Placed).unwrap();
    }

    #[test]
    fn a_file_opened_for_reading_takes_no_change() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let disk = FileDevice::new(File::open(file.path()).unwrap()).unwrap();
        assert_eq!(disk.write(0, &[0; 512], Survives::Placed), Err(BlockError::ConfigReadOnly));
        assert_eq!(disk.resize(8192), Err(BlockError::ConfigReadOnly));
        disk.read(0, &mut [0; 512]).unwrap();
    }

    #[test]
    fn a_directory_is_no_disk() {
        let directory = tempfile::tempdir().unwrap();
        let opened = FileDevice::new(File::open(directory.path()).unwrap());
        assert_eq!(opened.unwrap_err(), OpenFailure::ConfigKind);
    }
}
