//! Changing the tree: create, remove, rename.
//!
//! Every change works on a parent directory opened beneath the root and one checked component,
//! and verifies that the component still is the inode the caller means: a name that was swapped
//! meanwhile is left alone.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::access::{MayAdd, MayRemove};

use super::Share;
use super::attributes::{self, DosAttributes, Stored};
use super::entry::Entry;
use super::error::{ShareError, from_resolution};
use super::lookup::open_beneath;
use super::metadata::{self, FileKey, identify, identify_at};
use super::name::{Naming, SharePath};
use super::streams::Binding;

impl Share {
    /// Creates a file that must not exist and opens it for reading and writing.
    pub(crate) fn create_file(
        &self,
        _leave: MayAdd,
        path: &SharePath,
        attributes: DosAttributes,
    ) -> Result<Entry, ShareError> {
        self.writable()?;
        let parent = self.parent_of(path)?;
        let _changing = self.changing(&parent)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create =
            || rustix::fs::openat(&parent, path.leaf(), flags, FILE_MODE).map_err(from_creation);
        let fd = self.names.change(&parent, create, Some(path.leaf()), None)?;
        self.finish_creation(fd, attributes, DosAttributes::ARCHIVE)
    }

    /// Creates a directory that must not exist and opens it.
    pub(crate) fn create_directory(
        &self,
        _leave: MayAdd,
        path: &SharePath,
        attributes: DosAttributes,
    ) -> Result<Entry, ShareError> {
        self.writable()?;
        let parent = self.parent_of(path)?;
        let _changing = self.changing(&parent)?;
        let create =
            || rustix::fs::mkdirat(&parent, path.leaf(), DIRECTORY_MODE).map_err(from_creation);
        self.names.change(&parent, create, Some(path.leaf()), None)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let fd = open_beneath(&self.root, path.for_system(), flags, Mode::empty())
            .map_err(from_resolution)?;
        self.finish_creation(fd, attributes, DosAttributes::default())
    }

    fn finish_creation(
        &self,
        fd: OwnedFd,
        attributes: DosAttributes,
        default: DosAttributes,
    ) -> Result<Entry, ShareError> {
        let stat = metadata::stat(&fd)?;
        let (key, kind) = (metadata::key(&stat), metadata::kind(&stat));
        let is_directory = kind == FileType::Directory;
        let wanted = attributes.settable().union(default);
        if wanted != default {
            let stored = Stored { attributes: Some(wanted), ..Stored::default() };
            attributes::save(&fd, stored, is_directory)?;
        }
        let file_system = self.mounts.of_stat(&fd, &stat)?;
        Ok(Entry::new(fd, key, is_directory, file_system))
    }

    /// Takes back what was just made, of which its client did not get everything.
    pub(crate) fn unmake(
        &self,
        _leave: MayAdd,
        path: &SharePath,
        made: &Entry,
    ) -> Result<(), ShareError> {
        self.take_away(path, made.key(), made.is_directory())
    }

    /// Removes the name `path` if it still stands for the inode `key`.
    pub(crate) fn remove(
        &self,
        _leave: MayRemove,
        path: &SharePath,
        key: FileKey,
        is_directory: bool,
    ) -> Result<(), ShareError> {
        self.take_away(path, key, is_directory)
    }

    pub(super) fn take_away(
        &self,
        path: &SharePath,
        key: FileKey,
        is_directory: bool,
    ) -> Result<(), ShareError> {
        self.writable()?;
        let parent = self.parent_of(path)?;
        verify(&parent, path.leaf(), key)?;
        let _changing = self.changing(&parent)?;
        let last = self.last_of(&parent, path.leaf());
        let going = self.going(&parent, path);
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let unlink = || match rustix::fs::unlinkat(&parent, path.leaf(), flags) {
            // A symbolic link to a directory is removed as the link it is.
            Err(Errno::NOTDIR) if is_directory => {
                Ok(rustix::fs::unlinkat(&parent, path.leaf(), AtFlags::empty())?)
            }
            Err(Errno::EXIST) => Err(ShareError::DirectoryNotEmpty),
            other => Ok(other?),
        };
        self.names.change(&parent, unlink, None, Some(path.leaf()))?;
        self.remember(going, path);
        if let Some(binding) = last {
            self.bury_streams(binding);
        }
        Ok(())
    }

