//! The numbers of information classes.
//!
//! Spec: MS-SMB2 §2.2.37, MS-FSCC §2.4 and §2.5.

use crate::open_set::open_set;

open_set! {
    /// What a QUERY_INFO or SET_INFO is about.
    pub struct InfoType(u8) {
        /// A file.
        FILE = 1,
        /// A file system.
        FILE_SYSTEM = 2,
        /// A security descriptor.
        SECURITY = 3,
        /// Quotas.
        QUOTA = 4,
    }
}

open_set! {
    /// A class of file information, directory classes included.
    pub struct FileInfoClass(u8) {
        /// Listing: times, sizes, attributes, name.
        DIRECTORY = 1,
        /// Listing: and EA size.
        FULL_DIRECTORY = 2,
        /// Listing: and short name.
        BOTH_DIRECTORY = 3,
        /// Times and attributes.
        BASIC = 4,
        /// Sizes, links, kind.
        STANDARD = 5,
        /// File id.
        INTERNAL = 6,
        /// EA size.
        EA = 7,
        /// Rights granted.
        ACCESS = 8,
        /// Path from the volume's root.
        NAME = 9,
        /// Rename.
        RENAME = 10,
        /// Hard link.
        LINK = 11,
        /// Listing: names only.
        NAMES = 12,
        /// Delete on close.
        DISPOSITION = 13,
        /// Position.
        POSITION = 14,
        /// Extended attributes.
        FULL_EA = 15,
        /// Mode of the open.
        MODE = 16,
        /// Alignment the device wants.
        ALIGNMENT = 17,
        /// Many of the above at once.
        ALL = 18,
        /// Reserved bytes.
        ALLOCATION = 19,
        /// Length.
        END_OF_FILE = 20,
        /// Short name.
        ALTERNATE_NAME = 21,
        /// Streams.
        STREAM = 22,
        /// Pipe modes.
        PIPE = 23,
        /// Pipe state at this end.
        PIPE_LOCAL = 24,
        /// Pipe state at the other end.
        PIPE_REMOTE = 25,
        /// Compression.
        COMPRESSION = 28,
        /// Object id.
        OBJECT_ID = 29,
        /// Quotas.
        QUOTA = 32,
        /// Reparse point.
        REPARSE_POINT = 33,
        /// What an open wants to know first.
        NETWORK_OPEN = 34,
        /// Attributes and reparse tag.
        ATTRIBUTE_TAG = 35,
        /// Listing: BOTH with file id.
        ID_BOTH_DIRECTORY = 37,
        /// Listing: FULL with file id.
        ID_FULL_DIRECTORY = 38,
        /// Length of valid data.
        VALID_DATA_LENGTH = 39,
        /// Sets the short name.
        SHORT_NAME = 40,
        /// Hard links.
        HARD_LINK = 46,
        /// Path below the share, normalised.
        NORMALIZED_NAME = 48,
        /// Number of links.
        STANDARD_LINK = 54,
        /// 128-bit file id.
        ID = 59,
        /// Listing: FULL with 128-bit file id.
        ID_EXTD_DIRECTORY = 60,
        /// Listing: BOTH with 128-bit file id.
        ID_EXTD_BOTH_DIRECTORY = 63,
        /// Delete, with flags.
        DISPOSITION_EX = 64,
        /// Rename, with flags.
        RENAME_EX = 65,
        /// Hard link, with flags.
        LINK_EX = 72,
        /// Listing: FULL with reparse tag and 64-bit file id.
        ID_64_EXTD_DIRECTORY = 78,
        /// Listing: BOTH with reparse tag and 64-bit file id.
        ID_64_EXTD_BOTH_DIRECTORY = 79,
        /// Listing: FULL with reparse tag and both file ids.
        ID_ALL_EXTD_DIRECTORY = 80,
        /// Listing: BOTH with reparse tag and both file ids.
        ID_ALL_EXTD_BOTH_DIRECTORY = 81,
        /// SMB3 POSIX extensions.
        POSIX = 100,
    }
}

open_set! {
    /// A class of file-system information.
    pub struct FsInfoClass(u8) {
        /// Label and serial number.
        VOLUME = 1,
        /// Sets the label.
        LABEL = 2,
        /// Size.
        SIZE = 3,
        /// Device.
        DEVICE = 4,
        /// Capabilities.
        ATTRIBUTE = 5,
        /// Quota control.
        CONTROL = 6,
        /// Size, quota aside.
        FULL_SIZE = 7,
        /// Object id.
        OBJECT_ID = 8,
        /// Sector sizes.
        SECTOR_SIZE = 11,
        /// SMB3 POSIX extensions.
        POSIX = 100,
    }
}

bitflags::bitflags! {
    /// Parts of a security descriptor to read or change.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct SecurityInformation: u32 {
        /// Owner.
        const OWNER = 0x0000_0001;
        /// Group.
        const GROUP = 0x0000_0002;
        /// Access list.
        const DACL = 0x0000_0004;
        /// Audit list.
        const SACL = 0x0000_0008;
        /// Integrity label.
        const LABEL = 0x0000_0010;
        /// Resource attributes.
        const ATTRIBUTE = 0x0000_0020;
        /// Central access policy.
        const SCOPE = 0x0000_0040;
        /// Everything a backup keeps.
        const BACKUP = 0x0001_0000;
        const _ = !0;
    }
}
