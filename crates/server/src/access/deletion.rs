//! Objects that no user may delete, whatever the rights: checked when the deletion is requested, at CREATE
//! and SET_INFO, because CLOSE cannot report a refusal.
//!
//! Spec: MS-FSA §2.1.5.1.2, §2.1.5.15.3.

use std::sync::Arc;

use smb::NtStatus;
use tree::{FileKey, Share, SharePath};

use super::MayRemove;
use crate::status::OrStatus as _;

/// An object that is to be deleted.
#[derive(Debug)]
pub(crate) struct Doomed<'a> {
    pub(crate) path: &'a SharePath,
    pub(crate) key: FileKey,
    pub(crate) is_read_only: bool,
    pub(crate) is_device: bool,
    /// The object is a stream of the file that the path names, not the file.
    pub(crate) is_stream: bool,
}

impl Doomed<'_> {
    /// Whether the object can be deleted, with these shares exported. May block.
    pub(crate) fn check(
        &self,
        shares: &[Arc<Share>],
        share: &Share,
        leave: MayRemove,
    ) -> Result<(), NtStatus> {
        if self.is_read_only || self.is_device {
            return Err(NtStatus::CANNOT_DELETE);
        }
        if self.is_stream {
            return Ok(());
        }
        // The top directory of a share, by whatever path it was reached: the share would be gone.
        let is_top = shares.iter().any(|share| share.root_key() == self.key);
        if self.path.is_root() || is_top {
            return Err(NtStatus::CANNOT_DELETE);
        }
        share.check_removal(leave, self.path).or_status()
    }
}

/// Whether the deletion of this directory would remove a share: the directory is the top of a share, or
/// lies above it. May block.
pub(crate) fn holds_a_share(shares: &[Arc<Share>], share: &Share, directory: FileKey) -> bool {
    // Only shares that may lie below `share` are looked at: the file system of another may not
    // answer.
    shares.iter().any(|other| {
        other.root_key() == directory || (other.overlaps(share) && other.lies_in(directory))
    })
}
