//! A member, or an archive, on a block device: a disk, a volume, a file without a mapping.

use std::io;
use std::path::Path;
use std::sync::Arc;

use block::{AnyAlignment, BlockDevice, BlockError, FileDevice, Survives};

use super::local::{LocalStoreError, owned_file};
use super::{Store, StoreError, Worth};

/// A block device as a store. A commit is a flush of the device.
#[derive(Debug)]
pub struct DeviceStore {
    device: AnyAlignment<Arc<dyn BlockDevice>>,
    is_begun: bool,
}

impl DeviceStore {
    /// The whole of a device that nobody else writes to.
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self { device: AnyAlignment::new(device), is_begun: false }
    }

    /// The file at `path`, which gets `len` bytes, reserved, if it has less; it is read and written by system calls, and
    /// not mapped. Nobody else may open it so meanwhile.
    ///
    /// # Errors
    ///
    /// As [`super::LocalStore::open`].
    pub fn file(path: &Path, len: u64) -> Result<Self, LocalStoreError> {
        let (file, _) = owned_file(path, len)?;
        let device = FileDevice::new(file)
            .map_err(|error| LocalStoreError::Open(io::Error::other(error)))?;
        Ok(Self::new(Arc::new(device)))
    }
}

impl Store for DeviceStore {
    fn len(&self) -> u64 {
        self.device.geometry().size
    }

    fn worth(&self) -> Worth {
        // What is not made by instructions alone waits like a disk.
        let class = self.device.geometry().class;
        Worth { class, is_emulated: false, is_remote: false }
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.device.read(offset, out).map_err(failed)
    }

    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.device.write(offset, bytes, Survives::Placed).map_err(failed)
    }

    fn begin_commit(&mut self, _offset: u64, _len: u64) -> Result<(), StoreError> {
        self.is_begun = true;
        Ok(())
    }

    fn end_commit(&mut self) -> Result<(), StoreError> {
        match std::mem::take(&mut self.is_begun) {
            true => self.device.flush().map_err(failed),
            false => Ok(()),
        }
    }

    /// A flush covers whatever was written to the device, whoever wrote it.
    fn settle(&mut self, _offset: u64, _len: u64) -> Result<(), StoreError> {
        self.device.flush().map_err(failed)
    }
}

fn failed(error: BlockError) -> StoreError {
    StoreError::new(error)
}
