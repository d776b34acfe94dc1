//! A tree connect: one session's way into one share.

use std::sync::Arc;

use smb::create::AccessMask;

use super::session::Identity;
use crate::share::{Admission, Share};

/// One session's way into one share.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) id: u32,
    pub(crate) target: Target,
    /// The most any open of this tree is granted.
    pub(crate) maximal_access: AccessMask,
    /// The share insisted on encryption when it was entered.
    pub(crate) entered_encrypted: bool,
}

/// What was connected to.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A directory tree.
    Disk(Arc<Share>),
    /// Named pipes: the server's own services.
    Pipes,
}

impl Tree {
    pub(crate) fn new(id: u32, target: Target, maximal_access: AccessMask) -> Self {
        let insists = |share: &Arc<Share>| share.is_encrypt_required();
        let entered_encrypted = matches!(&target, Target::Disk(share) if insists(share));
        Self { id, target, maximal_access, entered_encrypted }
    }

    /// The share, if it has files.
    pub(crate) fn share(&self) -> Option<&Arc<Share>> {
        match &self.target {
            Target::Disk(share) => Some(share),
            Target::Pipes => None,
        }
    }

    /// Whether requests have to come encrypted.
    pub(crate) fn is_encrypt_required(&self) -> bool {
        self.share().is_some_and(|share| share.is_encrypt_required())
    }
}

/// The most somebody may do in a share, as it is configured now; nothing: not enter.
pub(crate) fn maximal_access(share: &Share, who: &Identity) -> Option<AccessMask> {
    let admission = match who {
        Identity::User(user) => share.admits(user),
        Identity::Guest { .. } => share.guests(),
    };
    match admission {
        Admission::Refused => None,
        Admission::Full if !share.is_read_only() => Some(AccessMask::FILE_ALL),
        Admission::Full | Admission::Reading => Some(READ_ONLY),
    }
}

const READ_ONLY: AccessMask = AccessMask::FILE_GENERIC_READ.union(AccessMask::FILE_GENERIC_EXECUTE);
