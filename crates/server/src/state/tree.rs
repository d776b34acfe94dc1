//! A tree connect: one session's way into one share.

use std::sync::Arc;

use smb::create::AccessMask;

use crate::share::Share;

/// One session's way into one share.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) id: u32,
    pub(crate) target: Target,
    /// The most any open of this tree is granted.
    pub(crate) maximal_access: AccessMask,
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
