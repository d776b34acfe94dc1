//! Changes of a group's file: one at a time, and of the file itself where its name is a symbolic link.
//!
//! The lock is `flock` on the file. Once it is held the name must still denote the locked file: an earlier change may have
//! put another file in its place, which is locked then.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use super::ReplicaFailure;
use super::group::{Group, GroupFile};

/// Puts another content in the place of a group's file.
///
/// # Errors
/// The file cannot be read or written, it is of no group, or what `edit` says: then it is as it was.
pub(super) fn change(
    path: &Path,
    edit: impl FnOnce(&mut Group) -> Result<(), ReplicaFailure>,
) -> Result<(), ReplicaFailure> {
    let failed = |source| ReplicaFailure::File { path: path.to_owned(), source };
    let (real, locked) = lock(path).map_err(failed)?;
    let mut group = Group::read(&real)?;
    edit(&mut group)?;
    replace(&real, &locked, &group.file)
}

fn lock(path: &Path) -> std::io::Result<(PathBuf, File)> {
    loop {
        let real = fs::canonicalize(path)?;
        let file = File::open(&real)?;
        file.lock()?;
        let (locked, there) = (file.metadata()?, fs::metadata(&real)?);
        if (locked.dev(), locked.ino()) == (there.dev(), there.ino()) {
            return Ok((real, file));
        }
    }
}

fn replace(path: &Path, old: &File, content: &GroupFile) -> Result<(), ReplicaFailure> {
    let failed = |source| ReplicaFailure::File { path: path.to_owned(), source };
    let text = content.text(path)?;
    let directory = path.parent().unwrap_or_else(|| Path::new("/"));
    let mut beside = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    let file = beside.as_file();
    let old = old.metadata().map_err(failed)?;
    let new = file.metadata().map_err(failed)?;
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        // Who is not root may be unable to give it away; the mode says who reads it.
        let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    }
    file.set_permissions(Permissions::from_mode(old.mode() & 0o777)).map_err(failed)?;
    beside.write_all(text.as_bytes()).map_err(failed)?;
    beside.as_file().sync_all().map_err(failed)?;
    beside.persist(path).map_err(|error| failed(error.error))?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)
}
