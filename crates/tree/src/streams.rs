//! Alternate data streams: ordinary files, stored beside the tree and bound to their file.
//!
//! ```text
//!  file ---- xattr user.landfast.streams ----> .landfast-streams/<id>/:<name of the stream>
//!            (crate::binding)                  (crate::homes)
//! ```
//!
//! In an xattr a stream would be limited to the rest of 4 KiB on ext4, and could not be written in place,
//! locked or mapped. As a file it supports every operation of files, with no other limit. The xattr moves
//! with the file, whatever its name; a copy of a file that copied its xattrs too has another inode, and so
//! none of the streams.
//!
//! The streams are removed with the last name of their file when this server removes it. Files that
//! are removed in other ways leave their streams in `.landfast-streams`, where no client sees them
//! until a sweep removes them. No client can name that directory, at any depth.
//!
//! Spec: MS-FSCC §2.1.5.3, MS-FSA §2.1.1.5 (streams of a file).

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};

use super::change::Replace;
use super::entry::{Base, Entry};
use super::error::ShareError;
use super::homes::{names, stored};
use super::inline;
use super::inode::proc_name;
use super::inode::{self, FileKey, identify, identify_at};
use super::ranges::COPY_MAX;
use super::rights::{MayAdd, MayRemove, MaySet};
use super::stream_name::StreamName;
use super::unsynced::persist_file;
use super::{Found, OpenMode, Share};

/// One stream, in the form of a list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamFacts {
    /// Its name.
    pub name: String,
    /// Its length.
    pub size: u64,
    /// Bytes reserved for it.
    pub allocation: u64,
}

/// A stream that exists.
#[derive(Debug)]
pub struct FoundStream {
    home: OwnedFd,
    name: String,
    /// The inode that holds its bytes.
    pub key: FileKey,
}

impl FoundStream {
    /// Whether emptying it is much work.
    pub fn is_much_to_empty(&self) -> bool {
        let stat = rustix::fs::statat(&self.home, stored(&self.name), AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| inline::is_much(inline::bytes_of(&stat)))
    }
}

impl Share {
    /// Finds a stream of a file or directory, ignoring case.
    pub fn find_stream(
        &self,
        file: &Found,
        name: &StreamName,
    ) -> Result<Option<FoundStream>, ShareError> {
        let Some(home) = self.home(&file.anchor)? else { return Ok(None) };
        let found = names(&home)?.into_iter().find(|found| name.is(found));
        let Some(name) = found else { return Ok(None) };
        match identify_at(&home, stored(&name)) {
            Ok((key, FileType::RegularFile)) => Ok(Some(FoundStream { home, name, key })),
            Ok(_) => Err(ShareError::SpecialFile),
            Err(ShareError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens a stream that [`Share::find_stream`] found.
    pub fn open_stream(
        &self,
        file: &Found,
        stream: &FoundStream,
        mode: OpenMode,
    ) -> Result<Entry, ShareError> {
        if mode.write.is_some() {
            self.writable()?;
        }
        let access = if mode.write.is_some() { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(&stream.home, stored(&stream.name), flags, Mode::empty())?;
        let (key, _) = identify(&fd)?;
        if key != stream.key {
            return Err(ShareError::NotFound);
        }
        self.stream_entry(file, fd, &stream.home)
    }

    /// Creates a stream that must not exist. `made` learns its identity at once.
    ///
    /// # Errors
    ///
    /// Then no such stream exists, except for [`ShareError::Exists`].
    pub fn create_stream(
        &self,
        _leave: impl MayAdd,
        file: &Found,
        name: &StreamName,
        made: impl FnOnce(FileKey),
    ) -> Result<Entry, ShareError> {
        self.writable()?;
        if file.is_device() || !self.mounts.of_stat(&file.anchor, &file.stat)?.has_xattrs {
            return Err(ShareError::PeerStreamUnsupported);
        }
        let home = match self.home(&file.anchor)? {
            Some(home) => home,
            None => self.first_home(&file.anchor)?,
        };
        let _held = self.hold_home(&home)?;
        let there = names(&home)?;
        if there.iter().any(|found| name.is(found)) {
            return Err(ShareError::Exists);
        }
        if there.len() >= STREAMS_MAX {
            return Err(ShareError::HandlesExhausted);
        }
        let _changing = self.changing(&home)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let name = stored(name.as_str());
        let fd = rustix::fs::openat(&home, &*name, flags, STREAM_MODE)?;
        let finish = || {
            made(identify(&fd)?.0);
            self.stream_entry(file, fd, &home)
        };
        finish().inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&home, &*name, AtFlags::empty());
        })
    }

    /// Removes a stream that was just made and could not be completed for its client.
    pub fn unmake_stream(&self, _leave: impl MayAdd, entry: &Entry) -> Result<(), ShareError> {
        let base = entry.base().ok_or(ShareError::NotFound)?;
        self.unlink_stream(&base.home, entry.key())
    }

    fn stream_entry(&self, file: &Found, fd: OwnedFd, home: &OwnedFd) -> Result<Entry, ShareError> {
        let stat = inode::stat(&fd)?;
        let duplicate = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 0);
        let base = Base { file: duplicate(&file.anchor)?, key: file.key, home: duplicate(home)? };
        // The stream lies at the share's top, whatever file system holds its file.
        let file_system = self.mounts.of_stat(&fd, &stat)?;
        Ok(Entry::of_stream(fd, inode::key(&stat), file_system, base))
    }

