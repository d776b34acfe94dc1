//! A file of a file system as a device: past the page cache where the file system allows it.
//!
//! ```text
//!   whole pages ------> O_DIRECT descriptor ----> device        the pages are in our memory: a copy of the kernel's
//!   the last page ----> buffered descriptor ----> page cache    would cost the budget twice
//!   flush ------------> group commit: fdatasync
//! ```
//!
//! O_DIRECT moves whole blocks, and a whole block written at the end would make the file longer: the rest of a file that is
//! no whole number of pages is written through the page cache, which the kernel keeps coherent with O_DIRECT. A file system
//! that refuses O_DIRECT is read and written through the page cache, and the log and `landfast status` say so.
//!
//! Spec: open(2) O_DIRECT, lseek(2) SEEK_DATA.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pmem::{Backing, CommitGroup, MediumError};
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;

use crate::device::{Device, Extent, How, Transfer};
use crate::hands::{Hands, PlainCalls};
use crate::ring::Rings;

/// See the module.
#[derive(Debug)]
pub struct Disk {
    reading: Channel,
    /// Opened when the first writable region is mapped: the file may be open for reading only until then.
    writing: OnceLock<Channel>,
    group: CommitGroup,
}

/// The descriptors of a file, for one direction.
#[derive(Debug)]
struct Channel {
    buffered: Arc<File>,
    direct: Option<Arc<File>>,
    /// A direct transfer was refused: the block size is not what pages fit.
    is_refused: AtomicBool,
}

impl Disk {
    /// A file that is open for reading, and for writing where it is to be written.
    ///
    /// # Errors
    ///
    /// No descriptor is left, or the file cannot be opened again.
    pub fn open(file: &File) -> io::Result<Self> {
        let disk = Self {
            reading: Channel::open(file, false)?,
            writing: OnceLock::new(),
            group: CommitGroup::of(file)?,
        };
        disk.permit_writing(file)?;
        Ok(disk)
    }

    /// Takes the right to write from `file`, if it has that right and nobody gave it before.
    ///
    /// # Errors
    ///
    /// As [`Disk::open`].
    pub fn permit_writing(&self, file: &File) -> io::Result<()> {
        let mode = rustix::fs::fcntl_getfl(file)? & OFlags::RWMODE;
        if mode == OFlags::RDWR && self.writing.get().is_none() {
            let _ = self.writing.set(Channel::open(file, true)?);
        }
        Ok(())
    }

    fn channel(&self, is_write: bool) -> io::Result<&Channel> {
        if !is_write {
            return Ok(&self.reading);
        }
        self.writing.get().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }
}

impl Channel {
    fn open(file: &File, writes: bool) -> io::Result<Self> {
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let open = |flags: OFlags| {
            let flags = i32::try_from((flags | OFlags::CLOEXEC).bits()).expect("flags of open(2)");
            OpenOptions::new().read(true).write(writes).custom_flags(flags).open(&path)
        };
        let direct = match open(OFlags::DIRECT) {
            Ok(direct) => Some(Arc::new(direct)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                tracing::info!(
                    "the file system refuses O_DIRECT: pages take memory of the kernel as well"
                );
                None
            }
            Err(error) => return Err(error),
        };
        let buffered = Arc::new(open(OFlags::empty())?);
        Ok(Self { buffered, direct, is_refused: AtomicBool::new(false) })
    }

    /// The descriptor for a transfer.
    fn of(&self, offset: u64, len: usize) -> &Arc<File> {
        let is_whole = offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE_LEN);
        match &self.direct {
            Some(direct) if is_whole && !self.is_refused.load(Ordering::Relaxed) => direct,
            _ => &self.buffered,
        }
    }

    /// `call` on the descriptor for a transfer, and on the buffered one if the kernel refuses the alignment.
    fn call(
        &self,
        (offset, len): (u64, usize),
        mut call: impl FnMut(&File) -> Result<usize, Errno>,
    ) -> io::Result<usize> {
        let descriptor = self.of(offset, len);
        match call(descriptor) {
            // Of several that are refused at once each is made again.
            Err(Errno::INVAL) if !Arc::ptr_eq(descriptor, &self.buffered) => {
                if !self.is_refused.swap(true, Ordering::Relaxed) {
                    tracing::info!("direct transfers of pages are refused: the page cache is used");
                }
                Ok(call(&self.buffered)?)
            }
            other => Ok(other?),
        }
    }
}

