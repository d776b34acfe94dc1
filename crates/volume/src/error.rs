//! Why a volume cannot be made, opened or grown.

use pmem::{MapError, MediumError};

use crate::Damage;

/// Why an operation on a whole volume failed. Requests of an open volume fail with [`block::BlockError`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum VolumeError {
    /// A volume needs more bytes than there are.
    #[error("{len} bytes are too few for a volume: the layout needs {least}")]
    ConfigTooSmall {
        /// Bytes there are.
        len: u64,
        /// Bytes that the smallest arena needs.
        least: u64,
    },
    /// The sector is neither 512 nor 4096 bytes long.
    #[error("sectors have 512 or 4096 bytes, not {sector}")]
    ConfigSector {
        /// Bytes asked for.
        sector: u32,
    },
    /// An arena has at least one free block, and no more than the flog has room for.
    #[error("an arena has 1 to {most} lanes, not {lanes}")]
    ConfigLanes {
        /// Lanes asked for.
        lanes: u32,
        /// The most there can be.
        most: u32,
    },
    /// Another process, or another part of this one, has the volume open.
    #[error("the volume is in use")]
    ConfigInUse,
    /// A volume grows by whole arenas, and there is no room for one more.
    #[error("a volume has at most {most} arenas")]
    ConfigTooManyArenas {
        /// The most there can be.
        most: usize,
    },
    /// A volume that has been opened as a medium alone has no file that could grow.
    #[error("the volume keeps its size")]
    ConfigFixedSize,
    /// Nothing here is a volume: no info block, and no copy where one would be.
    #[error(
        "this is no volume: there is no info block at the start, and no copy of one at the end"
    )]
    PeerForeign,
    /// The volume is damaged so that it cannot be served.
    #[error("{0}")]
    MediaDamaged(Damage),
    /// The medium failed.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// The file cannot be mapped or grown.
    #[error(transparent)]
    File(#[from] MapError),
}

impl From<rustix::io::Errno> for VolumeError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::File(MapError::MediaOpen(errno.raw_os_error()))
    }
}
