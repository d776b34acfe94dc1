//! Finding what a path names: exactly as written first, then ignoring case.
//!
//! Every step is an `openat2` from the share's root with RESOLVE_BENEATH and
//! RESOLVE_NO_MAGICLINKS: neither a component nor a symbolic link leads outside, whatever a
//! local user does to the tree meanwhile.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

use super::device::{Device, Devices};
use super::error::{ShareError, from_resolution};
use super::metadata::{self, FileKey};
use super::name::{Naming, SharePath, is_presentable};
use super::names::{Answer, NAMES_MIN, Names, Reading};
use super::pattern::same_name;
use super::short::{self, short_name};

/// Where a path leads.
#[derive(Debug)]
pub struct Located {
    /// The path in the spelling found on disk; what is missing keeps the peer's spelling.
    pub path: SharePath,
    /// The object itself, if it exists.
    pub found: Option<Found>,
}

/// An object that exists: an anchor to open it from, race-free.
#[derive(Debug)]
pub struct Found {
    pub(super) anchor: OwnedFd,
    pub(super) stat: Box<Statx>,
    /// Which inode.
    pub key: FileKey,
    /// A directory, else a file.
    pub is_directory: bool,
    /// A symbolic link that is meant itself: only under a POSIX name.
    pub is_link: bool,
    /// The device a file is, if it is one.
    pub(super) device: Option<Arc<Device>>,
}

/// How far a look-up goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reach {
    /// Wherever the path leads inside the share. May block.
    Everywhere,
    /// Not into what is mounted below the share's top, nor through a large directory whose names are not known.
    TopFileSystem,
}

impl Reach {
    /// Whether what is done may take long.
    pub(crate) fn may_wait(self) -> bool {
        self == Self::Everywhere
    }

    // How many names of one directory may be compared.
    fn names_max(self) -> usize {
        if self.may_wait() { usize::MAX } else { NAMES_MIN }
    }

    fn resolve(self) -> ResolveFlags {
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match self {
            Self::Everywhere => within,
            Self::TopFileSystem => within | ResolveFlags::NO_XDEV,
        }
    }

    // `openat2` says the same of a mount as of a way out of the share: who may go everywhere finds out.
    fn failed(self, errno: Errno) -> ShareError {
        match (self, errno) {
            (Self::TopFileSystem, Errno::XDEV) => ShareError::WouldBlock,
            _ => from_resolution(errno),
        }
    }
}

/// Opens `path` below `root` without ever leaving it.
pub(super) fn open_beneath(
    root: &OwnedFd,
    path: &str,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    open_within(root, path, flags, mode, Reach::Everywhere)
}

fn open_within(
    root: &OwnedFd,
    path: &str,
    flags: OFlags,
    mode: Mode,
    reach: Reach,
) -> Result<OwnedFd, Errno> {
    let resolve = reach.resolve();
    // EAGAIN: a rename elsewhere in the tree made the kernel unsure of BENEATH; it asks for
    // another try, and a bounded number of them cannot be used to hold a worker.
    for _ in 0..RACE_RETRIES_MAX {
        match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    Err(Errno::ACCESS)
}

/// Whether the kernel has each step to what `path` names in memory, and nothing is mounted on the way.
pub(super) fn is_cached(root: &OwnedFd, path: &SharePath) -> bool {
    let resolve = Reach::TopFileSystem.resolve() | ResolveFlags::CACHED;
    let flags = anchor_flags(path) | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path.for_system(), flags, Mode::empty(), resolve).is_ok()
}

/// Whether what `path` names, or the directory it would be in, lies on the file system of the share's top,
/// with nothing mounted on the way.
pub(super) fn is_on_top(root: &OwnedFd, path: &SharePath) -> bool {
    let open = |path: &SharePath| {
        let (text, flags) = (path.for_system(), anchor_flags(path));
        open_within(root, text, flags, Mode::empty(), Reach::TopFileSystem)
    };
    match open(path) {
        Ok(_) => true,
        Err(Errno::NOENT) if !path.is_root() => open(&path.parent()).is_ok(),
        Err(_) => false,
    }
}

