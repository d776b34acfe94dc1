//! The directories of streams: one for each file that has streams, in a directory at the share's
//! top.
//!
//! ```text
//!  .landfast-streams/<id>/:<name of the stream>
//!           |          +-- the home of one file's streams; its binding names the id
//!           +------------- all homes, and the directory of new links; for the server alone
//! ```
//!
//! No client can name the directory, at any depth. Only the file names its home, see `crate::binding`.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use super::Share;
use super::binding::Binding;
use super::error::{ShareError, from_resolution};
use super::inode::identify;
use super::lookup::open_beneath;
use super::mounted_part::MountedPart;
use super::name::HOME;
use super::name_locks::HeldNames;

impl Share {
    /// The directory of the streams of a file, if it has any.
    pub(super) fn home(&self, file: impl AsFd) -> Result<Option<OwnedFd>, ShareError> {
        let Some(binding) = Binding::of(file)? else { return Ok(None) };
        let homes = open_homes(&self.root);
        match homes.and_then(|homes| open_home(&homes, &binding.directory())) {
            Ok(home) => Ok(Some(home)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(from_resolution(errno)),
        }
    }

    /// The same for a file without streams; makes the home if necessary. Of two requests for the first stream of a
    /// file, the second finds the home that the first has made.
    pub(super) fn first_home(&self, file: impl AsFd) -> Result<OwnedFd, ShareError> {
        let _held = self.name_locks.hold([identify(&file)?.0]);
        match self.home(&file)? {
            Some(home) => Ok(home),
            None => self.make_home(file),
        }
    }

    // The directory first: a crash leaves an empty directory without a file, never a file that
    // names a missing directory.
    fn make_home(&self, file: impl AsFd) -> Result<OwnedFd, ShareError> {
        let binding = Binding::new(&file, &self.environment.random)?;
        let homes = self.homes()?;
        let _changing = (self.changing(&self.root)?, self.changing(&homes)?);
        let directory = binding.directory();
        rustix::fs::mkdirat(&homes, directory.as_str(), HOME_MODE)?;
        let home = open_home(&homes, &directory)?;
        let bind = || match binding.set(&file, XattrFlags::CREATE) {
            // A binding of another inode names no file. Otherwise another share above or below has made the home,
            // where this share does not look.
            Err(Errno::EXIST) => match Binding::of(&file)? {
                None => Ok(binding.set(&file, XattrFlags::REPLACE)?),
                Some(_) => Err(ShareError::PeerStreamUnsupported),
            },
            other => Ok(other?),
        };
        // Before the file is bound: a sweep goes by the note.
        let note = || match MountedPart::of_file(&self.root, &file)? {
            Some(part) => part.note(&home),
            None => Ok(()),
        };
        if let Err(error) = note().and_then(|()| bind()) {
            let _ = rustix::fs::unlinkat(&homes, directory.as_str(), AtFlags::REMOVEDIR);
            return Err(error);
        }
        Ok(home)
    }

    /// Takes the directory of all homes from other local users, to whom earlier servers left it.
    pub(super) fn close_homes(&self) -> Result<(), Errno> {
        let homes = match open_homes(&self.root) {
            Err(Errno::NOENT) => return Ok(()),
            homes => homes?,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::fchmod(rustix::fs::openat(homes, ".", flags, Mode::empty())?, HOME_MODE)
    }

    /// The directory of all homes; makes it if necessary.
    pub(super) fn homes(&self) -> Result<OwnedFd, ShareError> {
        match rustix::fs::mkdirat(&self.root, HOME, HOME_MODE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        open_homes(&self.root).map_err(from_resolution)
    }

    /// Only the holder of this lock gives or removes names of streams.
    pub(super) fn hold_home(&self, home: &OwnedFd) -> Result<HeldNames<'_>, ShareError> {
        Ok(self.name_locks.hold([identify(home)?.0]))
    }

    /// The part of the tree in which the file of these streams lies, if their home notes it.
    pub(super) fn part_of_home(&self, binding: Binding) -> Option<MountedPart> {
        let home = open_home(&open_homes(&self.root).ok()?, &binding.directory()).ok()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        MountedPart::noted(rustix::fs::openat(home, ".", flags, Mode::empty()).ok()?)
    }

    /// Removes the streams of a file that is gone. Streams that cannot be removed belong to no file
    /// any more.
    pub(super) fn bury_streams(&self, binding: Binding) {
        let directory = binding.directory();
        let Ok(homes) = open_homes(&self.root) else { return };
        let Ok(home) = open_home(&homes, &directory) else { return };
        for name in names(&home).unwrap_or_default() {
            let _ = rustix::fs::unlinkat(&home, stored(&name), AtFlags::empty());
        }
        let _ = rustix::fs::unlinkat(&homes, directory.as_str(), AtFlags::REMOVEDIR);
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

/// Names of streams, in no order.
pub(super) fn names(home: &OwnedFd) -> Result<Vec<String>, ShareError> {
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

/// The name of a stream on the disk: the mark in front keeps names like ".." from having their special
/// meaning.
pub(super) fn stored(name: &str) -> String {
    format!("{MARK}{name}")
}

const MARK: char = ':';
// For the server alone: a stream must not be more readable than its file, whose mode it does not
// have.
const HOME_MODE: Mode = Mode::from_raw_mode(0o700);
