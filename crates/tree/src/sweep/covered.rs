//! What a mount covers: files below the directory, or in the place of the file, on which it is mounted. They are there, and
//! nobody sees them by their names.
//!
//! Whoever may mount can look: a copy of the mount above, for this process alone and without what is mounted in it, shows them.
//!
//! Spec: open_tree(2) OPEN_TREE_CLONE.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::mount::OpenTreeFlags;

use super::listing::{entries, open_directory};
use crate::error::ShareError;
use crate::inode::identify_at;
use crate::lookup::open_beneath;

/// Shows `note` every file and directory that is covered by what is mounted on `name` of an open directory.
///
/// # Errors
/// Not everything that may be there was shown: this process may not look, or a file cannot be read.
pub(super) fn show(
    above: &OwnedFd,
    name: &CStr,
    mut note: impl FnMut(&OwnedFd) -> Result<(), ShareError>,
) -> Result<(), ShareError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let bare = rustix::mount::open_tree(above, "", flags)?;
    let mut left = vec![(OsString::from("."), CString::from(name))];
    while let Some((directory, name)) = left.pop() {
        let above = open_directory(&bare, directory.as_os_str())?;
        match identify_at(&above, name.as_c_str())? {
            (_, FileType::Directory) => {
                let path = below(&directory, &name);
                let found = open_directory(&bare, path.as_os_str())?;
                note(&found)?;
                left.extend(entries(&found)?.into_iter().map(|name| (path.clone(), name)));
            }
            (_, FileType::RegularFile) => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW;
                note(&open_beneath(&above, name.as_c_str(), flags, Mode::empty())?)?;
            }
            // Links, sockets, devices have no streams.
            _ => {}
        }
    }
    Ok(())
}

fn below(directory: &OsStr, name: &CStr) -> OsString {
    OsString::from_vec([directory.as_bytes(), b"/", name.to_bytes()].concat())
}