impl Device for Disk {
    fn len(&self) -> io::Result<u64> {
        let size = rustix::fs::fstat(&*self.reading.buffered)?.st_size;
        Ok(u64::try_from(size).unwrap_or(0))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let span = (offset, out.len());
        self.channel(false)?.call(span, |file| rustix::io::pread(file, &mut *out, offset))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let span = (offset, bytes.len());
        self.channel(true)?.call(span, |file| rustix::io::pwrite(file, bytes, offset))
    }

    fn transfer(&self, batch: &mut [Transfer]) {
        // One transfer costs less by a plain call. A batch has one direction, and whole pages but for the last.
        let is_write = batch.first().is_some_and(|first| first.is_write);
        if let (2.., Ok(channel)) = (batch.len(), self.channel(is_write)) {
            let whole = batch.iter().take_while(|transfer| transfer.len.is_multiple_of(PAGE_LEN));
            let whole = whole.count();
            let file = channel.of(0, PAGE_LEN);
            let (whole, _) = batch.split_at_mut(whole);
            let by_ring = rings().is_some_and(|rings| rings.run(&**file, whole));
            if !by_ring && let Some(hands) = hands() {
                let device: Arc<dyn Device> = Arc::new(PlainCalls(Arc::clone(file)));
                hands.run(&device, whole);
            }
        }
        for transfer in batch {
            // The rest of what was cut short, and what a batch may be refused for: its alignment, or a signal.
            if matches!(&transfer.result, Err(error) if is_to_repeat(error)) {
                transfer.result = Ok(0);
            }
            transfer.carry_out(self);
        }
    }

    fn persist(&self) -> Result<(), MediumError> {
        self.group.persist()
    }

    fn is_poisoned(&self) -> bool {
        self.group.is_poisoned()
    }

    fn poison(&self) {
        self.group.poison();
    }

    fn direct(&self) -> Option<&Arc<File>> {
        let channel = &self.reading;
        channel.direct.as_ref().filter(|_| !channel.is_refused.load(Ordering::Relaxed))
    }

    fn extent_at(&self, offset: u64) -> Option<Extent> {
        let file = &*self.reading.buffered;
        // Nobody uses the position that this moves.
        let data = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Ok(data) => data,
            // A hole up to the end of the file; behind the end is nothing.
            Err(Errno::NXIO) => {
                let range = offset..self.len().ok()?;
                return (!range.is_empty()).then_some(Extent { range, is_hole: true });
            }
            Err(_) => return None,
        };
        if data > offset {
            return Some(Extent { range: offset..data, is_hole: true });
        }
        let end = rustix::fs::seek(file, SeekFrom::Hole(offset)).ok()?;
        Some(Extent { range: offset..end.max(offset + 1), is_hole: false })
    }

    fn backing(&self) -> Option<Backing> {
        Some(self.group.backing())
    }

    fn how(&self) -> How {
        let channel = &self.reading;
        let is_direct = channel.direct.is_some() && !channel.is_refused.load(Ordering::Relaxed);
        How { is_direct, is_ring: rings().is_some() }
    }
}

fn is_to_repeat(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EINTR | libc::EAGAIN))
}

/// Rings for batches, where they are to be used and the kernel has them.
pub(crate) fn rings() -> Option<&'static Rings> {
    static RINGS: OnceLock<Option<Rings>> = OnceLock::new();
    let open = || if std::env::var_os(NO_RING).is_some() { None } else { Rings::open() };
    RINGS.get_or_init(open).as_ref()
}

fn hands() -> Option<&'static Hands> {
    static HANDS: OnceLock<Option<Hands>> = OnceLock::new();
    HANDS.get_or_init(|| Hands::new().ok()).as_ref()
}

/// Set, it makes this process do without io_uring, as in a container that refuses it.
const NO_RING: &str = "LANDFAST_NO_IO_URING";
const PAGE: u64 = 4096;
const PAGE_LEN: usize = 4096;
