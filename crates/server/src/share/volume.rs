//! The file system under a share, as clients may ask about it.
//!
//! Spec: MS-FSCC §2.5 (file-system information classes).

use std::os::fd::AsFd;
use std::path::Path;

use pmem::DurabilityClass;
use rustix::fs::{Mode, OFlags};

use super::Share;
use super::attributes;
use super::error::ShareError;

/// Sizes of the file system, in allocation units.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VolumeSize {
    /// All of it.
    pub total_units: u64,
    /// Free, root's reserve included.
    pub free_units: u64,
    /// Free to ordinary users.
    pub available_units: u64,
    /// Bytes of one unit.
    pub unit_bytes: u32,
}

/// What the volume can do: FileFsAttributeInformation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct VolumeAttributes(pub u32);

impl VolumeAttributes {
    const CASE_PRESERVED_NAMES: u32 = 0x0000_0002;
    const UNICODE_ON_DISK: u32 = 0x0000_0004;
    const SUPPORTS_SPARSE_FILES: u32 = 0x0000_0040;
    const READ_ONLY_VOLUME: u32 = 0x0008_0000;
    const SUPPORTS_HARD_LINKS: u32 = 0x0040_0000;
    const SUPPORTS_BLOCK_REFCOUNTING: u32 = 0x0800_0000;
    /// FILE_DAX_VOLUME: the slide that announced push mode prints one zero too few.
    const DAX_VOLUME: u32 = 0x2000_0000;
}

impl Share {
    /// Total and free space now.
    pub fn volume_size(&self) -> Result<VolumeSize, ShareError> {
        let stat = rustix::fs::fstatvfs(&self.root)?;
        Ok(VolumeSize {
            total_units: stat.f_blocks,
            free_units: stat.f_bfree,
            available_units: stat.f_bavail,
            unit_bytes: u32::try_from(stat.f_frsize).unwrap_or(4096),
        })
    }

    /// What this volume can do. DAX is claimed only for files that really map that way.
    pub fn volume_attributes(&self) -> VolumeAttributes {
        let mut bits = VolumeAttributes::CASE_PRESERVED_NAMES
            | VolumeAttributes::UNICODE_ON_DISK
            | VolumeAttributes::SUPPORTS_SPARSE_FILES
            | VolumeAttributes::SUPPORTS_HARD_LINKS;
        if self.read_only {
            bits |= VolumeAttributes::READ_ONLY_VOLUME;
        }
        if self.clones {
            bits |= VolumeAttributes::SUPPORTS_BLOCK_REFCOUNTING;
        }
        if self.class == DurabilityClass::Pmem {
            bits |= VolumeAttributes::DAX_VOLUME;
        }
        VolumeAttributes(bits)
    }
}

// Two files that never have a name: whether the second can share the block of the first.
pub(super) fn probe_clones(root: impl AsFd) -> bool {
    let path = attributes::proc_name(root);
    let file = || {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        rustix::fs::open(Path::new(&path), flags, Mode::RUSR | Mode::WUSR)
    };
    let (Ok(from), Ok(to)) = (file(), file()) else { return false };
    rustix::io::write(&from, &[1; 4096]).is_ok() && rustix::fs::ioctl_ficlone(&to, &from).is_ok()
}
