//! The ranks of the locks of a tree of files.
//!
//! A caller that keeps locks of its own between them lists all of them in one place: the server in
//! `server/src/lock_order.rs`.

use basics::ordered::LEAVES;

basics::ranks! {
    /// All ranks of this crate.
    pub const ALL;
    /// Held by the thread that restores left-over opens: over look-ups, and over whatever its caller locks.
    pub Restoring = 0, "left-over opens being restored";
    /// Recorded names agree with the names of files: of several logs in order of address.
    pub RecordedNames = 12, "the names in the log of persistent opens";
    /// Symbolic links and directories stay in their place.
    pub Links = 13, "the links of a share";
    /// What is remembered of the names of one directory, while they change. Taken with the inodes of
    /// `tree::name_locks` held, or without.
    pub DirectoryNames = 14, "the remembered names of a directory";
    /// The inodes that are locked for changes of names. The inodes themselves are held longer than this lock.
    pub LockedInodes = LEAVES + 22, "the table of locked inodes";
    /// Which directories are remembered.
    pub Directories = LEAVES + 23, "the table of remembered directories";
    /// The records of persistent opens, and their file.
    pub Log = LEAVES + 24, "the log of persistent opens";
    /// Left-over opens.
    pub LeftOvers = LEAVES + 25, "the notes of left-over opens";
    /// File systems.
    pub FileSystems = LEAVES + 26, "the table of file systems";
    /// Users and their rights.
    pub People = LEAVES + 27, "the rights of a share";
    /// Names that were removed a moment ago.
    pub Removed = LEAVES + 28, "the names removed a moment ago";
    /// Directories whose names are not durable.
    pub Undurable = LEAVES + 29, "the directories to be made durable";
    /// Leases of which the log of persistent opens is to say that they were broken.
    pub Doubts = LEAVES + 30, "the broken leases to be noted";
}
