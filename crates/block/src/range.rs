//! The one check of a request's range, which every device makes before it does anything.

use crate::{BlockError, Geometry};

/// What a request does, as far as the check of its range cares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Access {
    Look,
    Change,
}

impl Geometry {
    /// Checks a range whose state is asked: at least one block.
    ///
    /// # Errors
    ///
    /// As [`Geometry::check_read`]; [`BlockError::PeerBeyondEnd`] for an empty range too.
    pub fn check_status(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        if len == 0 {
            return Err(BlockError::PeerBeyondEnd { offset, len, size: self.size });
        }
        self.check_read(offset, len)
    }

    /// Checks a range that is read.
    ///
    /// # Errors
    ///
    /// [`BlockError::PeerBeyondEnd`], [`BlockError::PeerUnaligned`].
    pub fn check_read(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.check(offset, len, Access::Look)
    }

    /// Checks a range that is to change.
    ///
    /// # Errors
    ///
    /// [`BlockError::ConfigReadOnly`], [`BlockError::PeerNoRoom`], [`BlockError::PeerUnaligned`].
    pub fn check_change(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        if self.is_read_only {
            return Err(BlockError::ConfigReadOnly);
        }
        self.check(offset, len, Access::Change)
    }

    fn check(&self, offset: u64, len: u64, access: Access) -> Result<(), BlockError> {
        let size = self.size;
        if offset > size || len > size - offset {
            return Err(match access {
                Access::Look => BlockError::PeerBeyondEnd { offset, len, size },
                Access::Change => BlockError::PeerNoRoom { offset, len, size },
            });
        }
        let block = u64::from(self.block);
        if !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Err(BlockError::PeerUnaligned { offset, len, block: self.block });
        }
        Ok(())
    }
}

/// The length of a buffer as a 64-bit number.
pub(crate) fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("no supported machine has more than 64 address bits")
}

#[cfg(test)]
mod tests {
    use pmem::DurabilityClass;

    use super::*;

    const DISK: Geometry = Geometry {
        size: 8192,
        block: 512,
        is_atomic: true,
        is_read_only: false,
        class: DurabilityClass::Pmem,
        may_wait: false,
    };

    #[test]
    fn a_range_outside_of_the_device_is_refused_without_wrapping() {
        for (offset, len) in [(8192, 512), (0, 8704), (u64::MAX - 511, 512), (512, u64::MAX)] {
            let size = 8192;
            let beyond = BlockError::PeerBeyondEnd { offset, len, size };
            assert_eq!(DISK.check_read(offset, len), Err(beyond));
            let no_room = BlockError::PeerNoRoom { offset, len, size };
            assert_eq!(DISK.check_change(offset, len), Err(no_room));
        }
        assert_eq!(DISK.check_read(0, 8192), Ok(()));
        assert_eq!(DISK.check_read(8192, 0), Ok(()));
    }

    #[test]
    fn a_range_of_parts_of_blocks_is_refused() {
        for (offset, len) in [(1, 512), (0, 511)] {
            let unaligned = BlockError::PeerUnaligned { offset, len, block: 512 };
            assert_eq!(DISK.check_read(offset, len), Err(unaligned));
        }
    }

    #[test]
    fn a_device_for_reading_takes_no_change() {
        let disk = Geometry { is_read_only: true, ..DISK };
        assert_eq!(disk.check_change(0, 512), Err(BlockError::ConfigReadOnly));
        assert_eq!(disk.check_read(0, 512), Ok(()));
    }
}
