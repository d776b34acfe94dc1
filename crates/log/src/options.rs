//! How a log is made and opened.

use std::fmt;

use crate::members::MemberSet;

/// Key of a sealed log: 32 bytes from which the key of each log is derived.
#[derive(Clone)]
pub struct MasterKey(pub [u8; 32]);

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

/// What a new log is like.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// Bytes of the ring, a multiple of 4,096; as many as every member has room for if `None`.
    pub capacity: Option<u64>,
    /// Fewest members in sync with which the log goes on; a majority if `None`, one of two.
    pub least_in_sync: Option<u8>,
    /// Seals each record with AES-256-GCM.
    pub key: Option<MasterKey>,
    /// Makes the log even where a member holds one already.
    pub replace: bool,
}

/// How a log is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The key of a sealed log.
    pub key: Option<MasterKey>,
    /// The caller knows that these members are gone for good. Records that they alone acknowledged, because the others
    /// had been dropped before, are lost.
    pub given_up: MemberSet,
}
