//! Probes what a file system can do, with files that never have a name.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, XattrFlags};

use super::inode::proc_name;

/// Whether files can share their blocks: the second of two shares the block of the first.
pub(super) fn probe_clones(root: impl AsFd) -> bool {
    let (Some(from), Some(to)) = (nameless(&root), nameless(&root)) else { return false };
    rustix::io::write(&from, &[1; 4096]).is_ok() && rustix::fs::ioctl_ficlone(&to, &from).is_ok()
}

/// Whether files can have xattrs of the `user` namespace. tmpfs has them since Linux 6.6.
pub(super) fn probe_xattrs(root: impl AsFd) -> bool {
    let name = "user.landfast.probe";
    nameless(&root).map_or_else(
        // The server cannot write here: whether it can read any.
        || rustix::fs::listxattr(proc_name(&root), &mut [0; 4096]).is_ok(),
        |file| rustix::fs::fsetxattr(&file, name, b"1", XattrFlags::empty()).is_ok(),
    )
}

/// A file without a name.
pub(super) fn nameless(root: impl AsFd) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    rustix::fs::open(proc_name(root), flags, Mode::RUSR | Mode::WUSR).ok()
}
