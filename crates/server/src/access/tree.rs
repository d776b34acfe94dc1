//! A tree connect: one session's way into one share.

use std::sync::Arc;

use tree::Share;

use crate::access::Rights;

/// One session's way into one share.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) id: u32,
    pub(crate) target: Target,
    /// The most any open of this tree is granted.
    pub(crate) rights: Rights,
    /// The share insisted on encryption when it was entered, and told the client so.
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
    pub(crate) fn new(id: u32, target: Target, rights: Rights) -> Self {
        let insists = |share: &Arc<Share>| share.is_encrypt_required();
        let entered_encrypted = matches!(&target, Target::Disk(share) if insists(share));
        Self { id, target, rights, entered_encrypted }
    }

    /// The share, if it has files.
    pub(crate) fn share(&self) -> Option<&Arc<Share>> {
        match &self.target {
            Target::Disk(share) => Some(share),
            Target::Pipes => None,
        }
    }

    /// Whether requests have to come encrypted. Once they have, for good: the share may switch encryption off
    /// and on again, and nothing is granted meanwhile that would be there in the clear afterwards.
    pub(crate) fn is_encrypt_required(&self) -> bool {
        self.entered_encrypted || self.share().is_some_and(|share| share.is_encrypt_required())
    }
}
