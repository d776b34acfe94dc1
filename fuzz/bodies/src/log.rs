//! Logs and archives: members that somebody has damaged, or made.

/// A label and a header.
pub(crate) fn labels(data: &[u8]) {
    log::fuzzing::labels(data);
}

/// A small log with its archive, damaged: a place of two bytes and a byte, again and again.
pub(crate) fn damaged(data: &[u8]) {
    log::fuzzing::damaged(data);
}
