//! The file system of a share, in the form of client queries.
//!
//! Spec: MS-FSCC §2.5 (file-system information classes).

use pmem::DurabilityClass;

use super::Share;
use super::entry::Entry;
use super::error::ShareError;
use super::inode::FileKey;

/// Sizes of the file system, in allocation units.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VolumeSize {
    /// All units.
    pub total_units: u64,
    /// Free units, root's reserve included.
    pub free_units: u64,
    /// Units free to ordinary users.
    pub available_units: u64,
    /// Bytes of one unit.
    pub unit_bytes: u32,
    /// Files for which there is room in all.
    pub total_nodes: u64,
    /// Files for which there is still room.
    pub free_nodes: u64,
}

/// The abilities of the volume: FileFsAttributeInformation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct VolumeAttributes(pub u32);

impl VolumeAttributes {
    // NTFS reports this too, meaning that names are found as written; clients know that they are also found
    // in any case.
    const CASE_SENSITIVE_SEARCH: u32 = 0x0000_0001;
    const CASE_PRESERVED_NAMES: u32 = 0x0000_0002;
    const UNICODE_ON_DISK: u32 = 0x0000_0004;
    const SUPPORTS_SPARSE_FILES: u32 = 0x0000_0040;
    const NAMED_STREAMS: u32 = 0x0004_0000;
    const READ_ONLY_VOLUME: u32 = 0x0008_0000;
    const SUPPORTS_HARD_LINKS: u32 = 0x0040_0000;
    const SUPPORTS_EXTENDED_ATTRIBUTES: u32 = 0x0080_0000;
    const SUPPORTS_BLOCK_REFCOUNTING: u32 = 0x0800_0000;
    /// FILE_DAX_VOLUME: the slide that announced push mode prints one zero too few.
    const DAX_VOLUME: u32 = 0x2000_0000;
}

impl Share {
    /// Total and free space, now, of the file system of an open file.
    pub fn volume_size(&self, entry: &Entry) -> Result<VolumeSize, ShareError> {
        let stat = rustix::fs::fstatvfs(entry.as_fd())?;
        Ok(VolumeSize {
            total_units: stat.f_blocks,
            free_units: stat.f_bfree,
            available_units: stat.f_bavail,
            unit_bytes: u32::try_from(stat.f_frsize).unwrap_or(4096),
            total_nodes: stat.f_files,
            free_nodes: stat.f_ffree,
        })
    }

    /// The number by which clients know a file, and recognise two names of one file: unlike the inode
    /// number it is unique in the share, whatever is mounted there.
    pub fn file_id(&self, key: FileKey) -> u64 {
        if key.device == self.root_key.device {
            return key.inode;
        }
        // Inodes of other devices are shifted away from those of the top's device, which are small numbers on
        // nearly all file systems, and from each other.
        let (major, minor) = (key.device >> 32, key.device & 0xffff_ffff);
        key.inode ^ (1 << 63 | (major & 0x7ff) << 52 | (minor & 0xf_ffff) << 32)
    }

    /// The abilities of the volume of an open file, which are those of its file system. DAX is claimed
    /// only for files that really map that way; a device is a volume of its own in this.
    pub fn volume_attributes(&self, entry: &Entry) -> VolumeAttributes {
        let mut bits = VolumeAttributes::CASE_SENSITIVE_SEARCH
            | VolumeAttributes::CASE_PRESERVED_NAMES
            | VolumeAttributes::UNICODE_ON_DISK
            | VolumeAttributes::SUPPORTS_SPARSE_FILES
            | VolumeAttributes::SUPPORTS_HARD_LINKS;
        if self.is_read_only() {
            bits |= VolumeAttributes::READ_ONLY_VOLUME;
        }
        if entry.has_xattrs() {
            bits |= VolumeAttributes::NAMED_STREAMS;
            bits |= VolumeAttributes::SUPPORTS_EXTENDED_ATTRIBUTES;
        }
        if entry.clones() {
            bits |= VolumeAttributes::SUPPORTS_BLOCK_REFCOUNTING;
        }
        let is_mapped = entry.body().is_ok_and(|body| body.mappable().is_ok());
        if entry.class() == DurabilityClass::Pmem && is_mapped {
            bits |= VolumeAttributes::DAX_VOLUME;
        }
        VolumeAttributes(bits)
    }
}
