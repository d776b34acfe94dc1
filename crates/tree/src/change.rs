//! Changes of the tree: removing and renaming.
//!
//! Every change works on a parent directory opened beneath the root and one checked component, and
//! verifies that the component still is the inode that the caller means: a name that was replaced
//! meanwhile is left alone. For all requests of the server, check and change are one step
//! (`crate::name_locks`); programs beside the server may come in between.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::Share;
use super::binding::Binding;
use super::entry::Entry;
use super::error::ShareError;
use super::inline::InlineIo;
use super::inode::proc_name;
use super::inode::{FileKey, identify, identify_at};
use super::lookup::open_beneath;
use super::name::{Naming, SharePath};
use super::rights::MayRemove;

impl Share {
    /// Removes the name `path` if it still denotes the inode `key`.
    pub fn remove(
        &self,
        _leave: impl MayRemove,
        path: &SharePath,
        key: FileKey,
        is_directory: bool,
    ) -> Result<(), ShareError> {
        self.take_away(path, key, is_directory)
    }

    /// [`Share::remove`] of a file that is open, on the calling thread.
    ///
    /// `None`: it would wait for a disk or for another request, or might take long. Nothing has changed then.
    pub fn remove_on_the_spot(
        &self,
        _leave: impl MayRemove,
        path: &SharePath,
        key: FileKey,
    ) -> Option<Result<(), ShareError>> {
        if self.inline_by_name(&[path]) != InlineIo::Everything {
            return None;
        }
        match self.take_away_as(path, key, Takes::OnTheSpot) {
            Err(ShareError::WouldBlock) => None,
            done => Some(done),
        }
    }

    pub(super) fn take_away(
        &self,
        path: &SharePath,
        key: FileKey,
        is_directory: bool,
    ) -> Result<(), ShareError> {
        self.take_away_as(path, key, if is_directory { Takes::Directory } else { Takes::File })
    }

    fn take_away_as(&self, path: &SharePath, key: FileKey, takes: Takes) -> Result<(), ShareError> {
        self.writable()?;
        let is_directory = takes == Takes::Directory;
        let parent = self.parent_of(path)?;
        let inodes = [identify(&parent)?.0, key];
        let held = match takes {
            Takes::OnTheSpot => self.name_locks.try_hold(inodes).ok_or(ShareError::WouldBlock)?,
            Takes::File | Takes::Directory => self.name_locks.hold(inodes),
        };
        // Dropped after the locks: freeing a large file takes long.
        let file = match takes {
            // A link may lead to a disk.
            Takes::OnTheSpot => open_named(&parent, path)
                .ok()
                .filter(|(_, is)| *is == (key, FileType::RegularFile))
                .map(|(file, _)| file)
                .ok_or(ShareError::WouldBlock)?,
            Takes::File | Takes::Directory => self.named(&parent, path, key)?.0,
        };
        let _changing = self.changing(&parent)?;
        let streams = Binding::to_bury(&file);
        if takes == Takes::OnTheSpot && streams.is_some() {
            return Err(ShareError::WouldBlock);
        }
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
        drop(held);
        self.remember(going, path);
        self.bury_with(&file, streams);
        Ok(())
    }

    /// Opens the object called `path` in its directory, if it is the inode `key`, or a symbolic link to it, and
    /// returns its kind.
    ///
    /// # Errors
    ///
    /// [`ShareError::NotFound`]: the name denotes another object, or none.
    pub(super) fn named(
        &self,
        parent: &OwnedFd,
        path: &SharePath,
        key: FileKey,
    ) -> Result<(OwnedFd, (FileKey, FileType)), ShareError> {
        let (file, is) = open_named(parent, path)?;
        match is {
            // The operator chose the name of a device, and no client could make it again.
            (_, FileType::CharacterDevice) => Err(ShareError::CannotDelete),
            (found, _) if self.devices.shown(found).is_some() => Err(ShareError::CannotDelete),
            (found, _) if found == key => Ok((file, is)),
            (_, FileType::Symlink) if self.leads_to(path, key) => Ok((file, is)),
            _ => Err(ShareError::NotFound),
        }
    }

    fn leads_to(&self, link: &SharePath, key: FileKey) -> bool {
        let end = open_beneath(&self.root, link.for_system(), OFlags::PATH, Mode::empty());
        end.is_ok_and(|end| identify(end).is_ok_and(|(found, _)| found == key))
    }

