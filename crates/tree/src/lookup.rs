//! Finds the object of a path: exactly as written first, then ignoring case.
//!
//! Every step is an `openat2` from the share's root with RESOLVE_BENEATH and RESOLVE_NO_MAGICLINKS:
//! neither a component nor a symbolic link leads outside, whatever a local user does to the tree
//! meanwhile.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use super::body::Body;
use super::devices::Devices;
use super::error::{ShareError, from_resolution};
use super::inode::{self, FileKey};
use super::limits::LEVELS_INLINE_MAX;
use super::name::{Naming, SharePath, is_presentable};
use super::names::{Answer, NAMES_MIN, Names, Reading};
use super::pattern::same_name;
use super::short::{self, short_name};

/// The result of a look-up.
#[derive(Debug)]
pub struct Located {
    /// The path in the spelling on disk; missing components keep the peer's spelling.
    pub path: SharePath,
    /// The object itself, if it exists.
    pub found: Option<Found>,
}

/// An object that exists: an anchor to open it without a race.
#[derive(Debug)]
pub struct Found {
    pub(super) anchor: OwnedFd,
    pub(super) stat: Box<Statx>,
    /// The inode.
    pub key: FileKey,
    /// A directory, else a file.
    pub is_directory: bool,
    /// A symbolic link that is meant itself: only by a POSIX name.
    pub is_link: bool,
    /// The bytes, if the file is a device.
    pub(super) device: Option<Arc<dyn Body>>,
}

/// How far a look-up goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reach {
    /// Wherever the path leads inside the share, through any number of names. May block, and may occupy a core for
    /// long.
    Everywhere,
    /// Wherever the path leads inside the share, through few names in another spelling. May block.
    FewNames,
    /// Through few names in another spelling, and not into file systems mounted below the share's top.
    TopFileSystem,
}

impl Reach {
    /// Whether the look-up may take long.
    pub fn may_wait(self) -> bool {
        self != Self::TopFileSystem
    }

    /// The next greater reach, for a look-up that has not ended.
    pub fn farther(self) -> Self {
        match self {
            Self::TopFileSystem => Self::FewNames,
            Self::FewNames | Self::Everywhere => Self::Everywhere,
        }
    }

    // The budget for all components of a path together.
    fn budget(self) -> Budget {
        match self {
            Self::Everywhere => Budget { names: usize::MAX, levels: usize::MAX },
            Self::FewNames | Self::TopFileSystem => {
                Budget { names: NAMES_MIN, levels: LEVELS_INLINE_MAX }
            }
        }
    }

    fn resolve(self) -> ResolveFlags {
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match self {
            Self::Everywhere | Self::FewNames => within,
            Self::TopFileSystem => within | ResolveFlags::NO_XDEV,
        }
    }

    // `openat2` gives the same error for a mount as for a path out of the share: only a look-up that
    // may go everywhere can tell.
    fn failed(self, errno: Errno) -> ShareError {
        match (self, errno) {
            (Self::TopFileSystem, Errno::XDEV) => ShareError::WouldBlock,
            _ => from_resolution(errno),
        }
    }
}

/// The work that a look-up may do before it needs a greater reach.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// Names that may be compared.
    names: usize,
    /// Directories that may be passed one by one.
    levels: usize,
}

impl Budget {
    fn take_name(&mut self) -> Result<(), ShareError> {
        self.names = self.names.checked_sub(1).ok_or(ShareError::WouldBlock)?;
        Ok(())
    }

    fn take_level(&mut self) -> Result<(), ShareError> {
        self.levels = self.levels.checked_sub(1).ok_or(ShareError::WouldBlock)?;
        Ok(())
    }
}

/// Opens `path` below `root` without ever leaving it.
pub(super) fn open_beneath(
    root: &OwnedFd,
    path: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    open_within(root, path, flags, mode, Reach::Everywhere)
}

fn open_within(
    root: &OwnedFd,
    path: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
    reach: Reach,
) -> Result<OwnedFd, Errno> {
    let resolve = reach.resolve();
    // EAGAIN: a rename elsewhere in the tree made the kernel unsure of BENEATH; it asks for another
    // try, and their number is bounded so that they cannot occupy a worker for ever.
    for _ in 0..RACE_RETRIES_MAX {
        match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    Err(Errno::ACCESS)
}

/// Whether the kernel has each step of `path` in memory, and no file system is mounted on the way.
pub(super) fn is_cached(root: &OwnedFd, path: &SharePath) -> bool {
    let resolve = Reach::TopFileSystem.resolve() | ResolveFlags::CACHED;
    let flags = anchor_flags(path) | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path.for_system(), flags, Mode::empty(), resolve).is_ok()
}

/// Whether the object of `path`, or the directory it would be in, lies on the file system of the share's
/// top, without a mount on the way.
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
    if path.is_root() {
        return Err(ShareError::PathNotFound);
    }
    if path.naming() == Naming::Posix {
        return match anchor(&path.parent())? {
            Some(parent) if parent.is_directory => Ok(Located { path: path.clone(), found: None }),
            _ => Err(ShareError::PathNotFound),
        };
    }
    walk(root, names, devices, path, reach)
}