    /// The streams of an open file, without its unnamed one.
    pub fn streams(&self, entry: &Entry) -> Result<Vec<StreamFacts>, ShareError> {
        let home = match entry.base() {
            Some(base) => Some(rustix::io::fcntl_dupfd_cloexec(&base.home, 0)?),
            None => self.home(entry.as_fd())?,
        };
        let Some(home) = home else { return Ok(Vec::new()) };
        let mut list = Vec::new();
        for name in names(&home)? {
            let stat = rustix::fs::statat(&home, stored(&name), AtFlags::SYMLINK_NOFOLLOW);
            let Ok(stat) = stat else { continue };
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            let allocation = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
            list.push(StreamFacts { name, size, allocation });
        }
        Ok(list)
    }

    /// Removes the stream of an entry. Clients that have it open keep its bytes.
    pub fn remove_stream(&self, _leave: impl MayRemove, entry: &Entry) -> Result<(), ShareError> {
        let base = entry.base().ok_or(ShareError::NotFound)?;
        self.unlink_stream(&base.home, entry.key())
    }

    /// The same for a stream that was found, and could not be opened.
    pub fn remove_found_stream(
        &self,
        _leave: impl MayRemove,
        stream: &FoundStream,
    ) -> Result<(), ShareError> {
        self.unlink_stream(&stream.home, stream.key)
    }

    fn unlink_stream(&self, home: &OwnedFd, key: FileKey) -> Result<(), ShareError> {
        self.writable()?;
        let _held = self.hold_home(home)?;
        let name = name_of(home, key)?;
        let _changing = self.changing(home)?;
        Ok(rustix::fs::unlinkat(home, stored(&name), AtFlags::empty())?)
    }

    /// The inode that holds the bytes of another stream of the same file.
    pub fn sibling(&self, entry: &Entry, name: &StreamName) -> Result<Option<FileKey>, ShareError> {
        let base = entry.base().ok_or(ShareError::NotFound)?;
        let Some(found) = names(&base.home)?.into_iter().find(|found| name.is(found)) else {
            return Ok(None);
        };
        Ok(Some(identify_at(&base.home, stored(&found))?.0))
    }