    /// Opens the object that may be replaced, if it has the name. A free name needs no replacement.
    ///
    /// # Errors
    ///
    /// [`ShareError::Exists`]: another object has the name, and keeps it.
    pub(super) fn replaced(
        &self,
        replace: Option<Replace>,
        parent: &OwnedFd,
        path: &SharePath,
    ) -> Result<Option<OwnedFd>, ShareError> {
        let Some(Replace { key }) = replace else { return Ok(None) };
        match self.named(parent, path, key) {
            Ok((file, _)) => Ok(Some(file)),
            Err(ShareError::NotFound) => match identify_at(parent, path.leaf()) {
                Err(ShareError::NotFound) => Ok(None),
                Ok(_) => Err(ShareError::Exists),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// Gives the inode `key` at `from` the name `to`, replacing the object that may be replaced.
    ///
    /// # Errors
    ///
    /// Then nothing has changed. [`ShareError::Exists`]: another object has the name.
    pub fn rename(
        &self,
        _leave: impl MayRemove,
        from: &SharePath,
        to: &SharePath,
        key: FileKey,
        replace: Option<Replace>,
    ) -> Result<(), ShareError> {
        self.writable()?;
        let source = self.parent_of(from)?;
        let elsewhere = (from.parent() != to.parent()).then(|| self.parent_of(to)).transpose()?;
        let target = elsewhere.as_ref().unwrap_or(&source);
        let (moved, (moved_key, kind)) = self.named(&source, from, key)?;
        // Before the locks: a directory may have much below it.
        let _linking = self.check_move(&moved, kind, &source, target)?;
        let source_key = identify(&source)?.0;
        let target_key = match &elsewhere {
            Some(target) => identify(target)?.0,
            None => source_key,
        };
        let victim = replace.map(|replace| replace.key);
        let held = self
            .name_locks
            .hold([Some(source_key), Some(target_key), Some(key), victim].into_iter().flatten());
        if identify_at(&source, from.leaf())?.0 != moved_key {
            return Err(ShareError::NotFound);
        }
        let _changing =
            (self.changing(&source)?, elsewhere.as_ref().map(|at| self.changing(at)).transpose()?);
        // Dropped after the locks, like a removed file.
        let replaced = self.replaced(replace, target, to)?;
        let streams = replaced.as_ref().and_then(Binding::to_bury);
        let going = self.going(&source, from);
        let is_posix = to.naming() == Naming::Posix;
        let flags = if replaced.is_some() { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let rename =
            || match rustix::fs::renameat_with(&source, from.leaf(), target, to.leaf(), flags) {
                Err(Errno::XDEV) => Err(ShareError::CrossDevice),
                Err(Errno::ISDIR) if is_posix => Err(ShareError::IsDirectory),
                Err(Errno::NOTDIR) if is_posix => Err(ShareError::NotDirectory),
                Err(Errno::NOTEMPTY) if is_posix => Err(ShareError::DirectoryNotEmpty),
                // A directory moved below itself, or a file and a directory that do not match.
                Err(Errno::INVAL | Errno::ISDIR | Errno::NOTDIR) => Err(ShareError::AccessDenied),
                Err(Errno::NOTEMPTY) => Err(ShareError::AccessDenied),
                other => Ok(other?),
            };
        let (gone, new) = (Some(from.leaf()), Some(to.leaf()));
        let is_within = source_key == target_key;
        // rename(2) has no effect if both names are links of one file: the old name is removed
        // separately.
        let is_other_link = match &replaced {
            Some(other) if victim == Some(key) => {
                // An object that is mounted on a name is not another link.
                rustix::fs::fstat(&moved)?.st_nlink > 1
                    && !(is_within && is_one_name(&source, from.leaf(), other)?)
                    && identify_at(target, to.leaf())?.0 == key
            }
            _ => false,
        };
        if is_other_link {
            let unlink = || Ok(rustix::fs::unlinkat(&source, from.leaf(), AtFlags::empty())?);
            self.names.change(&source, unlink, None, gone)?;
        } else if is_within {
            self.names.change(target, rename, new, gone)?;
        } else {
            // The other directory has changed too: it is read again when its names are next needed.
            self.names.change(target, rename, new, None)?;
        }
        drop(held);
        self.remember(going, from);
        if let Some(replaced) = &replaced {
            self.bury_with(replaced, streams);
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
}

/// The object that may lose its name to another: the inode that was found by the name, and no
/// other.
#[derive(Clone, Copy, Debug)]
pub struct Replace {
    pub(super) key: FileKey,
}

impl Replace {
    /// An inode, with leave to replace it.
    pub fn of(key: FileKey, _leave: impl MayRemove) -> Self {
        Self { key }
    }

    /// The inode.
    pub fn key(self) -> FileKey {
        self.key
    }
}

impl Share {
    /// Removes the streams of a file that has just lost a name, if that was its last one.
    pub(super) fn bury_with(&self, file: &OwnedFd, streams: Option<Binding>) {
        // Checked after the name was removed: a program beside the server may have added a name
        // meanwhile.
        if let Some(binding) = streams.filter(|_| has_no_name(file)) {
            self.bury_streams(binding);
        }
    }
}

// What has a name now.
fn open_named(
    parent: &OwnedFd,
    path: &SharePath,
) -> Result<(OwnedFd, (FileKey, FileType)), ShareError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, path.leaf(), flags, Mode::empty())?;
    let is = identify(&file)?;
    Ok((file, is))
}

/// How something is taken away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Takes {
    File,
    Directory,
    /// A file, and only if that waits for nothing: [`ShareError::WouldBlock`] else.
    OnTheSpot,
}

// Whether a name of a directory is the one by which a file in it was opened: two spellings may be one name to the
// file system, and the kernel knows one of them.
fn is_one_name(directory: &OwnedFd, leaf: &str, opened: &OwnedFd) -> Result<bool, ShareError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let other = rustix::fs::openat(directory, leaf, flags, Mode::empty())?;
    let known_by = |file: &OwnedFd| rustix::fs::readlink(proc_name(file), Vec::new());
    let (one, other) = (known_by(opened)?, known_by(&other)?);
    let leaf_of =
        |path: &CStr| path.to_bytes().rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec);
    Ok(leaf_of(&one) == leaf_of(&other))
}

fn has_no_name(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| {
        // A directory has only one name; the count of some file systems includes its subdirectories.
        FileType::from_raw_mode(stat.st_mode) == FileType::Directory || stat.st_nlink == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::given::{MayAdd, MayRemove};
    use crate::{DosAttributes, ShareConfig, StreamName};

    #[test]
    fn a_rename_to_another_link_of_its_file_keeps_that_name() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        let path = |name| SharePath::parse(name).unwrap();
        let file = share.create_file(MayAdd::TEST, &path("f"), DosAttributes::default()).unwrap();
        std::fs::hard_link(dir.path().join("f"), dir.path().join("F")).unwrap();
        let rename = |from, to| {
            let replace = Some(Replace::of(file.key(), MayRemove::TEST));
            share.rename(MayRemove::TEST, &path(from), &path(to), file.key(), replace)
        };
        assert_eq!(rename("f", "f"), Ok(()));
        assert!(dir.path().join("f").exists(), "it is one name");
        assert_eq!(rename("f", "F"), Ok(()));
        assert!(dir.path().join("F").exists() && !dir.path().join("f").exists());
    }

    #[test]
    fn a_file_that_gains_a_name_while_losing_another_keeps_its_streams() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        let path = SharePath::parse("f").unwrap();
        share.create_file(MayAdd::TEST, &path, DosAttributes::default()).unwrap();
        let found = share.locate(&path).unwrap().found.unwrap();
        let stream = StreamName::parse("s").unwrap();
        share.create_stream(MayAdd::TEST, &found, &stream, |_| {}).unwrap();
        let has_streams = || {
            let found = share.locate(&SharePath::parse("g").unwrap()).unwrap().found.unwrap();
            share.find_stream(&found, &stream).unwrap().is_some()
        };
        let disk = dir.path();
        let file = OwnedFd::from(std::fs::File::open(disk.join("f")).unwrap());
        let streams = Binding::of(&file).unwrap();
        std::fs::hard_link(disk.join("f"), disk.join("g")).unwrap();
        std::fs::remove_file(disk.join("f")).unwrap();
        share.bury_with(&file, streams);
        assert!(has_streams());
    }
}
