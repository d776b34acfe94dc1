//! A walk through all files of a share: which homes of streams they name, and which parts of the tree were read in full.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::covered;
use super::listing::{entries, open_directory};
use crate::binding::Binding;
use crate::disk_clock;
use crate::error::ShareError;
use crate::inode::{FileKey, identify, identify_at};
use crate::mounted_part::{Mount, MountedPart};
use crate::name::HOME;

/// A directory as a walk found it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Seen {
    key: FileKey,
    modified: Duration,
    changed: Duration,
}

impl Seen {
    fn of(directory: &OwnedFd) -> Result<Self, ShareError> {
        let (key, _) = identify(directory)?;
        let wanted = StatxFlags::MTIME | StatxFlags::CTIME;
        let stat = rustix::fs::statx(directory, "", AtFlags::EMPTY_PATH, wanted)?;
        let time = |time: rustix::fs::StatxTimestamp| since_epoch(time.tv_sec, time.tv_nsec.into());
        Ok(Self { key, modified: time(stat.stx_mtime), changed: time(stat.stx_ctime) })
    }
}

#[derive(Debug, Default)]
pub(super) struct Walk {
    /// By path from the root.
    directories: HashMap<OsString, Seen>,
    /// The homes that files of the tree name as their own.
    pub(super) bound: HashSet<Binding>,
    /// Those that others name: copies, and files that a backup was restored to.
    pub(super) named: HashSet<Binding>,
    /// What was read, with the mount that shows it.
    parts: Vec<(Mount, MountedPart)>,
    /// The mounts of which not everything was read: something is mounted over it.
    in_part: HashSet<Mount>,
    /// When the first directory was read.
    began: Duration,
}

impl Walk {
    pub(super) fn through(root: &OwnedFd) -> Result<Self, ShareError> {
        let began = disk_clock::since_epoch();
        let mut walk = Self { began, ..Self::default() };
        let mut met = HashSet::new();
        let mut left = vec![(OsString::from("."), None)];
        while let Some((path, mount_above)) = left.pop() {
            let directory = match open_directory(root, path.as_os_str()) {
                Ok(directory) => directory,
                // Removed or renamed since its name was read: its parent has changed.
                Err(ShareError::NotFound | ShareError::PathNotFound) => continue,
                Err(error) => return Err(error),
            };
            // Before the directory is read: a change during the read is detected.
            let seen = Seen::of(&directory)?;
            let mount = Mount::of(&directory)?;
            if mount_above != Some(mount) {
                walk.enter(mount, &directory)?;
            }
            if let Some(above) = mount_above.filter(|above| *above != mount) {
                walk.read_covered(root, above, &path)?;
            }
            // By each mount once: what hides a directory by one of them does not by another.
            if met.insert((mount, seen.key)) {
                walk.read(&directory, mount, &path, &mut left)?;
            }
            walk.directories.insert(path, seen);
        }
        Ok(walk)
    }

    fn read(
        &mut self,
        directory: &OwnedFd,
        mount: Mount,
        path: &OsStr,
        left: &mut Vec<(OsString, Option<Mount>)>,
    ) -> Result<(), ShareError> {
        self.note(directory)?;
        for name in entries(directory)? {
            if path == "." && name.as_bytes() == HOME.as_bytes() {
                continue;
            }
            match identify_at(directory, name.as_c_str()) {
                Ok((_, FileType::Directory)) => {
                    let below = [path.as_bytes(), b"/", name.as_bytes()].concat();
                    left.push((OsString::from_vec(below), Some(mount)));
                }
                Ok((_, FileType::RegularFile)) => self.read_file(directory, mount, &name)?,
                // Links, sockets, devices have no streams.
                Ok(_) | Err(ShareError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read_file(
        &mut self,
        directory: &OwnedFd,
        mount: Mount,
        name: &CString,
    ) -> Result<(), ShareError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(directory, name.as_c_str(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        // A file can be mounted alone.
        let own = Mount::of(&file)?;
        if own != mount {
            self.enter(own, &file)?;
            self.show_covered(directory, mount, name);
        }
        self.note(&file)
    }

    fn enter(&mut self, mount: Mount, topmost: impl AsFd) -> Result<(), ShareError> {
        let part = MountedPart::from_topmost(topmost)?;
        self.parts.extend(part.map(|part| (mount, part)));
        Ok(())
    }

    // What is mounted at `path` covers something of the mount `above`.
    fn read_covered(
        &mut self,
        root: &OwnedFd,
        above: Mount,
        path: &OsStr,
    ) -> Result<(), ShareError> {
        let Some(at) = path.as_bytes().iter().rposition(|byte| *byte == b'/') else {
            return Ok(());
        };
        let (directory, name) = path.as_bytes().split_at(at);
        let directory = open_directory(root, OsStr::from_bytes(directory))?;
        let name = CString::new(&name[1..]).expect("a name that was read");
        self.show_covered(&directory, above, &name);
        Ok(())
    }

    fn show_covered(&mut self, directory: &OwnedFd, mount: Mount, name: &CString) {
        if covered::show(directory, name, |found| self.note(found)).is_err() {
            self.in_part.insert(mount);
        }
    }

    // Whether every file of a part was seen.
    pub(super) fn has_read(&self, part: &MountedPart) -> bool {
        let mut read = self.parts.iter().filter(|(mount, _)| !self.in_part.contains(mount));
        read.any(|(_, read)| read.is(part))
    }

    fn note(&mut self, file: impl AsFd) -> Result<(), ShareError> {
        let Some(binding) = Binding::named_by(&file)? else { return Ok(()) };
        let homes = if binding.is_of(file)? { &mut self.bound } else { &mut self.named };
        homes.insert(binding);
        Ok(())
    }

    // A directory that was changed just before it was read may have been changed again in the same
    // tick of the kernel's clock.
    pub(super) fn is_still_true(&self, root: &OwnedFd, settled: Duration) -> bool {
        self.directories.iter().all(|(path, seen)| {
            let now =
                open_directory(root, path.as_os_str()).and_then(|directory| Seen::of(&directory));
            now.is_ok_and(|now| now == *seen) && seen.changed + settled <= self.began
        })
    }
}

pub(super) fn since_epoch(seconds: i64, nanoseconds: i64) -> Duration {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Duration::new(seconds, u32::try_from(nanoseconds).unwrap_or(0))
}
