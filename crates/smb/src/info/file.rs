//! Fixed classes of file information.
//!
//! Spec: MS-FSCC §2.4, one subsection per class.

use super::FileAttributes;
use super::layout::layout;
use crate::create::AccessMask;
use crate::dtyp::FileTime;
use crate::parse_error::ParseError;
use crate::wire::Reader;

layout! {
    /// FileBasicInformation: times and attributes. In SET_INFO a zero field means "leave".
    pub struct Basic: 40, pad 4 {
        /// Birth.
        pub creation_time: FileTime,
        /// Last read.
        pub last_access_time: FileTime,
        /// Last change of data.
        pub last_write_time: FileTime,
        /// Last change of data or metadata.
        pub change_time: FileTime,
        /// Attributes.
        pub attributes: FileAttributes,
    }
}

layout! {
    /// FileStandardInformation.
    pub struct Standard: 24, pad 2 {
        /// Bytes reserved on the medium.
        pub allocation_size: u64,
        /// Length.
        pub end_of_file: u64,
        /// Hard links.
        pub links: u32,
        /// Gone with its last handle.
        pub delete_pending: bool,
        /// A directory.
        pub directory: bool,
    }
}

layout! {
    /// FileInternalInformation.
    pub struct Internal: 8, pad 0 {
        /// Number of the file on its volume.
        pub file_id: u64,
    }
}

layout! {
    /// FileEaInformation.
    pub struct Ea: 4, pad 0 {
        /// Bytes of all extended attributes in FULL_EA form.
        pub ea_size: u32,
    }
}

layout! {
    /// FileAccessInformation.
    pub struct Access: 4, pad 0 {
        /// Rights of this open.
        pub access: AccessMask,
    }
}

layout! {
    /// FilePositionInformation.
    pub struct Position: 8, pad 0 {
        /// Where the next sequential access would be.
        pub position: u64,
    }
}

layout! {
    /// FileModeInformation.
    pub struct Mode: 4, pad 0 {
        /// Some of the create options.
        pub mode: u32,
    }
}

layout! {
    /// FileAlignmentInformation.
    pub struct Alignment: 4, pad 0 {
        /// Alignment minus one.
        pub alignment: u32,
    }
}

layout! {
    /// FileAllocationInformation.
    pub struct Allocation: 8, pad 0 {
        /// Bytes to reserve; less than the length truncates.
        pub allocation_size: u64,
    }
}

layout! {
    /// FileEndOfFileInformation.
    pub struct EndOfFile: 8, pad 0 {
        /// New length.
        pub end_of_file: u64,
    }
}

layout! {
    /// FileValidDataLengthInformation.
    pub struct ValidDataLength: 8, pad 0 {
        /// New length of valid data.
        pub valid_data_length: u64,
    }
}

layout! {
    /// FileDispositionInformation.
    pub struct Disposition: 1, pad 0 {
        /// Delete with the last handle, or not after all.
        pub delete: bool,
    }
}

layout! {
    /// FileNetworkOpenInformation.
    pub struct NetworkOpen: 56, pad 4 {
        /// Birth.
        pub creation_time: FileTime,
        /// Last read.
        pub last_access_time: FileTime,
        /// Last change of data.
        pub last_write_time: FileTime,
        /// Last change of data or metadata.
        pub change_time: FileTime,
        /// Bytes reserved on the medium.
        pub allocation_size: u64,
        /// Length.
        pub end_of_file: u64,
        /// Attributes.
        pub attributes: FileAttributes,
    }
}

layout! {
    /// FileAttributeTagInformation.
    pub struct AttributeTag: 8, pad 0 {
        /// Attributes.
        pub attributes: FileAttributes,
        /// Kind of reparse point, 0 for none.
        pub reparse_tag: u32,
    }
}

layout! {
    /// FileCompressionInformation.
    pub struct Compression: 16, pad 3 {
        /// Bytes after compression.
        pub compressed_size: u64,
        /// 0 none, 2 LZNT1.
        pub format: u16,
        /// Log2 of the unit.
        pub unit_shift: u8,
        /// Log2 of the chunk.
        pub chunk_shift: u8,
        /// Log2 of the cluster.
        pub cluster_shift: u8,
    }
}

layout! {
    /// FileIdInformation.
    pub struct Id: 24, pad 0 {
        /// Volume.
        pub volume_id: u64,
        /// File.
        pub file_id: [u8; 16],
    }
}

layout! {
    /// FilePipeInformation.
    pub struct Pipe: 8, pad 0 {
        /// 0 bytes, 1 messages.
        pub read_mode: u32,
        /// 0 waits, 1 does not.
        pub completion_mode: u32,
    }
}

layout! {
    /// FilePipeLocalInformation.
    pub struct PipeLocal: 40, pad 0 {
        /// 0 bytes, 1 messages.
        pub pipe_type: u32,
        /// 0 inbound, 1 outbound, 2 both.
        pub configuration: u32,
        /// Most instances.
        pub instances_max: u32,
        /// Instances now.
        pub instances: u32,
        /// Inbound buffer.
        pub inbound_quota: u32,
        /// Bytes to read.
        pub read_available: u32,
        /// Outbound buffer.
        pub outbound_quota: u32,
        /// Room to write.
        pub write_available: u32,
        /// 1 disconnected, 2 listening, 3 connected, 4 closing.
        pub state: u32,
        /// 0 client, 1 server.
        pub end: u32,
    }
}

/// FileDispositionInformationEx.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DispositionEx {
    /// Whether and how to delete.
    pub flags: DispositionFlags,
}

impl DispositionEx {
    /// Reads the class.
    ///
    /// # Errors
    /// Shorter than four bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let flags = Reader::new(bytes).u32()?;
        Ok(Self { flags: DispositionFlags::from_bits_retain(flags) })
    }

    /// Appends the class.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.flags.bits().to_le_bytes());
    }
}

bitflags::bitflags! {
    /// How to delete.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct DispositionFlags: u32 {
        /// Delete; without it, do not after all.
        const DELETE = 0x01;
        /// The name goes at once, the file with its last handle.
        const POSIX_SEMANTICS = 0x02;
        /// Checks for images mapped.
        const FORCE_IMAGE_SECTION_CHECK = 0x04;
        /// Sets delete-on-close of the handle.
        const ON_CLOSE = 0x08;
        /// Read-only files too.
        const IGNORE_READONLY_ATTRIBUTE = 0x10;
        const _ = !0;
    }
}
