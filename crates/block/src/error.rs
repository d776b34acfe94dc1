//! Why a request of a block device failed, and the number that a client is told.

use pmem::MediumError;

/// Why a request did not happen, or cannot be relied on. The first word of a variant says who is to blame.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BlockError {
    /// The requester reads, or asks about, bytes that the device does not have. Nothing happened.
    #[error("{len} bytes at {offset} do not lie in a device of {size}")]
    PeerBeyondEnd {
        /// Where the range begins.
        offset: u64,
        /// How long it is.
        len: u64,
        /// The size of the device.
        size: u64,
    },
    /// The requester writes, trims or zeroes bytes that the device does not have. Nothing happened.
    #[error("{len} bytes at {offset} have no room in a device of {size}")]
    PeerNoRoom {
        /// Where the range begins.
        offset: u64,
        /// How long it is.
        len: u64,
        /// The size of the device.
        size: u64,
    },
    /// The request does not begin and end between blocks. Nothing happened.
    #[error("{len} bytes at {offset} are not whole blocks of {block}")]
    PeerUnaligned {
        /// Where the range begins.
        offset: u64,
        /// How long it is.
        len: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// The device was opened for reading only, or damage has made this part of it so. Nothing happened.
    #[error("the device takes no changes")]
    ConfigReadOnly,
    /// The device cannot grow, or was asked to shrink.
    #[error("the device keeps its size")]
    ConfigFixedSize,
    /// The device is replicated, and another machine serves it: ask there. Whether a change happens is not known.
    #[error("another machine serves the device now")]
    ConfigElsewhere,
    /// Nothing that the device holds can be durable, and the operator has not allowed to pretend.
    #[error("the device is volatile and persistence is not emulated")]
    ConfigVolatile,
    /// The medium holds a block whose bytes are lost. A write of the whole block heals it.
    #[error("the block at {offset} is lost")]
    MediaLost {
        /// Where the block begins.
        offset: u64,
    },
    /// The file system below has no space for the bytes.
    #[error("the disk below is full")]
    MediaFull,
    /// The structure that finds blocks is damaged at this place.
    #[error("the structure of the volume is damaged where the block at {offset} is looked up")]
    MediaDamaged {
        /// Where the block begins.
        offset: u64,
    },
    /// The device shows how another one was at a moment, and what that one had then could not be kept.
    #[error("what the device showed could not be kept")]
    MediaNotKept,
    /// An earlier flush failed: it is unknown which bytes are durable.
    #[error("an earlier flush failed")]
    MediaPoisoned,
    /// The operating system or the device refused; the number is its `errno`.
    #[error("the disk below failed: {}", std::io::Error::from_raw_os_error(*.0))]
    MediaIo(i32),
    /// The medium became shorter while the device was open.
    #[error("the file below shrank")]
    MediaTruncated,
}

impl BlockError {
    /// The `errno` that tells a client of the error. Each is a number that the NBD protocol knows too, and NBD's
    /// numbers are those of Linux, so this is the one place where errors become numbers.
    ///
    /// Spec: NBD protocol, "Error values".
    pub const fn errno(self) -> i32 {
        match self {
            Self::PeerBeyondEnd { .. } | Self::PeerUnaligned { .. } => EINVAL,
            Self::PeerNoRoom { .. } | Self::MediaFull => ENOSPC,
            Self::ConfigReadOnly => EPERM,
            Self::ConfigFixedSize => ENOTSUP,
            Self::ConfigElsewhere => ESHUTDOWN,
            Self::ConfigVolatile
            | Self::MediaLost { .. }
            | Self::MediaDamaged { .. }
            | Self::MediaNotKept
            | Self::MediaPoisoned
            | Self::MediaIo(_)
            | Self::MediaTruncated => EIO,
        }
    }
}

impl From<MediumError> for BlockError {
    fn from(error: MediumError) -> Self {
        match error {
            // The waiting forms alone are called.
            MediumError::WouldBlock => Self::MediaIo(EIO),
            // The device has checked the range against its own size: the medium is shorter than it was.
            MediumError::OutOfBounds { .. } | MediumError::Truncated => Self::MediaTruncated,
            MediumError::Misaligned { .. } => Self::MediaIo(EINVAL),
            MediumError::ReadOnly => Self::ConfigReadOnly,
            MediumError::Poisoned => Self::MediaPoisoned,
            MediumError::MediaIo(ENOSPC) => Self::MediaFull,
            MediumError::MediaIo(errno) => Self::MediaIo(errno),
            MediumError::VolatileRefused => Self::ConfigVolatile,
        }
    }
}

impl From<rustix::io::Errno> for BlockError {
    fn from(errno: rustix::io::Errno) -> Self {
        match errno {
            rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::FBIG => {
                Self::MediaFull
            }
            other => Self::MediaIo(other.raw_os_error()),
        }
    }
}

// Linux uapi/asm-generic/errno-base.h and errno.h; the NBD protocol has the same.
const EPERM: i32 = 1;
const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ESHUTDOWN: i32 = 108;
const ENOTSUP: i32 = 95;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_the_number_that_a_client_expects() {
        let (offset, len, size) = (4096, 512, 4096);
        let table = [
            (BlockError::PeerBeyondEnd { offset, len, size }, 22),
            (BlockError::PeerNoRoom { offset, len, size }, 28),
            (BlockError::PeerUnaligned { offset, len, block: 4096 }, 22),
            (BlockError::ConfigReadOnly, 1),
            (BlockError::ConfigFixedSize, 95),
            (BlockError::ConfigVolatile, 5),
            (BlockError::MediaLost { offset }, 5),
            (BlockError::MediaFull, 28),
            (BlockError::MediaDamaged { offset }, 5),
            (BlockError::MediaNotKept, 5),
            (BlockError::MediaPoisoned, 5),
            (BlockError::MediaIo(121), 5),
            (BlockError::MediaTruncated, 5),
        ];
        for (error, errno) in table {
            assert_eq!(error.errno(), errno, "{error}");
        }
    }

    #[test]
    fn a_full_disk_is_told_apart_from_a_broken_one() {
        assert_eq!(BlockError::from(MediumError::MediaIo(28)), BlockError::MediaFull);
        assert_eq!(BlockError::from(rustix::io::Errno::DQUOT), BlockError::MediaFull);
        assert_eq!(BlockError::from(rustix::io::Errno::IO), BlockError::MediaIo(5));
    }
}
