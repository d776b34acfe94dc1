//! A device that several hold, as a device.

use std::sync::Arc;

use crate::{BlockDevice, BlockError, Extent, Geometry, Survives, Zeroing};

impl BlockDevice for Arc<dyn BlockDevice> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        (**self).read(offset, out)
    }

    fn write(&self, offset: u64, bytes: &[u8], survives: Survives) -> Result<(), BlockError> {
        (**self).write(offset, bytes, survives)
    }

    fn flush(&self) -> Result<(), BlockError> {
        (**self).flush()
    }

    fn trim(&self, offset: u64, len: u64, survives: Survives) -> Result<(), BlockError> {
        (**self).trim(offset, len, survives)
    }

    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        zeroing: Zeroing,
        survives: Survives,
    ) -> Result<(), BlockError> {
        (**self).write_zeroes(offset, len, zeroing, survives)
    }

    fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError> {
        (**self).status(offset, len)
    }

    fn resize(&self, size: u64) -> Result<u64, BlockError> {
        (**self).resize(size)
    }
}
