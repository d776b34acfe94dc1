//! How to open: disposition, options, impersonation; and what came of it.
//!
//! Spec: MS-SMB2 §2.2.13, §2.2.14.

use crate::open_set::open_set;

open_set! {
    /// What to do when the file exists, and when it does not.
    pub struct CreateDisposition(u32) {
        /// Replace it, or create.
        SUPERSEDE = 0,
        /// Open it, or fail.
        OPEN = 1,
        /// Fail, or create.
        CREATE = 2,
        /// Open it, or create.
        OPEN_IF = 3,
        /// Truncate it, or fail.
        OVERWRITE = 4,
        /// Truncate it, or create.
        OVERWRITE_IF = 5,
    }
}

open_set! {
    /// What was done.
    pub struct CreateAction(u32) {
        /// Replaced.
        SUPERSEDED = 0,
        /// Opened.
        OPENED = 1,
        /// Created.
        CREATED = 2,
        /// Truncated.
        OVERWRITTEN = 3,
    }
}

open_set! {
    /// How far the server may act for the client.
    pub struct ImpersonationLevel(u32) {
        /// Not at all.
        ANONYMOUS = 0,
        /// May know who it is.
        IDENTIFICATION = 1,
        /// May act locally.
        IMPERSONATION = 2,
        /// May act remotely.
        DELEGATE = 3,
    }
}

bitflags::bitflags! {
    /// How to open.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct CreateOptions: u32 {
        /// Must be a directory.
        const DIRECTORY_FILE = 0x0000_0001;
        /// Durable before each write is answered.
        const WRITE_THROUGH = 0x0000_0002;
        /// Will be read from front to back.
        const SEQUENTIAL_ONLY = 0x0000_0004;
        /// Past the server's cache.
        const NO_INTERMEDIATE_BUFFERING = 0x0000_0008;
        /// Ignored by servers.
        const SYNCHRONOUS_IO_ALERT = 0x0000_0010;
        /// Ignored by servers.
        const SYNCHRONOUS_IO_NONALERT = 0x0000_0020;
        /// Must not be a directory.
        const NON_DIRECTORY_FILE = 0x0000_0040;
        /// Ignored by servers.
        const COMPLETE_IF_OPLOCKED = 0x0000_0100;
        /// Fails where extended attributes must be understood.
        const NO_EA_KNOWLEDGE = 0x0000_0200;
        /// Remote access hint.
        const OPEN_REMOTE_INSTANCE = 0x0000_0400;
        /// Will be read here and there.
        const RANDOM_ACCESS = 0x0000_0800;
        /// Gone with its last handle.
        const DELETE_ON_CLOSE = 0x0000_1000;
        /// The name is a file id.
        const OPEN_BY_FILE_ID = 0x0000_2000;
        /// With backup rights.
        const OPEN_FOR_BACKUP_INTENT = 0x0000_4000;
        /// Does not inherit compression.
        const NO_COMPRESSION = 0x0000_8000;
        /// Asks for an oplock at once.
        const OPEN_REQUIRING_OPLOCK = 0x0001_0000;
        /// Fails with a sharing violation rather than wait.
        const DISALLOW_EXCLUSIVE = 0x0002_0000;
        /// Reserves a filter oplock.
        const RESERVE_OPFILTER = 0x0010_0000;
        /// Opens the link, not what it points to.
        const OPEN_REPARSE_POINT = 0x0020_0000;
        /// Does not recall from tape.
        const OPEN_NO_RECALL = 0x0040_0000;
        /// Free space as the user sees it.
        const OPEN_FOR_FREE_SPACE_QUERY = 0x0080_0000;
        const _ = !0;
    }
}
