//! File-system classes.
//!
//! Spec: MS-FSCC §2.5, one subsection per class; SMB3 POSIX extensions for FsPosix.

use super::FsAttributes;
use super::layout::layout;
use super::name::read_name;
use crate::dtyp::{FileTime, Guid, Name};
use crate::parse_error::ParseError;
use crate::wire::{self, Reader};

/// FileFsVolumeInformation: creation u64, serial u32, label length u32, objects u8, 0, label.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FsVolume {
    /// When the volume was made.
    pub creation_time: FileTime,
    /// Serial number.
    pub serial: u32,
    /// Label.
    pub label: Name,
}

impl FsVolume {
    /// Reads the class.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        let creation_time = FileTime(reader.u64()?);
        let serial = reader.u32()?;
        let length = reader.u32()?;
        reader.u16()?;
        Ok(Self { creation_time, serial, label: read_name(&mut reader, length)? })
    }

    /// Appends the class.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.creation_time.0.to_le_bytes());
        out.extend_from_slice(&self.serial.to_le_bytes());
        out.extend_from_slice(&wire::length32(self.label.wire_len()).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        self.label.emit(out);
    }
}

/// FileFsAttributeInformation: attributes u32, longest name u32, name length u32, name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FsAttribute {
    /// What it can do.
    pub attributes: FsAttributes,
    /// Longest component, in characters.
    pub name_units_max: u32,
    /// Its name; Windows enables features by it ("NTFS").
    pub name: Name,
}

impl FsAttribute {
    /// Reads the class.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        let attributes = FsAttributes::from_bits_retain(reader.u32()?);
        let name_units_max = reader.u32()?;
        let length = reader.u32()?;
        Ok(Self { attributes, name_units_max, name: read_name(&mut reader, length)? })
    }

    /// Appends the class.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.attributes.bits().to_le_bytes());
        out.extend_from_slice(&self.name_units_max.to_le_bytes());
        out.extend_from_slice(&wire::length32(self.name.wire_len()).to_le_bytes());
        self.name.emit(out);
    }
}

layout! {
    /// FileFsSizeInformation.
    pub struct FsSize: 24, pad 0 {
        /// Units of the volume.
        pub total_units: u64,
        /// Units this user may still use.
        pub available_units: u64,
        /// Sectors of a unit.
        pub sectors_per_unit: u32,
        /// Bytes of a sector.
        pub bytes_per_sector: u32,
    }
}

layout! {
    /// FileFsFullSizeInformation.
    pub struct FsFullSize: 32, pad 0 {
        /// Units of the volume.
        pub total_units: u64,
        /// Units this user may still use.
        pub caller_available_units: u64,
        /// Units free.
        pub available_units: u64,
        /// Sectors of a unit.
        pub sectors_per_unit: u32,
        /// Bytes of a sector.
        pub bytes_per_sector: u32,
    }
}

layout! {
    /// FileFsDeviceInformation.
    pub struct FsDevice: 8, pad 0 {
        /// 7 disk, 2 CD-ROM.
        pub device_type: u32,
        /// 0x20: mounted, 0x10: remote.
        pub characteristics: u32,
    }
}

layout! {
    /// FileFsObjectIdInformation.
    pub struct FsObjectId: 64, pad 48 {
        /// The volume.
        pub object_id: Guid,
    }
}

layout! {
    /// FileFsSectorSizeInformation.
    pub struct FsSectorSize: 28, pad 0 {
        /// Logical sector.
        pub logical: u32,
        /// Largest write the medium does atomically.
        pub physical_for_atomicity: u32,
        /// Best unit of writing.
        pub physical_for_performance: u32,
        /// What the file system reckons with.
        pub effective_for_atomicity: u32,
        /// 1 aligned device, 2 aligned partition, 4 no seek penalty, 8 trim.
        pub flags: u32,
        /// Offset of the first aligned sector.
        pub sector_alignment_offset: u32,
        /// Offset of the partition.
        pub partition_alignment_offset: u32,
    }
}

layout! {
    /// FileFsControlInformation.
    pub struct FsControl: 48, pad 4 {
        /// Free space below which indexing starts.
        pub start_filtering: u64,
        /// Free space for indexing to go on.
        pub filtering_threshold: u64,
        /// Free space below which it stops.
        pub stop_filtering: u64,
        /// Default warning.
        pub default_quota_threshold: u64,
        /// Default limit.
        pub default_quota_limit: u64,
        /// Quota flags.
        pub flags: u32,
    }
}

layout! {
    /// File-system information of the SMB3 POSIX extensions.
    pub struct FsPosix: 56, pad 0 {
        /// Best size of a request.
        pub optimal_transfer_size: u32,
        /// Bytes of a block.
        pub block_size: u32,
        /// Blocks of the volume.
        pub total_blocks: u64,
        /// Blocks free.
        pub available_blocks: u64,
        /// Blocks this user may still use.
        pub user_available_blocks: u64,
        /// Files that fit.
        pub total_file_nodes: u64,
        /// Files that still fit.
        pub free_file_nodes: u64,
        /// The file system.
        pub id: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dax_flag_is_the_one_of_the_sdk_not_of_the_slide() {
        let info = FsAttribute {
            attributes: FsAttributes::DAX_VOLUME,
            name_units_max: 255,
            name: Name::new("NTFS").unwrap(),
        };
        let mut out = Vec::new();
        info.emit(&mut out);
        let golden = b"\0\0\0\x20\xff\0\0\0\x08\0\0\0N\0T\0F\0S\0";
        assert_eq!(out, golden);
        assert_eq!(FsAttribute::parse(golden), Ok(info));
    }
}
