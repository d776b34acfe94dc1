//! Alternate data streams: ordinary files, kept beside the tree and bound to their file.
//!
//! ```text
//!  file ---- xattr user.landfast.streams ----> .landfast-streams/<id>/:<name of the stream>
//!            0        4   8        16      32
//!            +--------+---+--------+-------+
//!            | version| 0 | inode  | id    |   version 1; inode: the file's own; id: random
//!            +--------+---+--------+-------+
//! ```
//!
//! In an xattr a stream would be limited to what is left of 4 KiB on ext4, and could be neither written in
//! place nor locked nor mapped. As a file it can do whatever a file can, and has no other limit than
//! a file's. The xattr goes where the file goes, by whatever name; a copy of a file that copied its
//! xattrs too has another inode, and so none of the streams.
//!
//! The streams go with the last name of their file when it is removed through this server. What is
//! removed another way leaves them in `.landfast-streams`, where nobody sees them until they are swept
//! out. No client can name that directory, at any depth.
//!
//! Spec: MS-FSCC §2.1.5.3, MS-FSA §2.1.1.5 (streams of a file).

use std::hash::{Hash, Hasher};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::access::{MayAdd, MayRemove, MaySet};

use super::attributes::proc_name;
use super::change::Replace;
use super::entry::{Base, Entry};
use super::error::{ShareError, from_resolution};
use super::inline;
use super::lookup::open_beneath;
use super::metadata::{self, FileKey, identify, identify_at};
use super::name_locks::HeldNames;
use super::ranges::COPY_MAX;
use super::stream_name::StreamName;
use super::unsynced::persist_file;
use super::{Found, OpenMode, Share};

/// One stream, as a list shows it.
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
    /// Which inode holds its bytes.
    pub key: FileKey,
}

impl FoundStream {
    /// Whether it is much work to empty it.
    pub(crate) fn is_much_to_empty(&self) -> bool {
        let stat = rustix::fs::statat(&self.home, stored(&self.name), AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| inline::is_much(inline::bytes_of(&stat)))
    }
}

/// Where the streams of one file are, as its xattr says.
#[derive(Clone, Copy, Debug, Eq)]
pub(crate) struct Binding {
    inode: u64,
    id: [u8; 16],
}

impl Binding {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let inode = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
        let id = bytes.get(16..32)?.try_into().ok()?;
        let is_ours = bytes.len() == BINDING_LEN && bytes[..4] == VERSION.to_le_bytes();
        is_ours.then_some(Self { inode, id })
    }

    fn emit(self) -> [u8; BINDING_LEN] {
        let mut out = [0; BINDING_LEN];
        out[..4].copy_from_slice(&VERSION.to_le_bytes());
        out[8..16].copy_from_slice(&self.inode.to_le_bytes());
        out[16..].copy_from_slice(&self.id);
        out
    }

    /// Whether a value of the xattr that can be read is what would be written: for the fuzz
    /// targets.
    pub(crate) fn is_kept(value: &[u8]) -> bool {
        // Four bytes are reserved.
        let masked = |value: &[u8]| [&value[..4], &[0; 4], &value[8..]].concat();
        Self::parse(value).is_none_or(|binding| {
            let found = Self::of_directory(&binding.directory());
            binding.emit()[..] == masked(value) && found == Some(binding)
        })
    }

    /// What the xattr of an inode says, if it speaks of this inode.
    ///
    /// # Errors
    ///
    /// The xattr cannot be read, or no server of this version has written it: the file may have streams.
    pub(super) fn of(file: impl AsFd) -> Result<Option<Self>, ShareError> {
        let mut bytes = [0; BINDING_LEN + 1];
        let len = match rustix::fs::getxattr(proc_name(&file), BINDING, &mut bytes) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
            read => read?,
        };
        let binding = Self::parse(&bytes[..len]).ok_or(ShareError::MediaIo(Errno::BADMSG))?;
        let (key, _) = identify(file)?;
        Ok((key.inode == binding.inode).then_some(binding))
    }

    /// The same of a file that may be about to go. What cannot be read is left to be swept out.
    pub(super) fn to_bury(file: impl AsFd) -> Option<Self> {
        Self::of(file).ok().flatten()
    }

    /// Of whatever file may have the streams in this directory.
    pub(super) fn of_directory(name: &str) -> Option<Self> {
        let id = u128::from_str_radix(name, 16).ok()?.to_be_bytes();
        let binding = Self { inode: 0, id };
        (binding.directory() == name).then_some(binding)
    }

    pub(super) fn directory(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.id))
    }
}

