//! The number of an open.

/// Names an open, unique in the server's lifetime.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct OpenSerial(pub(crate) u64);
