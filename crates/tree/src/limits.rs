//! Bounds of what one request may make the tree hold, and do on the calling thread.

/// Bytes of a file that the calling thread itself copies, reserves, cuts off or frees, if memory lies behind
/// everything, and bytes of an answer that it signs or seals; a thread that may block takes more. A core takes some
/// 0.3 ms for a copy, and 0.2 to 1 ms for a signature.
pub const IO_INLINE_MAX: usize = 1 << 20;

/// Names of extended attributes, in bytes, of a file whose attributes the calling thread reads or sets: a
/// hundred of the shortest.
pub const EA_NAMES_INLINE_MAX: usize = 1_024;
/// Extended attributes that a client may give a file, and the bytes of their names and values together: listing
/// them takes a millisecond and this much memory.
pub(crate) const EAS_PER_FILE_MAX: usize = 1_024;
pub(crate) const EA_BYTES_PER_FILE_MAX: usize = 1 << 20;

/// Characters of a search pattern: as long as a name. The handle keeps the pattern.
pub(crate) const PATTERN_CHARS_MAX: usize = 255;

/// Directories of a path that are scanned one by one, because the path does not exist as it is written, while
/// many look-ups may run side by side; more levels are scanned by one of the few threads that scan.
pub(crate) const LEVELS_INLINE_MAX: usize = 16;