// The id alone says where the streams are.
impl PartialEq for Binding {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Hash for Binding {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
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
    pub(crate) fn open_stream(
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

    /// Creates a stream that must not exist. `made` learns at once what it is.
    ///
    /// # Errors
    ///
    /// Then there is no such stream, but [`ShareError::Exists`].
    pub(crate) fn create_stream(
        &self,
        _leave: MayAdd,
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

    /// Takes back a stream that was just made, of which its client did not get everything.
    pub(crate) fn unmake_stream(&self, _leave: MayAdd, entry: &Entry) -> Result<(), ShareError> {
        let base = entry.base().ok_or(ShareError::NotFound)?;
        self.unlink_stream(&base.home, entry.key())
    }

    fn stream_entry(&self, file: &Found, fd: OwnedFd, home: &OwnedFd) -> Result<Entry, ShareError> {
        let stat = metadata::stat(&fd)?;
        let duplicate = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 0);
        let base = Base { file: duplicate(&file.anchor)?, key: file.key, home: duplicate(home)? };
        // The stream lies at the share's top, whatever its file is on.
        let file_system = self.mounts.of_stat(&fd, &stat)?;
        Ok(Entry::of_stream(fd, metadata::key(&stat), file_system, base))
    }

    /// The streams of an open file, its unnamed one aside.
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

    /// Removes the stream an entry stands for. Who has it open keeps its bytes.
    pub(crate) fn remove_stream(&self, _leave: MayRemove, entry: &Entry) -> Result<(), ShareError> {
        let base = entry.base().ok_or(ShareError::NotFound)?;
        self.unlink_stream(&base.home, entry.key())
    }

    /// The same of a stream that was found, and could not be opened.
    pub(crate) fn remove_found_stream(
        &self,
        _leave: MayRemove,
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

    /// Which inode holds the bytes of another stream of the file whose stream an entry stands for.
    pub(crate) fn sibling(
        &self,
        entry: &Entry,
        name: &StreamName,
    ) -> Result<Option<FileKey>, ShareError> {
        let base = entry.base().ok_or(ShareError::NotFound)?;
        let Some(found) = names(&base.home)?.into_iter().find(|found| name.is(found)) else {
            return Ok(None);
        };
        Ok(Some(identify_at(&base.home, stored(&found))?.0))
    }

    /// Gives the stream an entry stands for another name, taking it from what may be replaced.
    ///
    /// # Errors
    ///
    /// Then nothing has changed. [`ShareError::Exists`]: something else has the name.
    pub(crate) fn rename_stream(
        &self,
        _leave: MayRemove,
        entry: &Entry,
        to: &StreamName,
        replace: Option<Replace>,
    ) -> Result<(), ShareError> {
        self.writable()?;
        let base = entry.base().ok_or(ShareError::NotFound)?;
        let _held = self.hold_home(&base.home)?;
        let name = name_of(&base.home, entry.key())?;
        if name == to.as_str() {
            return Ok(());
        }
        let taken = names(&base.home)?.into_iter().find(|found| to.is(found) && *found != name);
        if let Some(taken) = &taken {
            let found = identify_at(&base.home, stored(taken))?.0;
            if replace.is_none_or(|replace| replace.key != found) {
                return Err(ShareError::Exists);
            }
        }
        let _changing = self.changing(&base.home)?;
        let (from, target) = (stored(&name), stored(to.as_str()));
        let is_same = taken.as_deref() == Some(to.as_str());
        let flags = if is_same { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        rustix::fs::renameat_with(&base.home, from, &base.home, target, flags)?;
        // Another spelling of the same name was in the way.
        if let Some(taken) = taken.filter(|_| !is_same) {
            rustix::fs::unlinkat(&base.home, stored(&taken), AtFlags::empty())?;
        }
        Ok(())
    }

    /// Makes a stream the unnamed one of its file: its bytes move there, it is gone, and `entry` is superseded.
    /// Nobody may have the file open, nor anybody else the stream, and nobody may write to it meanwhile.
    ///
    /// # Durability
    ///
    /// The stream goes when its bytes are durable in the file, and the file's name is.
    pub(crate) fn promote_stream(
        &self,
        leave: MayRemove,
        entry: &Entry,
        replace: Option<MayRemove>,
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
        // What was lost of the stream is not called durable in the file.
        persist_file(rustix::io::fcntl_dupfd_cloexec(entry.as_fd(), 0)?)?;
        let size = entry.data_size()?;
        // Where the disk is full it is found out before anything has changed.
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

    /// Which inodes hold the bytes of a file's streams.
    pub(crate) fn stream_keys(&self, file: &Found) -> Result<Vec<FileKey>, ShareError> {
        let Some(home) = self.home(&file.anchor)? else { return Ok(Vec::new()) };
        let key = |name: String| identify_at(&home, stored(&name)).ok().map(|(key, _)| key);
        Ok(names(&home)?.into_iter().filter_map(key).collect())
    }

    /// The name of the stream an entry stands for.
    pub fn stream_name(&self, entry: &Entry) -> Option<String> {
        name_of(&entry.base()?.home, entry.key()).ok()
    }

    /// Removes all streams of a file that is emptied.
    pub(crate) fn clear_streams(&self, _leave: MaySet, entry: &Entry) -> Result<(), ShareError> {
        let Some(home) = self.home(entry.as_fd())? else { return Ok(()) };
        let _held = self.hold_home(&home)?;
        let _changing = self.changing(&home)?;
        for name in names(&home)? {
            rustix::fs::unlinkat(&home, stored(&name), AtFlags::empty())?;
        }
        Ok(())
    }

    /// Removes the streams of a file that is gone. What cannot be removed is nobody's any more.
    pub(super) fn bury_streams(&self, binding: Binding) {
        let directory = binding.directory();
        let Ok(homes) = open_homes(&self.root) else { return };
        let Ok(home) = open_home(&homes, &directory) else { return };
        for name in names(&home).unwrap_or_default() {
            let _ = rustix::fs::unlinkat(&home, stored(&name), AtFlags::empty());
        }
        let _ = rustix::fs::unlinkat(&homes, directory.as_str(), AtFlags::REMOVEDIR);
    }

    // Streams get and lose no names but by who holds this.
    fn hold_home(&self, home: &OwnedFd) -> Result<HeldNames<'_>, ShareError> {
        Ok(self.name_locks.hold([identify(home)?.0]))
    }

    /// Whether a file or directory has any.
    pub(super) fn has_streams(&self, file: impl AsFd) -> Result<bool, ShareError> {
        let Some(home) = self.home(file)? else { return Ok(false) };
        Ok(!names(&home)?.is_empty())
    }

    fn home(&self, file: impl AsFd) -> Result<Option<OwnedFd>, ShareError> {
        let Some(binding) = Binding::of(file)? else { return Ok(None) };
        let homes = open_homes(&self.root);
        match homes.and_then(|homes| open_home(&homes, &binding.directory())) {
            Ok(home) => Ok(Some(home)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(from_resolution(errno)),
        }
    }

    /// Takes the directory of all of them from other local users, as servers before have left it to them.
    pub(super) fn close_homes(&self) -> Result<(), Errno> {
        let homes = match open_homes(&self.root) {
            Err(Errno::NOENT) => return Ok(()),
            homes => homes?,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::fchmod(rustix::fs::openat(homes, ".", flags, Mode::empty())?, HOME_MODE)
    }

    /// The directory of all of them, made if need be.
    pub(super) fn homes(&self) -> Result<OwnedFd, ShareError> {
        match rustix::fs::mkdirat(&self.root, HOME, HOME_MODE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        open_homes(&self.root).map_err(from_resolution)
    }

    // Of two requests for the first stream of a file the second finds what the first has made.
    fn first_home(&self, file: impl AsFd) -> Result<OwnedFd, ShareError> {
        let _held = self.name_locks.hold([identify(&file)?.0]);
        match self.home(&file)? {
            Some(home) => Ok(home),
            None => self.make_home(file),
        }
    }

    // The directory first: a crash leaves one that is empty and nobody's, never a file that names
    // what is not there.
    fn make_home(&self, file: impl AsFd) -> Result<OwnedFd, ShareError> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|_| ShareError::HandlesExhausted)?;
        let (key, _) = identify(&file)?;
        let binding = Binding { inode: key.inode, id };
        let homes = self.homes()?;
        let _changing = (self.changing(&self.root)?, self.changing(&homes)?);
        let directory = binding.directory();
        rustix::fs::mkdirat(&homes, directory.as_str(), HOME_MODE)?;
        let home = open_home(&homes, &directory)?;
        let set = |flags| rustix::fs::setxattr(proc_name(&file), BINDING, &binding.emit(), flags);
        let bind = || match set(XattrFlags::CREATE) {
            // What another inode's binding says is nobody's. Else another share that lies above or below has made
            // it, where this one does not look.
            Err(Errno::EXIST) => match Binding::of(&file)? {
                None => Ok(set(XattrFlags::REPLACE)?),
                Some(_) => Err(ShareError::PeerStreamUnsupported),
            },
            other => Ok(other?),
        };
        if let Err(error) = bind() {
            let _ = rustix::fs::unlinkat(&homes, directory.as_str(), AtFlags::REMOVEDIR);
            return Err(error);
        }
        Ok(home)
    }
}

pub(super) fn open_homes(root: &OwnedFd) -> Result<OwnedFd, Errno> {
    open_home(root, HOME)
}

// Never through a link, whatever a local user put there.
fn open_home(above: &OwnedFd, directory: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    open_beneath(above, directory, flags, Mode::empty())
}

// By inode: the stream may have been renamed through another handle.
fn name_of(home: &OwnedFd, key: FileKey) -> Result<String, ShareError> {
    let is_it =
        |name: &String| identify_at(home, stored(name)).is_ok_and(|(found, _)| found == key);
    names(home)?.into_iter().find(is_it).ok_or(ShareError::NotFound)
}

// Names of streams, in no order.
fn names(home: &OwnedFd) -> Result<Vec<String>, ShareError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut stream = rustix::fs::Dir::new(rustix::fs::openat(home, ".", flags, Mode::empty())?)?;
    let mut names = Vec::new();
    while let Some(entry) = stream.read() {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        names.extend(name.strip_prefix(MARK).map(str::to_owned));
    }
    Ok(names)
}

// The mark keeps names like ".." from being what they look like.
fn stored(name: &str) -> String {
    format!("{MARK}{name}")
}

/// The directory of all streams of a share, at its top. No client can name it.
pub(super) const HOME: &str = ".landfast-streams";
/// Descriptors of an open stream: its own, its file's, that of the directory of its streams.
pub(crate) const STREAM_DESCRIPTORS: usize = 3;
const BINDING: &str = "user.landfast.streams";
const BINDING_LEN: usize = 32;
const VERSION: u32 = 1;
const MARK: char = ':';
/// Streams of one file; a list of as many of the longest names still fits one answer.
const STREAMS_MAX: usize = 1024;
const STREAM_MODE: Mode = Mode::from_raw_mode(0o666);
// The server's alone: a stream is no more readable than its file, whose mode it does not have.
const HOME_MODE: Mode = Mode::from_raw_mode(0o700);

/// The file's xattr says that the streams in directory 7 are those of `inode`.
#[cfg(test)]
pub(super) fn bind_to(file: &std::path::Path, inode: u64) {
    let binding = Binding { inode, id: 7_u128.to_be_bytes() };
    rustix::fs::setxattr(file, BINDING, &binding.emit(), XattrFlags::empty()).unwrap();
}

/// The kernel hands out the file's xattr with an error: no buffer of ours is large enough.
#[cfg(test)]
pub(super) fn set_unreadable(file: &std::path::Path) {
    rustix::fs::setxattr(file, BINDING, &[0; 64], XattrFlags::empty()).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::{DosAttributes, ShareConfig, SharePath};

    #[test]
    fn the_binding_has_the_bytes_of_its_map() {
        let binding = Binding { inode: 0x0102, id: [7; 16] };
        let mut golden = vec![1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
        golden.extend_from_slice(&[7; 16]);
        assert_eq!(binding.emit(), golden[..]);
        assert_eq!(Binding::parse(&golden), Some(binding));
        assert_eq!(Binding::parse(&golden[..31]), None);
        assert_eq!(binding.directory(), "07070707070707070707070707070707");
    }

    #[test]
    fn an_xattr_that_cannot_be_read_is_not_taken_for_none() {
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
