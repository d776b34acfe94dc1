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
use super::names::{Answer, Names, Reading};
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

/// Opens `path` below `root` without ever leaving it.
pub(super) fn open_beneath(
    root: &OwnedFd,
    path: &str,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
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

/// Whether the kernel has each step to what `path` names in memory.
pub(super) fn is_cached(root: &OwnedFd, path: &SharePath) -> bool {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::CACHED;
    let flags = anchor_flags(path) | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path.for_system(), flags, Mode::empty(), resolve).is_ok()
}

/// Looks `path` up.
pub(super) fn locate(
    root: &OwnedFd,
    names: &Names,
    devices: &Devices,
    path: &SharePath,
) -> Result<Located, ShareError> {
    if let Some(found) = anchor(root, devices, path)? {
        return Ok(Located { path: path.clone(), found: Some(found) });
    }
    if path.naming() == Naming::Posix {
        let parent = if path.is_root() { None } else { anchor(root, devices, &path.parent())? };
        return match parent {
            Some(parent) if parent.is_directory => Ok(Located { path: path.clone(), found: None }),
            _ => Err(ShareError::PathNotFound),
        };
    }
    let mut spelled = SharePath::root();
    let count = path.components().count();
    for (index, component) in path.components().enumerate() {
        let is_leaf = index + 1 == count;
        match spelling(root, names, &spelled, component)? {
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
    let found = anchor(root, devices, &spelled)?;
    Ok(Located { path: spelled, found })
}

fn anchor(
    root: &OwnedFd,
    devices: &Devices,
    path: &SharePath,
) -> Result<Option<Found>, ShareError> {
    match open_beneath(root, path.for_system(), anchor_flags(path), Mode::empty()) {
        Ok(anchor) => Found::new(anchor, devices).map(Some),
        // ENOTDIR: a file stands where a directory should; the component walk says which.
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(from_resolution(errno)),
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
) -> Result<Option<String>, ShareError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
    let dir = match open_beneath(root, directory.for_system(), flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOTDIR | Errno::NOENT) => return Err(ShareError::PathNotFound),
        Err(errno) => return Err(from_resolution(errno)),
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
    let mut entries = rustix::fs::Dir::new(dir)?;
    let short = is_made.then(|| wanted.to_ascii_uppercase());
    let (mut by_name, mut by_short) = (None, None);
    while let Some(entry) = entries.read() {
        let entry = entry?;
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
