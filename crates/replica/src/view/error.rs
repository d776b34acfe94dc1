//! Why there is no view, and which ones there could be.

use std::{fmt, io};

use block::BlockError;
use log::Lsn;

use super::point::{Point, Utc};
use super::records::RecordsError;

/// Why there is no view.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The volumes are beyond the point, or the order does not reach it.
    #[error("no view at {point}: the points from {available} can be had")]
    ConfigOutOfRange {
        /// What was asked.
        point: Point,
        /// What there is.
        available: Available,
    },
    /// No mark of the name lies in what can be shown.
    #[error("no mark named {name:?} lies in what can be shown")]
    ConfigNoMark {
        /// What was asked.
        name: String,
    },
    /// The volumes are a mixture of moments.
    #[error(
        "the volumes are being copied and are no copy at one moment; the snapshot of before is"
    )]
    ConfigMixed,
    /// The member is the source: its volumes hold everything, and no earlier point can be had there.
    #[error(
        "this member is the source, which shows its volumes as they are now alone: ask for `latest`, or ask a destination"
    )]
    ConfigSource,
    /// Writes of the source did not end in time: they wait for members, or for a disk.
    #[error(
        "writes of the source wait for something else, so there is no moment to show: try again, or ask a destination"
    )]
    ConfigBusy,
    /// As many views are open as may be.
    #[error("{most} views are open, and no more may be")]
    ConfigTooMany {
        /// How many may be.
        most: usize,
    },
    /// The changes of the view cannot be stored there.
    #[error("the store of a view: {0}")]
    Store(#[from] io::Error),
    /// The records cannot be had.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// A record is about a volume that the member does not have.
    #[error("the record at {at} is about volume {volume}")]
    MediaVolume {
        /// The record.
        at: Lsn,
        /// The volume.
        volume: u8,
    },
    /// What a record changes cannot be laid over the volume.
    #[error("volume {volume}, the record at {at}: {error}")]
    Load {
        /// The record.
        at: Lsn,
        /// The volume.
        volume: u8,
        /// Why.
        error: BlockError,
    },
}

/// Which points of an order a member can show.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Available {
    /// The oldest: what the member's volumes hold.
    pub from: Lsn,
    /// The newest.
    pub to: Lsn,
    /// When the first record above `from` was made, in nanoseconds since 1970; `None` where there is none.
    pub first_ns: Option<u64>,
    /// When the last record below `to` was made.
    pub last_ns: Option<u64>,
}

impl fmt::Display for Available {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.from, self.to)?;
        match (self.first_ns, self.last_ns) {
            (Some(first), Some(last)) => write!(f, " ({} to {})", Utc(first), Utc(last)),
            _ => Ok(()),
        }
    }
}
