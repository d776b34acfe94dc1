//! The rights of a user in a share: the most that any open of that user is granted.
//!
//! Spec: MS-SMB2 §3.3.5.7 (TreeConnect.MaximalAccess).

use smb::create::AccessMask;
use tree::{Admission, Share};

use super::Identity;

/// The rights of a user in a share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Rights(AccessMask);

impl Rights {
    /// All rights: every user has them on the server's pipes.
    pub(crate) const ALL: Self = Self(AccessMask::FILE_ALL);

    /// The rights of a user under the present configuration of the share. `None`: the user may not
    /// enter.
    pub(crate) fn of(share: &Share, identity: &Identity) -> Option<Self> {
        let admission = match identity {
            Identity::User(user) => share.admits(user),
            Identity::Guest { .. } => share.guests(),
        };
        match admission {
            Admission::Refused => None,
            Admission::Full if !share.is_read_only() => Some(Self(AccessMask::FILE_ALL)),
            Admission::Full | Admission::Reading => Some(Self(READING)),
        }
    }

    /// The rights that are also in a mask.
    pub(super) fn within(self, mask: AccessMask) -> Self {
        Self(self.0 & mask)
    }

    /// The rights as an access mask.
    pub(crate) fn mask(self) -> AccessMask {
        self.0
    }

    /// Whether the user has every right of `mask`.
    pub(crate) fn may(self, mask: AccessMask) -> bool {
        self.0.contains(mask)
    }
}

const READING: AccessMask = AccessMask::FILE_GENERIC_READ.union(AccessMask::FILE_GENERIC_EXECUTE);