/// Looks `path` up.
pub(super) fn locate(
    root: &OwnedFd,
    names: &Names,
    devices: &Devices,
    path: &SharePath,
    reach: Reach,
) -> Result<Located, ShareError> {
    let anchor = |path: &SharePath| anchor(root, devices, path, reach);
    if let Some(found) = anchor(path)? {
        return Ok(Located { path: path.clone(), found: Some(found) });
    }
    if path.naming() == Naming::Posix {
        let parent = if path.is_root() { None } else { anchor(&path.parent())? };
        return match parent {
            Some(parent) if parent.is_directory => Ok(Located { path: path.clone(), found: None }),
            _ => Err(ShareError::PathNotFound),
        };
    }
    let mut spelled = SharePath::root();
    let count = path.components().count();
    for (index, component) in path.components().enumerate() {
        let is_leaf = index + 1 == count;
        match spelling(root, names, &spelled, component, reach)? {
            Some(actual) if is_leaf && !same_name(&actual, component) => {
                spelled = spelled.join(&actual).by_short_name();
            }
            Some(actual) => spelled = spelled.join(&actual),
            None if is_leaf => {
                return Ok(Located { path: spelled.join(component), found: None });
            }
            None => return Err(ShareError::PathNotFound),
        }
    }
    let found = anchor(&spelled)?;
    Ok(Located { path: spelled, found })
}

fn anchor(
    root: &OwnedFd,
    devices: &Devices,
    path: &SharePath,
    reach: Reach,
) -> Result<Option<Found>, ShareError> {
    match open_within(root, path.for_system(), anchor_flags(path), Mode::empty(), reach) {
        Ok(anchor) => Found::new(anchor, devices).map(Some),
        // ENOTDIR: a file stands where a directory should; the component walk says which.
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(reach.failed(errno)),
    }
}

fn anchor_flags(path: &SharePath) -> OFlags {
    match path.naming() {
        Naming::Windows => OFlags::PATH,
        Naming::Posix => OFlags::PATH | OFlags::NOFOLLOW,
    }
}

impl Found {
    fn new(anchor: OwnedFd, devices: &Devices) -> Result<Self, ShareError> {
        let stat = metadata::stat(&anchor)?;
        let (key, kind) = (metadata::key(&stat), metadata::kind(&stat));
        let device = match kind {
            FileType::RegularFile | FileType::Directory | FileType::Symlink => None,
            FileType::CharacterDevice => Some(devices.behind(&anchor)?),
            _ => return Err(ShareError::SpecialFile),
        };
        let (is_directory, is_link) = (kind == FileType::Directory, kind == FileType::Symlink);
        Ok(Self { anchor, stat: Box::new(stat), key, is_directory, is_link, device })
    }

    /// A file that is a device: it has one length, and nothing but bytes.
    pub fn is_device(&self) -> bool {
        self.device.is_some()
    }
}

// How `wanted` is spelled in `directory`: as asked if that exists, else the first entry that
// differs in case only, else one whose short name it is.
fn spelling(
    root: &OwnedFd,
    names: &Names,
    directory: &SharePath,
    wanted: &str,
    reach: Reach,
) -> Result<Option<String>, ShareError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
    let dir = match open_within(root, directory.for_system(), flags, Mode::empty(), reach) {
        Ok(dir) => dir,
        Err(Errno::NOTDIR | Errno::NOENT) => return Err(ShareError::PathNotFound),
        Err(errno) => return Err(reach.failed(errno)),
    };
    match rustix::fs::statx(&dir, wanted, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE) {
        Ok(_) => return Ok(Some(wanted.to_owned())),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(from_resolution(errno)),
    }
    let is_made = short::is_made(wanted);
    match names.find(&dir, wanted) {
        Answer::Spelled(spelling) => return Ok(Some(spelling)),
        Answer::Absent if !is_made => return Ok(None),
        Answer::Absent | Answer::Unknown => {}
    }
    let mut reading = names.begin(&dir);
    let mut left = reach.names_max();
    let mut entries = rustix::fs::Dir::new(dir)?;
    let short = is_made.then(|| wanted.to_ascii_uppercase());
    let (mut by_name, mut by_short) = (None, None);
    while let Some(entry) = entries.read() {
        let entry = entry?;
        left = left.checked_sub(1).ok_or(ShareError::WouldBlock)?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if !is_presentable(name) {
            continue;
        }
        if let Some(reading) = &mut reading {
            reading.note(name);
        }
        if same_name(name, wanted) {
            by_name.get_or_insert_with(|| name.to_owned());
            // Who has read so many names reads the rest too, so that the next one is known.
            if !reading.as_ref().is_some_and(Reading::is_worth_it) {
                break;
            }
        }
        // A real name counts before another one's short name.
        if short.as_deref().is_some_and(|short| short_name(name) == short) {
            by_short = Some(name.to_owned());
        }
    }
    if by_name.is_none() || reading.as_ref().is_some_and(Reading::is_worth_it) {
        reading.into_iter().for_each(|reading| names.keep(reading));
    }
    Ok(by_name.or(by_short))
}

/// How often a lookup is repeated because the tree changed under it.
const RACE_RETRIES_MAX: usize = 16;
