//! How a volume grows: its device first, then a record says so to all members, and then clients are told.
//!
//! ```text
//!   source: device grows -- record at LSN n, durable here and at all in sync --> what is new is zeroed --> clients see the size
//!   others: the record comes: device grows, or the record is refused -- committed --> what is new is zeroed
//! ```
//! A device is never shorter than its volume, and may be longer: a record that was lost leaves it so. What lies behind the
//! volume's end there is zeroed by the record that takes it in.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use block::BlockError;
use thiserror::Error;

use super::inner::Inner;
use super::volumes::TooShort;
use crate::format::{Extent, Kind, VOLUME_LEN_MAX};

/// Why a volume does not grow.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ResizeError {
    /// The group has no such volume.
    #[error("the group has no volume {0}")]
    ConfigNoVolume(u8),
    /// Volumes only grow.
    #[error("the volume has {0} bytes already, and only grows")]
    ConfigNotLonger(u64),
    /// No such size is possible.
    #[error("a volume has a multiple of {block} bytes, at most {max}", max = VOLUME_LEN_MAX)]
    ConfigSize {
        /// Of its device.
        block: u32,
    },
    /// The device cannot grow by itself.
    #[error(
        "the device of the volume has {0} bytes and cannot grow by itself: grow it at every member, start the members again, and try again"
    )]
    ConfigDevice(u64),
    /// The change was not made, or is not known to have been.
    #[error("{0}")]
    Block(#[from] BlockError),
}

impl Inner {
    pub(super) fn resize(&self, volume: u8, size: u64) -> Result<u64, ResizeError> {
        let _alone = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let tenure = self.hub.tenure();
        self.check(tenure)?;
        let no_volume = ResizeError::ConfigNoVolume(volume);
        let offered = self.hub.sizes.get(usize::from(volume)).ok_or(no_volume)?;
        let device = self.volumes.device(volume).ok_or(no_volume)?;
        // What the group's file takes as a size.
        let block = device.geometry().block.max(SIZE_UNIT);
        if size > VOLUME_LEN_MAX || !size.is_multiple_of(u64::from(block)) {
            return Err(ResizeError::ConfigSize { block });
        }
        let present = offered.load(Ordering::Acquire);
        if size <= present {
            return Err(ResizeError::ConfigNotLonger(present));
        }
        self.volumes
            .reserve(volume, size)
            .map_err(|TooShort(found)| ResizeError::ConfigDevice(found))?;
        let extent = Extent { volume, offset: present, len: size - present };
        self.change(tenure, Kind::Resize, extent, &[])?;
        offered.fetch_max(size, Ordering::AcqRel);
        Ok(size)
    }
}

const SIZE_UNIT: u32 = 4096;
