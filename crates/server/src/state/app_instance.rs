//! Clustered applications, which take their files with them when they move to another machine.
//!
//! Spec: MS-SMB2 §3.3.5.9.13, §3.3.5.9.15.

use crate::access::Identity;

/// An instance of a clustered application: it takes its files with it when it moves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AppInstance {
    pub(crate) id: [u8; 16],
    /// The machine it runs on.
    pub(crate) client: [u8; 16],
    /// As whom.
    pub(crate) user: Identity,
    /// A later one wins over an earlier one.
    pub(crate) version: Option<(u64, u64)>,
}

impl AppInstance {
    /// Whether `self` has moved here from where `other` is.
    pub(crate) fn succeeds(&self, other: &Self) -> bool {
        self.id == other.id && self.client != other.client && self.user == other.user
    }
}
