//! Whether a name can be removed, asked before it is: at CLOSE, when it goes, nobody can be told.
//!
//! The kernel is asked as whom the server runs. What it says may change until the name goes; then the
//! name stays, and the log says so.
//!
//! Spec: MS-FSA §2.1.5.15.3; unlink(2), rmdir(2).

use rustix::fs::{Access, AtFlags, Mode, StatxAttributes, StatxFlags};

use super::Share;
use super::error::ShareError;
use super::name::SharePath;
use crate::access::MayRemove;

impl Share {
    /// Whether the server could remove the name `path` now.
    pub(crate) fn check_removal(&self, _: MayRemove, path: &SharePath) -> Result<(), ShareError> {
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
        // unlink(2): from a sticky directory names are removed by the file's owner, by the directory's, and
        // by who may do anything.
        let user = rustix::process::geteuid();
        let is_sticky = Mode::from_raw_mode(above.stx_mode.into()).contains(Mode::SVTX);
        let owners = [itself.stx_uid, above.stx_uid];
        if is_sticky && !user.is_root() && !owners.contains(&user.as_raw()) {
            return Err(ShareError::AccessDenied);
        }
        Ok(())
    }
}
