//! A region as the memory of a structure that does not ask where its memory is.

use pmem::Memory;

use super::{Messages, RegionError, RemoteRegion};

/// The atomic write is stored in one piece where [`RemoteRegion::atomic_write`] says so.
impl<M: Messages> Memory for RemoteRegion<M> {
    type Error = RegionError<M::Error>;

    fn len(&self) -> u64 {
        Self::len(self)
    }

    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Self::Error> {
        self.write(offset, bytes)
    }

    fn commit(&mut self, offset: u64, len: u64) -> Result<(), Self::Error> {
        Self::commit(self, offset, len)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Self::Error> {
        Self::read(self, offset, out)
    }

    fn atomic_write(&mut self, offset: u64, value: u64) -> Result<(), Self::Error> {
        Self::atomic_write(self, offset, value)
    }
}
