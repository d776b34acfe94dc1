//! Streams whose file was removed by a local program: finding and removing them, while the share is
//! served or not.
//!
//! ```text
//!   all homes --> walk of the tree: which are bound? --> has any directory changed? --> remove
//!  (old ones only)              ^                                   | yes                  the rest
//!                               +-----------------------------------+ a few times, then give up
//! ```
//!
//! The streams do not name their file, so every file of the tree is read. A file that is moved
//! meanwhile could be missed in both places; the move changes both directories. If after a walk every
//! directory is as the walk found it, every file that existed all the time was seen. A home made
//! meanwhile is younger than the walk and stays.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use thiserror::Error;

use super::Share;
use super::binding::Binding;
use super::disk_clock;
use super::error::ShareError;
use super::inode::{FileKey, identify, identify_at};
use super::lookup::open_beneath;
use super::name::HOME;

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Swept {
    /// Files and directories that have streams.
    pub bound: usize,
    /// Homes of streams that belonged to no file.
    pub orphans: usize,
    /// Bytes their streams held.
    pub bytes: u64,
}

/// Why no streams were removed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SweepError {
    /// A part of the tree cannot be read, so streams may be bound there.
    #[error("the tree cannot be read in full: {0}")]
    Tree(#[from] ShareError),
    /// Names were moved during every walk.
    #[error("names change all the time: try again when less is going on")]
    Busy,
}

impl Share {
    /// Removes streams that belong to no file of the share any more; with `dry` only counts them.
    ///
    /// # Errors
    /// Then nothing was removed. May take long: every file is read.
    pub fn sweep_streams(&self, dry: bool) -> Result<Swept, SweepError> {
        self.sweep(dry, YOUNG, SETTLED)
    }

    fn sweep(&self, dry: bool, young: Duration, settled: Duration) -> Result<Swept, SweepError> {
        if !dry {
            self.writable()?;
        }
        let candidates = self.homes_older_than(young)?;
        if candidates.is_empty() {
            return Ok(Swept::default());
        }
        let bound = self.bound(settled)?;
        let mut swept = Swept { bound: bound.len(), ..Swept::default() };
        for home in candidates.into_iter().filter(|home| !bound.contains(home)) {
            swept.orphans += 1;
            swept.bytes += self.bytes_of(home);
            if !dry {
                self.bury_streams(home);
            }
        }
        Ok(swept)
    }

