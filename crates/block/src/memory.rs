//! The bytes of a medium as a disk, without any layout of its own: memory, or persistent memory used raw.
//!
//! A crash may tear a block here: the unit that survives is the medium's (8 bytes on persistent memory). A
//! `volume::Volume` over the same medium is the disk whose blocks stay whole.

use std::sync::Arc;

use pmem::{DurabilityClass, MapError, Medium, OpenOptions};

use crate::range::length_of;
use crate::{BlockDevice, BlockError, Extent, Geometry, State, Survives, Zeroing};

/// A medium as a disk.
#[derive(Debug)]
pub struct MemoryDevice {
    medium: Arc<dyn Medium>,
    size: u64,
}

impl MemoryDevice {
    /// The whole blocks of `medium`.
    pub fn new(medium: Arc<dyn Medium>) -> Self {
        let size = medium.len() - medium.len() % u64::from(BLOCK);
        Self { medium, size }
    }

    /// A disk of zeroes in memory that ends with the process. Its flush does nothing and succeeds, which
    /// [`Geometry::class`] shows to be worth nothing: [`DurabilityClass::Volatile`].
    ///
    /// # Errors
    ///
    /// When the address space of the process is used up.
    pub fn anonymous(size: u64) -> Result<Self, MapError> {
        let options = OpenOptions { emulate_persistence: true };
        Ok(Self::new(pmem::anonymous_with(size, options)?))
    }

    fn zero(&self, mut offset: u64, mut len: u64) -> Result<(), BlockError> {
        while len > 0 {
            let part = len.min(length_of(&ZEROES));
            let zeroes = &ZEROES[..usize::try_from(part).expect("at most the length of ZEROES")];
            self.medium.place(offset, zeroes)?;
            (offset, len) = (offset + part, len - part);
        }
        Ok(())
    }

    fn settle(&self, offset: u64, len: u64, survives: Survives) -> Result<(), BlockError> {
        match survives {
            Survives::Placed => Ok(()),
            Survives::Durable => Ok(self.medium.persist(offset, len)?),
        }
    }
}

impl BlockDevice for MemoryDevice {
    fn geometry(&self) -> Geometry {
        let class = self.medium.class();
        Geometry {
            size: self.size,
            block: BLOCK,
            is_atomic: false,
            is_read_only: false,
            class,
            may_wait: class == DurabilityClass::Storage,
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        self.geometry().check_read(offset, length_of(out))?;
        Ok(self.medium.read(offset, out)?)
    }

    fn write(&self, offset: u64, bytes: &[u8], survives: Survives) -> Result<(), BlockError> {
        self.geometry().check_change(offset, length_of(bytes))?;
        self.medium.place(offset, bytes)?;
        self.settle(offset, length_of(bytes), survives)
    }

    fn flush(&self) -> Result<(), BlockError> {
        Ok(self.medium.persist(0, self.size)?)
    }

    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        _zeroing: Zeroing,
        survives: Survives,
    ) -> Result<(), BlockError> {
        self.geometry().check_change(offset, len)?;
        self.zero(offset, len)?;
        self.settle(offset, len, survives)
    }

    fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError> {
        self.geometry().check_status(offset, len)?;
        Ok(Extent { len, state: State::Data })
    }

    fn resize(&self, _size: u64) -> Result<u64, BlockError> {
        Err(BlockError::ConfigFixedSize)
    }
}

/// Requests may begin and end at every sector of the smallest size in use.
const BLOCK: u32 = 512;
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_reads_what_was_written_and_zeroes_elsewhere() {
        let disk = MemoryDevice::anonymous(1 << 20).unwrap();
        disk.write(512, &[7; 1024], Survives::Placed).unwrap();
        disk.write_zeroes(1024, 512, Zeroing::KeepSpace, Survives::Durable).unwrap();
        disk.flush().unwrap();
        let mut bytes = [1; 2048];
        disk.read(0, &mut bytes).unwrap();
        assert_eq!(bytes[..512], [0; 512]);
        assert_eq!(bytes[512..1024], [7; 512]);
        assert_eq!(bytes[1024..], [0; 1024]);
    }

    #[test]
    fn memory_refuses_to_pretend_unless_told_to() {
        let disk = MemoryDevice::new(pmem::anonymous(4096).unwrap());
        disk.write(0, &[1; 512], Survives::Placed).unwrap();
        assert_eq!(disk.flush(), Err(BlockError::ConfigVolatile));
        assert_eq!(disk.write(0, &[1; 512], Survives::Durable), Err(BlockError::ConfigVolatile));
    }

    #[test]
    fn memory_keeps_its_size() {
        let disk = MemoryDevice::anonymous(5000).unwrap();
        assert_eq!(disk.geometry().size, 4608);
        assert_eq!(disk.resize(8192), Err(BlockError::ConfigFixedSize));
    }
}
