//! The bytes of a device of persistent memory (devdax).
//!
//! devdax has neither read(2) nor write(2): bytes are read and written through the device's medium, and written
//! bytes are durable when the write returns. The length of a device is fixed.
//!
//! Spec: Linux Documentation/ABI/testing/sysfs-bus-dax.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pmem::{DurabilityClass, MapError, Medium, MediumError, OpenOptions};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;
use tracing::info;

use super::{Body, Flushes, MapFailure, MapRefusal, Mappable};
use crate::error::ShareError;
use crate::inline::InlineIo;
use crate::inode::proc_name;

/// A whole device, mapped.
#[derive(Debug)]
pub(crate) struct Device {
    medium: Arc<dyn Medium>,
    /// Bytes may have been lost: no flush succeeds any more.
    is_poisoned: AtomicBool,
}

impl Device {
    /// Opens and maps a device; returns its number too, as `st_rdev` has it.
    pub(crate) fn open(path: &Path, read_only: bool) -> Result<(u64, Self), DeviceError> {
        let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = rustix::fs::fstat(&found)?;
        // Before the device is opened: opening some devices has side effects.
        if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice {
            return Err(DeviceError::ConfigNotDax);
        }
        let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(rustix::fs::open(proc_name(&found), flags, Mode::empty())?);
        let medium = pmem::length(&file)
            .and_then(|len| pmem::map_file(&file, len, OpenOptions::default()))
            .map_err(|error| match error {
                MapError::ConfigNotMappable => DeviceError::ConfigNotDax,
                other => DeviceError::MediaMap(other),
            })?;
        let (bytes, class) = (medium.len(), medium.class());
        info!(path = %path.display(), bytes, %class, "a device may be shown as a file");
        Ok((stat.st_rdev, Self::of(medium)))
    }

    /// The device of a medium.
    pub(crate) fn of(medium: Arc<dyn Medium>) -> Self {
        Self { medium, is_poisoned: AtomicBool::new(false) }
    }

    fn append(
        &self,
        out: &mut Vec<u8>,
        len: usize,
        offset: u64,
        read: impl FnOnce(u64, &mut [u8]) -> Result<(), MediumError>,
    ) -> Result<usize, ShareError> {
        let (start, len) = (out.len(), self.within(len, offset));
        out.resize(start + len, 0);
        let read = read(offset.min(self.medium.len()), &mut out[start..]);
        read.inspect_err(|_| out.truncate(start))?;
        Ok(len)
    }

    fn persist_range(&self, offset: u64, len: u64) -> Result<(), ShareError> {
        match self.medium.persist(offset, len) {
            // Memory that stands for a device in tests.
            Err(MediumError::VolatileRefused) => Ok(()),
            other => Ok(other?),
        }
    }

    // The part of a range that lies on the device.
    fn within(&self, len: usize, offset: u64) -> usize {
        let left = self.medium.len().saturating_sub(offset);
        usize::try_from(left).map_or(len, |left| left.min(len))
    }

    fn check_room(&self, len: usize, offset: u64) -> Result<u64, ShareError> {
        let wide = u64::try_from(len).map_err(|_| ShareError::TooLarge)?;
        let end = offset.checked_add(wide);
        // A device does not grow.
        if end.is_none_or(|end| end > self.medium.len()) {
            Err(ShareError::DiskFull)
        } else {
            Ok(wide)
        }
    }
}

impl Body for Device {
    fn class(&self) -> DurabilityClass {
        self.medium.class()
    }

    // Pages that are not present have to be waited for, and a FLUSH of RDMA writes too.
    fn inline_io(&self) -> InlineIo {
        InlineIo::CachedReads
    }

    fn size(&self) -> Result<u64, ShareError> {
        Ok(self.medium.len())
    }

    fn try_read_at(&self, out: &mut Vec<u8>, len: usize, offset: u64) -> Result<usize, ShareError> {
        self.append(out, len, offset, |at, room| self.medium.try_read(at, room))
    }

    fn read_at(&self, out: &mut Vec<u8>, len: usize, offset: u64) -> Result<usize, ShareError> {
        self.append(out, len, offset, |at, room| self.medium.read(at, room))
    }

    /// # Durability
    ///
    /// As [`Device::write_at`].
    fn try_write_at(&self, bytes: &[u8], offset: u64) -> Result<(), ShareError> {
        let len = self.check_room(bytes.len(), offset)?;
        self.medium.try_place(offset, bytes)?;
        self.persist_range(offset, len)
    }

    /// Writes all of `bytes`, or nothing if they do not fit.
    ///
    /// # Durability
    ///
    /// After `Ok` the bytes survive a crash; before that each aligned word of 8 bytes may or may
    /// not survive.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), ShareError> {
        let len = self.check_room(bytes.len(), offset)?;
        self.medium.place(offset, bytes)?;
        self.persist_range(offset, len)
    }

    // Every write has made its own bytes durable; a flush only reports memory that has failed.
    fn persist(&self, _flushes: &dyn Flushes) -> Result<(), ShareError> {
        if self.is_poisoned.load(Ordering::Acquire) {
            return Err(ShareError::MediaPoisoned);
        }
        let outcome = self.persist_range(0, self.medium.len());
        if outcome.is_err() {
            self.is_poisoned.store(true, Ordering::Release);
        }
        outcome
    }

    fn poison(&self, _flushes: &dyn Flushes) {
        self.is_poisoned.store(true, Ordering::Release);
    }

    fn mappable(&self) -> Result<&dyn Mappable, MapRefusal> {
        Ok(self)
    }
}

impl Mappable for Device {
    // The device stays mapped as long as its share exists.
    fn map(
        &self,
        _range: Range<u64>,
        _options: OpenOptions,
    ) -> Result<Arc<dyn Medium>, MapFailure> {
        // The medium answers for the bytes of a flush alone, and knows nothing of those that a device has lost.
        if self.is_poisoned.load(Ordering::Acquire) {
            return Err(ShareError::MediaPoisoned.into());
        }
        Ok(Arc::clone(&self.medium))
    }
}

/// Why a device cannot be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The path is a file, a disk, or another character device.
    #[error("it is no character device of persistent memory (devdax)")]
    ConfigNotDax,
    /// The device cannot be opened, or does not exist.
    #[error("it cannot be opened: {0}")]
    ConfigOpen(Errno),
    /// The device cannot be mapped.
    #[error("it cannot be mapped: {0}")]
    MediaMap(MapError),
}

impl From<Errno> for DeviceError {
    fn from(errno: Errno) -> Self {
        Self::ConfigOpen(errno)
    }
}
