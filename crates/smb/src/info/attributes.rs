//! Attributes of files and of file systems.
//!
//! Spec: MS-FSCC §2.6, §2.5.1.

bitflags::bitflags! {
    /// Attributes of a file.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct FileAttributes: u32 {
        /// Cannot be written.
        const READONLY = 0x0000_0001;
        /// Not listed by default.
        const HIDDEN = 0x0000_0002;
        /// Belongs to the system.
        const SYSTEM = 0x0000_0004;
        /// A directory.
        const DIRECTORY = 0x0000_0010;
        /// To be archived.
        const ARCHIVE = 0x0000_0020;
        /// None of the others.
        const NORMAL = 0x0000_0080;
        /// Short-lived.
        const TEMPORARY = 0x0000_0100;
        /// Has holes.
        const SPARSE_FILE = 0x0000_0200;
        /// A link or the like.
        const REPARSE_POINT = 0x0000_0400;
        /// Compressed.
        const COMPRESSED = 0x0000_0800;
        /// Not at hand.
        const OFFLINE = 0x0000_1000;
        /// Not indexed.
        const NOT_CONTENT_INDEXED = 0x0000_2000;
        /// Encrypted by the file system.
        const ENCRYPTED = 0x0000_4000;
        /// Integrity stream.
        const INTEGRITY_STREAM = 0x0000_8000;
        /// Not scrubbed.
        const NO_SCRUB_DATA = 0x0002_0000;
        /// Fetched when opened.
        const RECALL_ON_OPEN = 0x0004_0000;
        /// Kept at hand.
        const PINNED = 0x0008_0000;
        /// Not kept at hand.
        const UNPINNED = 0x0010_0000;
        /// Fetched when read.
        const RECALL_ON_DATA_ACCESS = 0x0040_0000;
        const _ = !0;
    }

    /// What a file system can do.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct FsAttributes: u32 {
        /// Tells `A` from `a`.
        const CASE_SENSITIVE_SEARCH = 0x0000_0001;
        /// Keeps the case of names.
        const CASE_PRESERVED_NAMES = 0x0000_0002;
        /// Names in Unicode.
        const UNICODE_ON_DISK = 0x0000_0004;
        /// Access lists.
        const PERSISTENT_ACLS = 0x0000_0008;
        /// Compression of files.
        const FILE_COMPRESSION = 0x0000_0010;
        /// Quotas.
        const VOLUME_QUOTAS = 0x0000_0020;
        /// Holes.
        const SUPPORTS_SPARSE_FILES = 0x0000_0040;
        /// Reparse points.
        const SUPPORTS_REPARSE_POINTS = 0x0000_0080;
        /// Files on other media.
        const SUPPORTS_REMOTE_STORAGE = 0x0000_0100;
        /// Rename and delete with POSIX semantics.
        const SUPPORTS_POSIX_UNLINK_RENAME = 0x0000_0400;
        /// The volume is compressed.
        const VOLUME_IS_COMPRESSED = 0x0000_8000;
        /// Object ids.
        const SUPPORTS_OBJECT_IDS = 0x0001_0000;
        /// Encryption of files.
        const SUPPORTS_ENCRYPTION = 0x0002_0000;
        /// Named streams.
        const NAMED_STREAMS = 0x0004_0000;
        /// Cannot be written.
        const READ_ONLY_VOLUME = 0x0008_0000;
        /// Write once.
        const SEQUENTIAL_WRITE_ONCE = 0x0010_0000;
        /// Transactions.
        const SUPPORTS_TRANSACTIONS = 0x0020_0000;
        /// Hard links.
        const SUPPORTS_HARD_LINKS = 0x0040_0000;
        /// Extended attributes.
        const SUPPORTS_EXTENDED_ATTRIBUTES = 0x0080_0000;
        /// Opens by file id.
        const SUPPORTS_OPEN_BY_FILE_ID = 0x0100_0000;
        /// A change journal.
        const SUPPORTS_USN_JOURNAL = 0x0200_0000;
        /// Integrity streams.
        const SUPPORTS_INTEGRITY_STREAMS = 0x0400_0000;
        /// Clones of ranges.
        const SUPPORTS_BLOCK_REFCOUNTING = 0x0800_0000;
        /// Knows which blocks never held data.
        const SUPPORTS_SPARSE_VDL = 0x1000_0000;
        /// Byte-addressable: the CPU reaches file data without a page cache. (0x0200_0000 on the
        /// 2016 slide is the change journal, a misprint.)
        const DAX_VOLUME = 0x2000_0000;
        const _ = !0;
    }
}
