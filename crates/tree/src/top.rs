//! The top directory of a share, before there is a share.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::error::ShareError;

/// Opens the top of a share, if this process may enter and list it.
pub(super) fn open(path: &Path) -> Result<OwnedFd, ShareError> {
    let top = rustix::fs::open(path, OFlags::PATH | DIRECTORY, Mode::empty())?;
    check_readable(&top)?;
    Ok(top)
}

/// The path of an open directory, or `name`, by which it was opened, if the kernel does not report
/// a path.
pub(super) fn resolved(top: impl AsFd, name: &Path) -> PathBuf {
    let link = format!("/proc/self/fd/{}", top.as_fd().as_raw_fd());
    std::fs::read_link(link).unwrap_or_else(|_| name.to_owned())
}

fn check_readable(top: impl AsFd) -> Result<(), ShareError> {
    rustix::fs::openat(top, ".", OFlags::RDONLY | DIRECTORY, Mode::empty())?;
    Ok(())
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
