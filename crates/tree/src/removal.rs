//! Checks whether a name can be removed, before it is: CLOSE, which removes it, cannot report a
//! failure.
//!
//! The kernel is asked as the user of the server. Its answer may change until the name is removed;
//! then the name stays, and the server logs that.
//!
//! Spec: MS-FSA §2.1.5.15.3; unlink(2), rmdir(2).

use rustix::fs::{Access, AtFlags, Mode, StatxAttributes, StatxFlags};

use super::Share;
use super::error::ShareError;
use super::name::SharePath;
use super::rights::MayRemove;

impl Share {
    /// Whether the server could remove the name `path` now.
    pub fn check_removal(&self, _: impl MayRemove, path: &SharePath) -> Result<(), ShareError> {
        self.writable()?;
        let parent = self.parent_of(path)?;
        rustix::fs::accessat(&parent, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
        let stat = |name, flags| rustix::fs::statx(&parent, name, flags, StatxFlags::BASIC_STATS);
        let above = stat("", AtFlags::EMPTY_PATH)?;
        let itself = stat(path.leaf(), AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)?;
        let fixed = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
        let mounted = StatxAttributes::MOUNT_ROOT;
        if above.stx_attributes.intersects(fixed)
            || itself.stx_attributes.intersects(fixed | mounted)
        {
            return Err(ShareError::AccessDenied);
        }
        // unlink(2): names in a sticky directory can be removed by the file's owner, by the directory's
        // owner, and by a privileged user.
        let user = rustix::process::geteuid();
        let is_sticky = Mode::from_raw_mode(above.stx_mode.into()).contains(Mode::SVTX);
        let owners = [itself.stx_uid, above.stx_uid];
        if is_sticky && !user.is_root() && !owners.contains(&user.as_raw()) {
            return Err(ShareError::AccessDenied);
        }
        Ok(())
    }
}