    fn bytes_of(&self, home: Binding) -> u64 {
        let path = format!("{HOME}/{}", home.directory());
        let Ok(home) = open_directory(&self.root, &path) else { return 0 };
        let names = entries(&home).unwrap_or_default();
        let size = |name: &String| {
            let stat = rustix::fs::statat(&home, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
            u64::try_from(stat.st_size).ok()
        };
        names.iter().filter_map(size).sum()
    }

    // A home is made a moment before its file is bound to it.
    fn homes_older_than(&self, young: Duration) -> Result<Vec<Binding>, ShareError> {
        let homes = match open_directory(&self.root, HOME) {
            Ok(homes) => homes,
            Err(ShareError::NotFound) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let before = disk_clock::since_epoch().saturating_sub(young);
        let mut old = Vec::new();
        for name in entries(&homes)? {
            let Some(binding) = Binding::of_directory(&name) else { continue };
            let stat = rustix::fs::statat(&homes, name.as_str(), AtFlags::SYMLINK_NOFOLLOW)?;
            let changed =
                since_epoch(stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(0));
            if changed <= before {
                old.push(binding);
            }
        }
        Ok(old)
    }

    // The homes that files of the tree name as their own.
    fn bound(&self, settled: Duration) -> Result<HashSet<Binding>, SweepError> {
        for attempt in 0..WALKS_MAX {
            if attempt > 0 {
                std::thread::sleep(settled);
            }
            let walk = Walk::through(&self.root)?;
            if walk.is_still_true(&self.root, settled) {
                return Ok(walk.bound);
            }
        }
        Err(SweepError::Busy)
    }
}

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
struct Walk {
    /// By path from the root.
    directories: HashMap<String, Seen>,
    bound: HashSet<Binding>,
    /// When the first directory was read.
    began: Duration,
}

impl Walk {
    fn through(root: &OwnedFd) -> Result<Self, ShareError> {
        let began = disk_clock::since_epoch();
        let mut walk = Self { began, ..Self::default() };
        let mut met = HashSet::new();
        let mut left = vec![String::from(".")];
        while let Some(path) = left.pop() {
            let directory = match open_directory(root, &path) {
                Ok(directory) => directory,
                // Removed or renamed since its name was read: its parent has changed.
                Err(ShareError::NotFound | ShareError::PathNotFound) => continue,
                Err(error) => return Err(error),
            };
            // Before the directory is read: a change during the read is detected.
            let seen = Seen::of(&directory)?;
            // A directory mounted below itself would make the walk endless.
            if met.insert(seen.key) {
                walk.read(&directory, &path, &mut left)?;
            }
            walk.directories.insert(path, seen);
        }
        Ok(walk)
    }

    fn read(
        &mut self,
        directory: &OwnedFd,
        path: &str,
        left: &mut Vec<String>,
    ) -> Result<(), ShareError> {
        self.bound.extend(Binding::of(directory)?);
        for name in entries(directory)? {
            if path == "." && name == HOME {
                continue;
            }
            match identify_at(directory, name.as_str()) {
                Ok((_, FileType::Directory)) => left.push(format!("{path}/{name}")),
                Ok((_, FileType::RegularFile)) => {
                    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    match rustix::fs::openat(directory, name.as_str(), flags, Mode::empty()) {
                        Ok(file) => self.bound.extend(Binding::of(file)?),
                        Err(Errno::NOENT) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                // Links, sockets, devices have no streams.
                Ok(_) | Err(ShareError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    // A directory that was changed just before it was read may have been changed again in the same
    // tick of the kernel's clock.
    fn is_still_true(&self, root: &OwnedFd, settled: Duration) -> bool {
        self.directories.iter().all(|(path, seen)| {
            let now = open_directory(root, path).and_then(|directory| Seen::of(&directory));
            now.is_ok_and(|now| now == *seen) && seen.changed + settled <= self.began
        })
    }
}

fn since_epoch(seconds: i64, nanoseconds: i64) -> Duration {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Duration::new(seconds, u32::try_from(nanoseconds).unwrap_or(0))
}

fn open_directory(root: &OwnedFd, path: &str) -> Result<OwnedFd, ShareError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    Ok(open_beneath(root, path, flags, Mode::empty())?)
}

// Only Unicode names: no client made another name, so no other file has streams of this server.
fn entries(directory: impl AsFd) -> Result<Vec<String>, ShareError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    let mut stream = rustix::fs::Dir::new(fd)?;
    while let Some(entry) = stream.read() {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// The file of a home as young as this may be about to be bound.
const YOUNG: Duration = Duration::from_secs(60);
/// Many times longer than a tick of the kernel's clock of inodes.
const SETTLED: Duration = Duration::from_secs(1);
const WALKS_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding;
    use crate::rights::given::MayAdd;
    use crate::{DosAttributes, ShareConfig, SharePath, StreamName, StreamPart};

    const NOW: Duration = Duration::ZERO;

    fn stream_name() -> StreamName {
        match StreamPart::parse(Some("s")).unwrap() {
            StreamPart::Named(name) => name,
            other => panic!("{other:?}"),
        }
    }

    fn with_stream(share: &Share, name: &str) {
        let path = SharePath::parse(name).unwrap();
        share.create_file(MayAdd::TEST, &path, DosAttributes::default()).unwrap();
        let found = share.locate(&path).unwrap().found.unwrap();
        share
            .create_stream(MayAdd::TEST, &found, &stream_name(), |_| ())
            .unwrap()
            .write_at(&[7; 100], 0)
            .unwrap();
    }

    fn has_stream(share: &Share, name: &str) -> bool {
        let found = share.locate(&SharePath::parse(name).unwrap()).unwrap().found.unwrap();
        share.find_stream(&found, &stream_name()).unwrap().is_some()
    }

    fn homes(dir: &tempfile::TempDir) -> usize {
        std::fs::read_dir(dir.path().join(HOME)).unwrap().count()
    }

    #[test]
    fn a_sweep_removes_only_streams_of_locally_removed_files() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        std::fs::create_dir_all(dir.path().join("deep/er")).unwrap();
        for name in ["stays", "goes", "deep\\er\\stays", "moves"] {
            with_stream(&share, name);
        }
        std::fs::remove_file(dir.path().join("goes")).unwrap();
        std::fs::rename(dir.path().join("moves"), dir.path().join("deep/moved")).unwrap();
        assert_eq!(share.sweep(false, YOUNG, NOW), Ok(Swept::default()), "all are young");
        let found = Swept { bound: 3, orphans: 1, bytes: 100 };
        assert_eq!(share.sweep(true, NOW, NOW), Ok(found));
        assert_eq!(homes(&dir), 4, "only counted");
        assert_eq!(share.sweep(false, NOW, NOW), Ok(found));
        assert_eq!(homes(&dir), 3);
        for name in ["stays", "deep\\er\\stays", "deep\\moved"] {
            assert!(has_stream(&share, name), "{name}");
        }
        assert_eq!(share.sweep(false, NOW, NOW), Ok(Swept { bound: 3, ..Swept::default() }));
    }

    #[test]
    fn a_sweep_removes_nothing_if_a_directory_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        with_stream(&share, "f");
        binding::set_unreadable(&dir.path().join("f"));
        assert!(matches!(share.sweep(false, NOW, NOW), Err(SweepError::Tree(_))));
        assert_eq!(homes(&dir), 1);
    }

    #[test]
    fn a_walk_disturbed_by_a_move_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        with_stream(&share, "f");
        let walk = Walk::through(&share.root).unwrap();
        assert!(walk.is_still_true(&share.root, NOW));
        assert!(!walk.is_still_true(&share.root, Duration::from_secs(3600)), "just changed");
        std::fs::rename(dir.path().join("f"), dir.path().join("a/f")).unwrap();
        assert!(!walk.is_still_true(&share.root, NOW));
    }
}
