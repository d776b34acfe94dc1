//! Making files and directories: a new name in an open directory.
//!
//! The directory is opened once, so the new object lies in the directory in which the name was claimed. At no
//! moment does another user have more permissions on the object than its maker finally wants: a user who opened it
//! meanwhile would keep them.
//!
//! Spec: MS-FSA §2.1.5.1.1; open(2), mkdir(2).

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::Share;
use super::attributes::{self, DosAttributes, Stored};
use super::binding::Binding;
use super::entry::Entry;
use super::error::{ShareError, from_resolution};
use super::inode::{self, FileKey, identify};
use super::name::SharePath;
use super::pattern::folded;
use super::rights::MayAdd;

/// A free name, in a directory that is open.
#[derive(Debug)]
pub struct NewName {
    parent: OwnedFd,
    parent_key: FileKey,
    leaf: String,
}

impl NewName {
    /// The inode of the directory.
    pub fn parent_key(&self) -> FileKey {
        self.parent_key
    }

    /// The name in the form in which names are compared.
    pub fn folded(&self) -> String {
        folded(&self.leaf)
    }
}

/// The object to be made.
#[derive(Clone, Copy, Debug)]
pub struct New {
    /// A directory, otherwise a file.
    pub is_directory: bool,
    /// The attributes that the client asks for.
    pub attributes: DosAttributes,
    /// Permission bits to set ([`Share::set_first_permissions`]); without, those of files of other clients.
    pub permissions: Option<u32>,
}

impl New {
    // The server, as the owner, needs its own permissions until the object is complete.
    fn mode(self) -> Mode {
        let (default, own) = if self.is_directory { (0o777, 0o700) } else { (0o666, 0o600) };
        Mode::from_raw_mode(self.permissions.map_or(default, |wished| wished & 0o777 | own))
    }
}

impl Share {
    /// Opens the directory in which an object is to be made.
    pub fn new_name(&self, path: &SharePath) -> Result<NewName, ShareError> {
        self.writable()?;
        let parent = self.parent_of(path)?;
        let (parent_key, _) = identify(&parent)?;
        Ok(NewName { parent, parent_key, leaf: path.leaf().to_owned() })
    }

    /// The directory of `path`, if `path` is a name of this file itself and no link to it.
    pub fn entry_of(&self, path: &SharePath, file: FileKey) -> Option<FileKey> {
        let parent = self.parent_of(path).ok()?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let itself = rustix::fs::openat(&parent, path.leaf(), flags, Mode::empty()).ok()?;
        let is_it = identify(&itself).ok()?.0 == file;
        is_it.then_some(identify(&parent).ok()?.0)
    }

    /// Makes an object that must not exist and opens it, a file for reading and writing. `made` learns its
    /// identity at once.
    ///
    /// # Errors
    ///
    /// Then nothing was made. [`ShareError::Exists`]: the name is taken.
    pub fn make(
        &self,
        _leave: impl MayAdd,
        name: &NewName,
        new: New,
        made: impl FnOnce(FileKey),
    ) -> Result<Entry, ShareError> {
        self.writable()?;
        let NewName { parent, leaf, .. } = name;
        let _changing = self.changing(parent)?;
        let make = || match new.is_directory {
            true => rustix::fs::mkdirat(parent, leaf, new.mode()).map(|()| None),
            false => rustix::fs::openat(parent, leaf, FILE, new.mode()).map(Some),
        };
        let file = self.names.change(parent, || make().map_err(from_creation), Some(leaf), None)?;
        let finish = || {
            let fd = match file {
                Some(file) => file,
                None => rustix::fs::openat(parent, leaf, DIRECTORY, Mode::empty())?,
            };
            self.finish(fd, new, made)
        };
        finish().inspect_err(|_| {
            let _ = self.take_back(name, new.is_directory);
        })
    }

    fn finish(
        &self,
        fd: OwnedFd,
        new: New,
        made: impl FnOnce(FileKey),
    ) -> Result<Entry, ShareError> {
        let stat = inode::stat(&fd)?;
        let key = inode::key(&stat);
        made(key);
        let default =
            if new.is_directory { DosAttributes::default() } else { DosAttributes::ARCHIVE };
        let wanted = new.attributes.settable().union(default);
        if wanted != default {
            let stored = Stored { attributes: Some(wanted), ..Stored::default() };
            attributes::save(&fd, stored, new.is_directory)?;
        }
        let file_system = self.mounts.of_stat(&fd, &stat)?;
        Ok(Entry::new(fd, key, new.is_directory, file_system))
    }

    /// Removes an object that was just made and could not be completed for its client, with its streams. No other
    /// client may have opened it. A directory that is not empty stays.
    pub fn unmake(
        &self,
        _leave: impl MayAdd,
        name: &NewName,
        made: &Entry,
    ) -> Result<(), ShareError> {
        let NewName { parent, parent_key, leaf } = name;
        let held = self.name_locks.hold([*parent_key, made.key()]);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent, leaf, flags, Mode::empty())?;
        if identify(&file)?.0 != made.key() {
            return Err(ShareError::NotFound);
        }
        let streams = Binding::to_bury(&file);
        let _changing = self.changing(parent)?;
        self.take_back(name, made.is_directory())?;
        drop(held);
        self.bury_with(&file, streams);
        Ok(())
    }

    fn take_back(&self, name: &NewName, is_directory: bool) -> Result<(), ShareError> {
        let NewName { parent, leaf, .. } = name;
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let unlink = || Ok(rustix::fs::unlinkat(parent, leaf, flags)?);
        self.names.change(parent, unlink, None, Some(leaf))
    }
}

impl Share {
    /// A new file, for a test that uses the share alone.
    pub fn create_file(
        &self,
        leave: impl MayAdd,
        path: &SharePath,
        attributes: DosAttributes,
    ) -> Result<Entry, ShareError> {
        let new = New { is_directory: false, attributes, permissions: None };
        self.make(leave, &self.new_name(path)?, new, |_| ())
    }

    /// A new directory, for such a test.
    pub fn create_directory(
        &self,
        leave: impl MayAdd,
        path: &SharePath,
        attributes: DosAttributes,
    ) -> Result<Entry, ShareError> {
        let new = New { is_directory: true, attributes, permissions: None };
        self.make(leave, &self.new_name(path)?, new, |_| ())
    }
}

fn from_creation(errno: Errno) -> ShareError {
    match errno {
        Errno::NOENT | Errno::NOTDIR => ShareError::PathNotFound,
        other => from_resolution(other),
    }
}

const FILE: OFlags = OFlags::RDWR
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ShareConfig;
    use crate::rights::given::MayAdd;

    #[test]
    fn a_new_directory_with_a_file_of_others_is_not_unmade() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        let name = share.new_name(&SharePath::parse("d").unwrap()).unwrap();
        let new =
            New { is_directory: true, attributes: DosAttributes::default(), permissions: None };
        let made = share.make(MayAdd::TEST, &name, new, |_| ()).unwrap();
        std::fs::write(dir.path().join("d/f"), "of another").unwrap();
        assert!(share.unmake(MayAdd::TEST, &name, &made).is_err());
        std::fs::remove_file(dir.path().join("d/f")).unwrap();
        share.unmake(MayAdd::TEST, &name, &made).unwrap();
        assert!(!dir.path().join("d").exists());
    }
}
