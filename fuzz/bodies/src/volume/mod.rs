//! Volumes: images that others made, or that somebody has damaged.

/// An info block.
pub(crate) fn info(data: &[u8]) {
    volume::fuzzing::info(data);
}

/// Map entries and flog groups.
pub(crate) fn entries(data: &[u8]) {
    volume::fuzzing::entries(data);
}

/// A small volume, damaged: pairs of a place and a byte.
pub(crate) fn damaged(data: &[u8]) {
    volume::fuzzing::damaged(data);
}
