//! What nobody deletes, whatever their rights: asked when the wish is spoken, at CREATE and SET_INFO, for at
//! CLOSE nobody can be told.
//!
//! Spec: MS-FSA §2.1.5.1.2, §2.1.5.15.3.

use smb::NtStatus;

use super::MayRemove;
use crate::service::Core;
use crate::share::{FileKey, Share, SharePath};

/// What is to be deleted.
#[derive(Debug)]
pub(crate) struct Doomed<'a> {
    pub(crate) path: &'a SharePath,
    pub(crate) key: FileKey,
    pub(crate) is_read_only: bool,
    pub(crate) is_device: bool,
    /// A stream of what the path names, not that itself.
    pub(crate) is_stream: bool,
}

impl Doomed<'_> {
    /// Whether it can go. May block.
    pub(crate) fn check(
        &self,
        core: &Core,
        share: &Share,
        leave: MayRemove,
    ) -> Result<(), NtStatus> {
        if self.is_read_only || self.is_device {
            return Err(NtStatus::CANNOT_DELETE);
        }
        if self.is_stream {
            return Ok(());
        }
        // A share's top directory, by whatever way it was reached: the share would be gone.
        let is_top = core.shares().iter().any(|share| share.root_key() == self.key);
        if self.path.is_root() || is_top {
            return Err(NtStatus::CANNOT_DELETE);
        }
        Ok(share.check_removal(leave, self.path)?)
    }
}

/// Whether a share would be gone without this directory: it is the top of one, or lies above. May block.
pub(crate) fn holds_a_share(core: &Core, share: &Share, directory: FileKey) -> bool {
    // Only those that may lie below `share` are looked at: another's file system may not answer.
    core.shares().iter().any(|other| {
        other.root_key() == directory || (other.overlaps(share) && other.lies_in(directory))
    })
}