    /// Gives the stream of an entry another name, replacing the stream that may be replaced.
    ///
    /// # Errors
    ///
    /// Then nothing has changed. [`ShareError::Exists`]: another stream has the name.
    pub fn rename_stream(
        &self,
        _leave: impl MayRemove,
        entry: &Entry,
        to: &StreamName,
        replace: Option<Replace>,
    ) -> Result<(), ShareError> {
        self.writable()?;
        let base = entry.base().ok_or(ShareError::NotFound)?;
        // Dropped after the lock: freeing a large stream takes long.
        let replaced;
        let _held = self.hold_home(&base.home)?;
        let name = name_of(&base.home, entry.key())?;
        if name == to.as_str() {
            return Ok(());
        }
        let taken = names(&base.home)?.into_iter().find(|found| to.is(found) && *found != name);
        if let Some(taken) = &taken {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            replaced = rustix::fs::openat(&base.home, stored(taken), flags, Mode::empty())?;
            let found = identify(&replaced)?.0;
            if replace.is_none_or(|replace| replace.key != found) {
                return Err(ShareError::Exists);
            }
        }
        let _changing = self.changing(&base.home)?;
        let (from, target) = (stored(&name), stored(to.as_str()));
        let is_same = taken.as_deref() == Some(to.as_str());
        let flags = if is_same { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        rustix::fs::renameat_with(&base.home, from, &base.home, target, flags)?;
        // Another spelling of the same name was taken.
        if let Some(taken) = taken.filter(|_| !is_same) {
            rustix::fs::unlinkat(&base.home, stored(&taken), AtFlags::empty())?;
        }
        Ok(())
    }

    /// Makes a stream the unnamed one of its file: its bytes move there, the stream is removed, and `entry` is
    /// superseded. No client may have the file open, no other the stream, and none may write to it meanwhile.
    ///
    /// # Durability
    ///
    /// The stream is removed when its bytes are durable in the file, and the file's name is
    /// durable.
    pub fn promote_stream(
        &self,
        leave: impl MayRemove,
        entry: &Entry,
        replace: Option<impl MayRemove>,
    ) -> Result<(), ShareError> {
        self.writable()?;
        let base = entry.base().ok_or(ShareError::NotFound)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(proc_name(&base.file), flags, Mode::empty())?;
        let file_system = self.mounts.of(&file)?;
        let file = Entry::new(file, base.key, false, file_system);
        if file.data_size()? > 0 && replace.is_none() {
            return Err(ShareError::Exists);
        }
        // Bytes of the stream that were lost must not count as durable in the file.
        persist_file(rustix::io::fcntl_dupfd_cloexec(entry.as_fd(), 0)?)?;
        let size = entry.data_size()?;
        // A full disk is detected before any change.
        file.reserve(0, size)?;
        let mut at = 0;
        while at < size {
            let step = usize::try_from((size - at).min(COPY_MAX as u64)).expect("at most a MiB");
            file.copy_from(entry, at, at, step)?;
            at += step as u64;
        }
        file.set_size(size)?;
        persist_file(rustix::io::fcntl_dupfd_cloexec(file.as_fd(), 0)?)?;
        self.persist_name_of(&base.file, base.key)?;
        self.remove_stream(leave, entry)?;
        entry.set_superseded();
        Ok(())
    }

    /// The name of the stream of an entry.
    pub fn stream_name(&self, entry: &Entry) -> Option<String> {
        name_of(&entry.base()?.home, entry.key()).ok()
    }

    /// Removes all streams of a file that is emptied.
    pub fn clear_streams(&self, _leave: impl MaySet, entry: &Entry) -> Result<(), ShareError> {
        let Some(home) = self.home(entry.as_fd())? else { return Ok(()) };
        let _held = self.hold_home(&home)?;
        let _changing = self.changing(&home)?;
        for name in names(&home)? {
            rustix::fs::unlinkat(&home, stored(&name), AtFlags::empty())?;
        }
        Ok(())
    }

    /// Whether a file or directory has streams.
    pub(super) fn has_streams(&self, file: impl AsFd) -> Result<bool, ShareError> {
        let Some(home) = self.home(file)? else { return Ok(false) };
        Ok(!names(&home)?.is_empty())
    }
}

// By inode: the stream may have been renamed through another handle.
fn name_of(home: &OwnedFd, key: FileKey) -> Result<String, ShareError> {
    let is_it =
        |name: &String| identify_at(home, stored(name)).is_ok_and(|(found, _)| found == key);
    names(home)?.into_iter().find(is_it).ok_or(ShareError::NotFound)
}

/// Descriptors of an open stream: its own, that of its file, and that of the directory of its
/// streams.
pub const STREAM_DESCRIPTORS: usize = 3;
/// Streams of one file; a list of as many of the longest names still fits one answer.
const STREAMS_MAX: usize = 1024;
const STREAM_MODE: Mode = Mode::from_raw_mode(0o666);
#[cfg(test)]
mod tests {
    use rustix::fs::XattrFlags;
    use rustix::io::Errno;

    use super::*;
    use crate::binding::{BINDING, BINDING_LEN, set_unreadable};
    use crate::rights::given::MayAdd;
    use crate::{DosAttributes, ShareConfig, SharePath};

    #[test]
    fn an_unreadable_xattr_does_not_count_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        let path = SharePath::parse("f").unwrap();
        share.create_file(MayAdd::TEST, &path, DosAttributes::default()).unwrap();
        let found = share.locate(&path).unwrap().found.unwrap();
        let [there, new] = ["there", "new"].map(|name| StreamName::parse(name).unwrap());
        let make = |name| share.create_stream(MayAdd::TEST, &found, name, |_| ()).map(drop);
        make(&there).unwrap();
        let file = dir.path().join("f");
        let mut binding = [0; BINDING_LEN];
        rustix::fs::getxattr(&file, BINDING, &mut binding).unwrap();
        set_unreadable(&file);
        assert_eq!(make(&new), Err(ShareError::MediaIo(Errno::RANGE)));
        share.find_stream(&found, &new).unwrap_err();
        rustix::fs::setxattr(&file, BINDING, &binding, XattrFlags::empty()).unwrap();
        assert!(share.find_stream(&found, &there).unwrap().is_some());
    }
}