// A path that does not exist as written: from directory to directory, each opened from the one before.
fn walk(
    root: &OwnedFd,
    names: &Names,
    devices: &Devices,
    path: &SharePath,
    reach: Reach,
) -> Result<Located, ShareError> {
    let mut budget = reach.budget();
    let leaf = path.leaf();
    let (directory, mut spelled) = match directory(root, &path.parent(), reach) {
        // Most often only the last name is new, or spelled differently.
        Ok(parent) => (parent, path.parent().meant(Naming::Windows)),
        Err(ShareError::PathNotFound) => {
            let mut at = (directory(root, &SharePath::root(), reach)?, SharePath::root());
            let above = path.parent();
            for component in above.components() {
                budget.take_level()?;
                let actual = spelling(names, &at.0, component, &mut budget)?;
                let actual = actual.ok_or(ShareError::PathNotFound)?;
                let below = at.1.join(&actual);
                at = (step(root, &at.0, &actual, &below, reach)?, below);
            }
            at
        }
        Err(error) => return Err(error),
    };
    let Some(actual) = spelling(names, &directory, leaf, &mut budget)? else {
        return Ok(Located { path: spelled.join(leaf), found: None });
    };
    spelled = spelled.join(&actual);
    if !same_name(&actual, leaf) {
        spelled = spelled.by_short_name();
    }
    let found = anchor(root, devices, &spelled, reach)?;
    Ok(Located { path: spelled, found })
}

// The directory `name` in `above`, which is called `path`. A symbolic link may lead anywhere in the share: the
// kernel follows it from the share's top, and at most 40 links in one path.
fn step(
    root: &OwnedFd,
    above: &OwnedFd,
    name: &str,
    path: &SharePath,
    reach: Reach,
) -> Result<OwnedFd, ShareError> {
    match open_within(above, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty(), reach) {
        Ok(below) => Ok(below),
        Err(Errno::NOTDIR | Errno::LOOP) => directory(root, path, reach),
        Err(Errno::NOENT) => Err(ShareError::PathNotFound),
        Err(errno) => Err(reach.failed(errno)),
    }
}

fn directory(root: &OwnedFd, path: &SharePath, reach: Reach) -> Result<OwnedFd, ShareError> {
    match open_within(root, path.for_system(), DIRECTORY, Mode::empty(), reach) {
        Ok(directory) => Ok(directory),
        Err(Errno::NOTDIR | Errno::NOENT) => Err(ShareError::PathNotFound),
        Err(errno) => Err(reach.failed(errno)),
    }
}

fn anchor(
    root: &OwnedFd,
    devices: &Devices,
    path: &SharePath,
    reach: Reach,
) -> Result<Option<Found>, ShareError> {
    match open_within(root, path.for_system(), anchor_flags(path), Mode::empty(), reach) {
        Ok(anchor) => Found::new(anchor, devices).map(Some),
        // ENOTDIR: a file has the place of a directory; the walk finds which.
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
    /// Whether it is a file that had several hard links when it was found.
    pub fn has_several_names(&self) -> bool {
        !self.is_directory && self.stat.stx_nlink > 1
    }

    fn new(anchor: OwnedFd, devices: &Devices) -> Result<Self, ShareError> {
        let stat = inode::stat(&anchor)?;
        let (key, kind) = (inode::key(&stat), inode::kind(&stat));
        let device = match kind {
            FileType::RegularFile => devices.shown(key).map(Arc::clone),
            FileType::Directory | FileType::Symlink => None,
            FileType::CharacterDevice => Some(devices.behind(&anchor)?),
            _ => return Err(ShareError::SpecialFile),
        };
        let (is_directory, is_link) = (kind == FileType::Directory, kind == FileType::Symlink);
        Ok(Self { anchor, stat: Box::new(stat), key, is_directory, is_link, device })
    }

    /// A file that is a device: its length is fixed, and it has only bytes.
    pub fn is_device(&self) -> bool {
        self.device.is_some()
    }
}

// The spelling of `wanted` in `dir`: as asked if that exists, else the first entry that differs in
// case only, else the entry whose short name it is.
fn spelling(
    names: &Names,
    dir: &OwnedFd,
    wanted: &str,
    budget: &mut Budget,
) -> Result<Option<String>, ShareError> {
    match rustix::fs::statx(dir, wanted, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE) {
        Ok(_) => return Ok(Some(wanted.to_owned())),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(from_resolution(errno)),
    }
    let is_made = short::is_made(wanted);
    match names.find(dir, wanted) {
        Answer::Spelled(spelling) => return Ok(Some(spelling)),
        Answer::Absent if !is_made => return Ok(None),
        Answer::Absent | Answer::Unknown => {}
    }
    let mut reading = names.begin(dir);
    let mut entries = rustix::fs::Dir::read_from(dir)?;
    let short = is_made.then(|| wanted.to_ascii_uppercase());
    let (mut by_name, mut by_short) = (None, None);
    while let Some(entry) = entries.read() {
        let entry = entry?;
        budget.take_name()?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if !is_presentable(name) {
            continue;
        }
        if let Some(reading) = &mut reading {
            reading.note(name);
        }
        if same_name(name, wanted) {
            by_name.get_or_insert_with(|| name.to_owned());
            // A request that has read so many names reads the rest too, so that the next look-up
            // finds them.
            if !reading.as_ref().is_some_and(Reading::is_worth_it) {
                break;
            }
        }
        // A real name has priority over another entry's short name.
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
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK);
