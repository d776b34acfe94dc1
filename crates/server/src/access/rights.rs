//! What a user may do in a share: the most that any open of theirs is granted.
//!
//! Spec: MS-SMB2 §3.3.5.7 (TreeConnect.MaximalAccess).

use smb::create::AccessMask;

use crate::share::{Admission, Share};
use crate::state::{Identity, Session};

/// What a user may do in a share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Rights(AccessMask);

impl Rights {
    /// Everything: what everybody has on the server's pipes.
    pub(crate) const ALL: Self = Self(AccessMask::FILE_ALL);

    /// Of the user of a session. `None`: they may not enter.
    pub(crate) fn of_session(share: &Share, session: &Session) -> Option<Self> {
        // Whoever has taken their name back enters nothing more.
        let is_nobody = session.is_unnamed() && !session.identity.is_guest();
        if is_nobody { None } else { Self::of(share, &session.identity) }
    }

    /// Of a user as the share is configured now. `None`: they may not enter.
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

    /// Those of them that are in a mask.
    pub(super) fn within(self, mask: AccessMask) -> Self {
        Self(self.0 & mask)
    }

    /// As an access mask.
    pub(crate) fn mask(self) -> AccessMask {
        self.0
    }

    /// Whether every right of `mask` is among them.
    pub(crate) fn may(self, mask: AccessMask) -> bool {
        self.0.contains(mask)
    }
}

const READING: AccessMask = AccessMask::FILE_GENERIC_READ.union(AccessMask::FILE_GENERIC_EXECUTE);