    // Where the streams are of what has no other name than this one.
    pub(super) fn last_of(&self, parent: &OwnedFd, leaf: &str) -> Option<Binding> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent, leaf, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        (is_directory || stat.st_nlink == 1).then(|| Binding::of(&file)).flatten()
    }

    /// Gives the inode `key` at `from` the name `to`, taking it from what may be replaced.
    ///
    /// # Errors
    ///
    /// Then nothing has changed. [`ShareError::Exists`]: something else has the name.
    pub(crate) fn rename(
        &self,
        _leave: MayRemove,
        from: &SharePath,
        to: &SharePath,
        key: FileKey,
        replace: Option<Replace>,
    ) -> Result<(), ShareError> {
        self.writable()?;
        let source = self.parent_of(from)?;
        let target = self.parent_of(to)?;
        verify(&source, from.leaf(), key)?;
        let _linking = self.check_move(&source, from.leaf(), &target)?;
        let _changing = (self.changing(&source)?, self.changing(&target)?);
        let replace = Replace::is_there(replace, &target, to.leaf())?;
        let replaced = if replace { self.last_of(&target, to.leaf()) } else { None };
        let replaced = replaced.filter(|_| {
            // Another spelling of the file itself is not replaced.
            !identify_at(&target, to.leaf()).is_ok_and(|(there, _)| there == key)
        });
        let going = self.going(&source, from);
        let is_posix = to.naming() == Naming::Posix;
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let rename =
            || match rustix::fs::renameat_with(&source, from.leaf(), &target, to.leaf(), flags) {
                Err(Errno::XDEV) => Err(ShareError::CrossDevice),
                Err(Errno::ISDIR) if is_posix => Err(ShareError::IsDirectory),
                Err(Errno::NOTDIR) if is_posix => Err(ShareError::NotDirectory),
                Err(Errno::NOTEMPTY) if is_posix => Err(ShareError::DirectoryNotEmpty),
                // A directory moved below itself, or a mismatch of file and directory.
                Err(Errno::INVAL | Errno::ISDIR | Errno::NOTDIR) => Err(ShareError::AccessDenied),
                Err(Errno::NOTEMPTY) => Err(ShareError::AccessDenied),
                other => Ok(other?),
            };
        let (gone, new) = (Some(from.leaf()), Some(to.leaf()));
        let is_within = identify(&source)?.0 == identify(&target)?.0;
        if is_within {
            self.names.change(&target, rename, new, gone)?;
        } else {
            // The other directory has changed too: it is read again when it is asked about.
            self.names.change(&target, rename, new, None)?;
        }
        self.remember(going, from);
        if let Some(binding) = replaced {
            self.bury_streams(binding);
        }
        Ok(())
    }

    /// Whether a directory has no entries.
    pub fn is_empty_directory(&self, entry: &Entry) -> Result<bool, ShareError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(entry.as_fd(), ".", flags, Mode::empty())?;
        let mut stream = rustix::fs::Dir::new(fd)?;
        while let Some(found) = stream.read() {
            let found = found?;
            if !matches!(found.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn writable(&self) -> Result<(), ShareError> {
        if self.is_read_only() { Err(ShareError::ConfigReadOnly) } else { Ok(()) }
    }

    pub(super) fn parent_of(&self, path: &SharePath) -> Result<OwnedFd, ShareError> {
        if path.is_root() {
            return Err(ShareError::AccessDenied);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match open_beneath(&self.root, path.parent().for_system(), flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => Err(ShareError::PathNotFound),
            other => other.map_err(from_resolution),
        }
    }
}

/// What may lose its name to another: the inode that was found by it, and no other one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replace {
    pub(super) key: FileKey,
}

impl Replace {
    /// Of an inode, with leave to replace it.
    pub(crate) fn of(key: FileKey, _leave: MayRemove) -> Self {
        Self { key }
    }

    /// Whether what may be replaced has the name. A free name is not taken from anybody.
    ///
    /// # Errors
    ///
    /// [`ShareError::Exists`]: something else has the name, which keeps it.
    pub(super) fn is_there(
        replace: Option<Self>,
        parent: &OwnedFd,
        leaf: &str,
    ) -> Result<bool, ShareError> {
        let Some(Self { key }) = replace else { return Ok(false) };
        match identify_at(parent, leaf) {
            Err(ShareError::NotFound) => Ok(false),
            // The name of a device is the operator's, and no client could make it again.
            Ok((_, FileType::CharacterDevice)) => Err(ShareError::CannotDelete),
            // It was looked through, or is meant itself.
            Ok((_, FileType::Symlink)) => Ok(true),
            Ok((found, _)) if found == key => Ok(true),
            Ok(_) => Err(ShareError::Exists),
            Err(error) => Err(error),
        }
    }
}

// A symbolic link stands for its target here, so its own inode is let through. The name of a device
// is the operator's: none of it is changed.
fn verify(parent: &OwnedFd, leaf: &str, key: FileKey) -> Result<(), ShareError> {
    match identify_at(parent, leaf)? {
        (_, FileType::Symlink) => Ok(()),
        (_, FileType::CharacterDevice) => Err(ShareError::CannotDelete),
        (found, _) if found == key => Ok(()),
        _ => Err(ShareError::NotFound),
    }
}

fn from_creation(errno: Errno) -> ShareError {
    match errno {
        Errno::NOENT | Errno::NOTDIR => ShareError::PathNotFound,
        other => from_resolution(other),
    }
}

// The umask of the server decides what remains of these.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o777);
