//! Why a command on volumes fails, and what to do then.

use std::io;

use block::BlockError;
use nbd::{ExportError, ListenError, TlsError};
use volume::VolumeError;

/// Why a volume cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeFailure {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error(transparent)]
    File(#[from] block::OpenFailure),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Map(#[from] pmem::MapError),
    /// It lies in memory that does not keep it, and nobody has said that this is wanted.
    #[error("it lies in memory that a power failure erases")]
    Volatile,
    /// A volume is there already.
    #[error("a volume is there already")]
    Exists,
    /// Nothing says that the file is a volume.
    #[error("nothing says that this is a volume")]
    Unmarked,
    /// It never becomes shorter.
    #[error("it has {has} bytes, and a volume never shrinks")]
    Shrinks {
        /// Its length.
        has: u64,
    },
    /// Nothing says that the file is a volume, and it would grow.
    #[error("nothing says that this is a volume, so it is not grown")]
    NotGrown,
    /// The name is a link, or leads to something that has no bytes of its own.
    #[error("it is not a file itself, but a link or something else")]
    NoFile,
    /// The system has the disk: a mounted file system, swap, an array, or another program that took it for itself.
    #[error(
        "the system uses this disk: it is mounted, swap, part of an array, or another program's own"
    )]
    Taken,
    /// Its programs map it.
    #[error(
        "a volume of mode dax is for programs that map it: as a disk its sectors would be torn"
    )]
    Mapped,
    /// Stores there are not persistent.
    #[error("mode dax needs a file on a file system with DAX, where stores are persistent")]
    NotDax,
    /// It has no structure of its own.
    #[error("a volume of mode file or dax is its bytes alone: there is nothing to check or repair")]
    Plain,
    /// The size is missing, or given for a device.
    #[error("a file needs a --size, and a device has its own")]
    Size,
    /// The size holds no sectors, or a part of one behind them.
    #[error("its size is not one or more sectors of 512 bytes")]
    Sectors,
    /// The volume is damaged.
    #[error("the volume is damaged")]
    Damaged,
}

impl VolumeFailure {
    /// What the person at the terminal can do.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Volatile => Some("--emulate-persistence says that losing it is acceptable"),
            Self::Exists => Some("--overwrite loses it for good"),
            Self::Taken => Some("unmount it first; lsblk says what uses it"),
            Self::NoFile => Some("name the volume itself"),
            Self::NotGrown => Some(
                "truncate --size grows a plain disk image, whatever it is; the first write by landfast volume serve marks one as a volume",
            ),
            Self::Unmarked => Some("rm removes a file, whatever it is"),
            Self::Plain => Some("check what lies on it, as by fsck on its loop device"),
            Self::Mapped => Some(
                "landfast serve its directory as a share: clients map it in push mode; mode block is the one for disks",
            ),
            Self::NotDax => Some(
                "landfast diagnose PATH says what a path is and why; a devdax device is mapped as it is, without a volume",
            ),
            Self::Damaged => Some("landfast volume repair makes it whole, and says what is lost"),
            Self::Volume(VolumeError::ConfigInUse) => {
                Some("a server may have it open: end that first")
            }
            Self::Volume(VolumeError::PeerForeign) => Some(
                "landfast volume create makes one; a plain disk image is served as it is, and has nothing to check",
            ),
            Self::Volume(VolumeError::MediaDamaged(_)) => {
                Some("landfast volume check says all that is wrong")
            }
            _ => None,
        }
    }
}

/// Why volumes cannot be offered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NbdFailure {
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Listen(#[from] ListenError),
}
