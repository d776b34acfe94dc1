//! A share: one directory tree, exported under a name and confined to itself.
//!
//! * [`name`]: paths of peers; * [`lookup`], [`names`]: from path to inode, inside the share only;
//! * [`creation`]: create; [`emptying`]: overwrite; [`change`]: remove, rename, link; [`name_locks`]: one at a time; * [`posix`]: permissions, owners, symbolic links; * [`entry`]: an open file or directory;
//! * [`device`]: devices that are shown as files; * [`mounts`]: the file systems below a share;
//! * [`remainder`]: files read while they are sent; * [`ranges`]: holes and copies; * [`streams`], [`stream_name`]: alternate data streams;
//! * [`extended`]: extended attributes; * [`short`]: names of eight and three; * [`tunnel`]: what names meant that went; * [`directory`], [`pattern`]: enumeration; * [`metadata`], [`attributes`], [`modified`], [`marks`], [`volume`]: facts;
//! * [`place`]: the place of the share; [`policy`]: the rights of users, which may be replaced while the share is
//!   served;
//! * [`unsynced`]: names that a crash would lose; * [`journal`]: opens that survive a crash; [`identity`]: distinguishes their files from later ones;
//!   * [`left_over`]: opens that wait to be restored.
//!
//! Every function here may block unless its name starts with `try_`; callers are on the blocking
//! pool. The confinement relies on the kernel (`openat2`), not on string checks.

mod append;
mod attributes;
mod binding;
mod change;
mod creation;
mod device;
mod directory;
mod disk_clock;
mod emptying;
mod entry;
mod error;
mod extended;
mod extents;
mod forgetting;
#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod handle;
mod hard_link;
mod homes;
mod identity;
mod inline;
pub mod journal;
pub mod left_over;
pub mod limits;
mod links;
mod lookup;
mod marks;
mod metadata;
mod modified;
mod mounts;
mod name;
mod name_locks;
mod names;
mod overlap;
mod pattern;
mod place;
mod policy;
mod posix;
mod ranges;
mod remainder;
mod removal;
pub mod rights;
mod set_id;
mod short;
mod space;
mod stream_name;
mod streams;
mod sweep;
mod tunnel;
mod unsynced;
mod volume;

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use basics::Environment;
use pmem::DurabilityClass;
use rustix::fs::{Mode, OFlags};
use thiserror::Error;
use tracing::warn;

pub use attributes::DosAttributes;
pub use change::Replace;
pub use creation::{New, NewName};
use device::Devices;
pub use device::{Device, DeviceError};
pub use directory::{Enumeration, Listed, Looks, Next};
pub use emptying::Anew;
pub use entry::{BasicChange, Entry};
pub use error::ShareError;
pub use extended::{EA_NAME_MAX, ExtendedAttribute};
pub use identity::FileIdentity;
pub use inline::InlineIo;
pub use inline::is_much;
use journal::{BootId, Journal};
use left_over::LeftOver;
pub use lookup::{Found, Located, Reach};
pub use metadata::{FileKey, Metadata, PosixFacts};
use mounts::{FileSystem, Mounts};
pub use name::SEPARATORS;
pub use name::{Naming, SharePath};
use name_locks::NameLocks;
use names::{Names, Table as NamesTable};
pub use pattern::folded;
pub use pattern::{Matcher, Pattern};
pub use policy::Admission;
use policy::{Fixed, Policy};
pub use ranges::{COPY_MAX, Span};
pub use remainder::Remainder;
pub use rights::Writing;
pub use set_id::withhold_set_id;
pub use short::{is_short, short_name};
pub use stream_name::{StreamName, StreamPart};
pub use streams::STREAM_DESCRIPTORS;
pub use streams::{FoundStream, StreamFacts};
pub use sweep::{SweepError, Swept};
pub use tunnel::Remembered;
use tunnel::Tunnel;
use unsynced::Unsynced;
pub use volume::{VolumeAttributes, VolumeSize};

/// The export settings of a share.
#[derive(Clone, Debug)]
pub struct ShareConfig {
    /// The name clients connect to; compared ignoring case.
    pub name: String,
    /// The directory.
    pub path: PathBuf,
    /// Refuse every change.
    pub read_only: bool,
    /// Refuse every session that does not encrypt.
    pub encrypt_required: bool,
    /// Users who may enter and do what the share allows; if this and `readers` are empty, every
    /// user.
    pub users: Vec<String>,
    /// Users who may enter and only read.
    pub readers: Vec<String>,
    /// The rights of users without proof of identity: with an unknown name, or no name. Their sessions
    /// have no keys: nothing of them is signed or encrypted.
    pub guests: Admission,
    /// The log of opens that survive a crash of the server: with it clients get persistent handles.
    /// A file of this share alone, best outside of its directory.
    pub persistent_opens: Option<PathBuf>,
    /// Devices of persistent memory (devdax) for which nodes in the directory may stand: such a
    /// node is a file as long as the device. Any other device in the directory is not served.
    pub devices: Vec<PathBuf>,
    /// Lets push commits succeed on memory that does not survive power loss. For tests and
    /// demonstrations; the class reported to clients stays `volatile`.
    pub emulate_persistence: bool,
}

impl ShareConfig {
    /// A writable share of `path` with every switch off.
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            read_only: false,
            encrypt_required: false,
            users: Vec::new(),
            readers: Vec::new(),
            guests: Admission::Refused,
            persistent_opens: None,
            devices: Vec::new(),
            emulate_persistence: false,
        }
    }
}

/// The state of names for all shares of a server, as long as it lives: shares may overlap, also a removed share with
/// requests in progress and a share that was added later.
#[derive(Clone, Debug, Default)]
pub struct CommonNames {
    unsynced: Arc<Unsynced>,
    name_locks: Arc<NameLocks>,
    names: Arc<NamesTable>,
    links: Arc<Mutex<()>>,
}

/// One exported directory tree.
#[derive(Debug)]
pub struct Share {
    name: String,
    root: OwnedFd,
    root_key: FileKey,
    /// The path of its top when it was opened, without links.
    place: PathBuf,
    /// The abilities of the top's file system; `mounts` has those of file systems mounted below.
    top: FileSystem,
    mounts: Mounts,
    policy: Policy,
    fixed: Fixed,
    unsynced: Arc<Unsynced>,
    name_locks: Arc<NameLocks>,
    names: Names,
    tunnel: Tunnel,
    devices: Devices,
    journal: Option<Journal>,
    /// Opens at the end of an earlier server, until they are restored or given up.
    left_over: LeftOver,
    /// Held while a symbolic link is made or moved, and while a directory is moved up: one lock for all
    /// shares.
    links: Arc<Mutex<()>>,
    environment: Environment,
}

impl Share {
    /// Opens the directory and determines the promises of its file system. Changes nothing on the disk.
    pub fn open(config: &ShareConfig) -> Result<Self, ShareOpenError> {
        check_share_name(&config.name)?;
        let failed = |source| ShareOpenError::ConfigPath { path: config.path.clone(), source };
        let root = place::open_top(&config.path).map_err(failed)?;
        let place = place::resolved(&root, &config.path);
        let (root_key, _) = metadata::identify(&root).map_err(failed)?;
        let devices = Devices::open(&config.devices, config.read_only)
            .map_err(|(path, source)| ShareOpenError::ConfigDevice { path, source })?;
        let (mounts, environment) = (Mounts::default(), Environment::host());
        let top = mounts.of(&root).map_err(failed)?;
        Ok(Self {
            name: config.name.clone(),
            root,
            root_key,
            place,
            top,
            mounts,
            policy: Policy::new(config),
            fixed: Fixed::of(config),
            unsynced: Arc::default(),
            name_locks: Arc::default(),
            names: Names::default(),
            tunnel: Tunnel::default(),
            devices,
            journal: None,
            left_over: LeftOver::new(Vec::new(), environment.clock.now()),
            links: Arc::default(),
            environment,
        })
    }

    /// Takes over from an earlier server: removes unfinished links, and opens the log of persistent opens. Changes
    /// the disk.
    pub fn take_over(&mut self) -> Result<(), ShareOpenError> {
        if let Some(path) = self.fixed.persistent_opens.as_deref() {
            let opened = BootId::current().and_then(|boot| Journal::open(path, boot));
            let (journal, left_over) = opened.map_err(|source| ShareOpenError::ConfigJournal {
                path: path.to_owned(),
                source,
            })?;
            self.journal = Some(journal);
            self.left_over = LeftOver::new(left_over, self.environment.clock.now());
        }
        if !self.is_read_only()
            && let Err(error) = self.close_homes()
        {
            warn!(share = self.name, %error, "streams stay readable to other users of this machine");
        }
        // After the log: another server that has it has unfinished links, too.
        if !self.is_read_only()
            && let Err(error) = self.sweep_new_links()
        {
            warn!(share = self.name, %error, "links that a crash left cannot be removed");
        }
        Ok(())
    }

    /// Joins the account of unsynced names, the cache of names of directories, and the locks of names and links of
    /// the server's shares.
    pub fn keep_names_in(&mut self, common: &CommonNames) {
        let CommonNames { unsynced, name_locks, names, links } = common.clone();
        (self.unsynced, self.name_locks) = (unsynced, name_locks);
        (self.names, self.links) = (Names::in_table(&names), links);
    }

    /// Uses the clocks and random numbers of its server.
    pub fn live_in(&mut self, environment: &Environment) {
        self.environment = environment.clone();
    }

    /// Whether both shares keep their names in the same tables and locks.
    #[cfg(any(test, feature = "testing"))]
    pub fn keeps_names_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.unsynced, &other.unsynced)
            && Arc::ptr_eq(&self.name_locks, &other.name_locks)
            && self.names.are_in_table_of(&other.names)
            && Arc::ptr_eq(&self.links, &other.links)
    }

    /// The name clients connect to.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The durability class of a write at the share's top. Other file systems may be mounted below:
    /// [`Entry::class`] is the class of a file.
    pub fn class(&self) -> DurabilityClass {
        self.top.class
    }

    /// The log of persistent opens; without it there are none.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// The opens of an earlier server that are not restored yet.
    pub fn left_over(&self) -> &LeftOver {
        &self.left_over
    }

    /// Whether push commits on volatile memory succeed.
    pub fn emulates_persistence(&self) -> bool {
        self.fixed.emulate_persistence
    }

    /// How far a look-up may go on the calling thread: on a share in memory through cached names of
    /// its own file system, on other shares nowhere.
    pub fn reach_on_the_spot(&self) -> Option<Reach> {
        (self.top.inline == InlineIo::Everything).then_some(Reach::TopFileSystem)
    }

    /// The inline work on files of these names: everything if memory is behind every step, nothing
    /// if a file system is mounted on the way.
    pub fn inline_by_name(&self, names: &[&SharePath]) -> InlineIo {
        let is_memory = self.top.inline == InlineIo::Everything
            && names.iter().all(|name| lookup::is_on_top(&self.root, name));
        if is_memory { InlineIo::Everything } else { InlineIo::CachedReads }
    }

    /// Identity of the top directory; its inode and device make the volume's serial number.
    pub fn root_key(&self) -> FileKey {
        self.root_key
    }

    /// Finds the object of `path`, exactly as written first, then ignoring case.
    pub fn locate(&self, path: &SharePath) -> Result<Located, ShareError> {
        self.locate_within(path, Reach::Everywhere)
    }

    /// [`Share::locate`] that goes no farther than `reach`.
    ///
    /// # Errors
    ///
    /// [`ShareError::WouldBlock`] if the path may lead farther, or comparing names would take long.
    pub fn locate_within(&self, path: &SharePath, reach: Reach) -> Result<Located, ShareError> {
        lookup::locate(&self.root, &self.names, &self.devices, path, reach)
    }

    /// Whether the kernel can resolve `path`, as written, without asking a disk or a server: then
    /// [`Share::locate`] and opening the result wait for nothing. Costs a look-up.
    pub fn has_at_hand(&self, path: &SharePath) -> bool {
        self.top.inline == InlineIo::Cached && lookup::is_cached(&self.root, path)
    }

    /// Opens an object that [`Share::locate`] found.
    pub fn open_found(&self, found: &Found, mode: OpenMode) -> Result<Entry, ShareError> {
        if mode.write.is_some() && !found.is_directory {
            self.writable()?;
        }
        if let Some(device) = &found.device {
            let anchor = rustix::io::fcntl_dupfd_cloexec(&found.anchor, 0)?;
            return Ok(Entry::of_device(anchor, found.key, Arc::clone(device)));
        }
        let file_system = self.mounts.of_stat(&found.anchor, &found.stat)?;
        if found.is_link {
            let link = rustix::io::fcntl_dupfd_cloexec(&found.anchor, 0)?;
            return Ok(Entry::of_link(link, found.key, file_system));
        }
        let name = attributes::proc_name(&found.anchor);
        let common = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let open = |flags| rustix::fs::open(&*name, flags | common, Mode::empty());
        let fd = if found.is_directory {
            match open(OFlags::RDONLY | OFlags::DIRECTORY) {
                // Rights that the server took from itself can be restored.
                Err(rustix::io::Errno::ACCESS) if !mode.read => {
                    rustix::io::fcntl_dupfd_cloexec(&found.anchor, 0)?
                }
                other => other?,
            }
        } else if mode.write.is_some() {
            // Both directions even for a writer: mapping and compare operations read too.
            open(OFlags::RDWR)
                .or_else(|errno| if mode.read { Err(errno) } else { open(OFlags::WRONLY) })?
        } else if mode.read {
            open(OFlags::RDONLY)?
        } else {
            // Attributes only: a server that may not read the bytes may still see the inode.
            match open(OFlags::RDONLY) {
                Ok(fd) => fd,
                Err(_) => rustix::io::fcntl_dupfd_cloexec(&found.anchor, 0)?,
            }
        };
        Ok(Entry::new(fd, found.key, found.is_directory, file_system))
    }

    /// The metadata of an object that [`Share::locate`] found, without opening it.
    pub fn metadata_of(&self, found: &Found) -> Result<Metadata, ShareError> {
        match &found.device {
            Some(device) => Metadata::of_device(&found.anchor, device.len()),
            None => Metadata::of_anchor(&found.anchor, &found.stat),
        }
    }

    /// Lets a medium stand for the device of a number.
    #[cfg(any(test, feature = "testing"))]
    pub fn stand_in(&mut self, number: u64, medium: Arc<dyn pmem::Medium>) {
        self.devices = Devices::standing_in(number, medium);
    }

    // The metadata of an entry of an open directory, if it stands for a listed device.
    fn device_at(&self, directory: impl AsFd, name: &str) -> Option<Metadata> {
        let (node, device) = self.devices.behind_at(directory, name).ok()?;
        Metadata::of_device(node, device.len()).ok()
    }
}

/// The directions of data that an open needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenMode {
    /// Bytes will be read.
    pub read: bool,
    /// Bytes will be written: with leave.
    pub write: Option<Writing>,
}

/// Why a share cannot be exported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShareOpenError {
    /// The name is empty, too long, reserved, or holds characters a share name cannot have.
    #[error("{0:?} cannot be the name of a share")]
    ConfigName(String),
    /// The directory cannot be opened.
    #[error("cannot export {path}: {source}", path = .path.display())]
    ConfigPath {
        /// The directory.
        path: PathBuf,
        /// The error.
        source: ShareError,
    },
    /// A device cannot be served.
    #[error("cannot serve {path} as a file: {source}", path = .path.display())]
    ConfigDevice {
        /// The device.
        path: PathBuf,
        /// The error.
        source: DeviceError,
    },
    /// A file with secrets of the server lies in a share, where clients could read and replace it.
    #[error("{path} lies in the share {share:?}, whose clients could read and replace it", path = .path.display())]
    ConfigPrivateFile {
        /// The file.
        path: PathBuf,
        /// The share.
        share: String,
    },
    /// The log of persistent opens cannot be read or written.
    #[error("cannot keep persistent opens in {path}: {source}", path = .path.display())]
    ConfigJournal {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
}

// MS-SRVS §2.2.4: share names are at most 80 characters and not IPC$ and the like.
fn check_share_name(name: &str) -> Result<(), ShareOpenError> {
    let forbidden = |c: char| c < ' ' || "\"/\\[]:|<>+=;,*?".contains(c);
    let reserved = name.eq_ignore_ascii_case("IPC$");
    if name.is_empty() || name.chars().count() > 80 || reserved || name.chars().any(forbidden) {
        return Err(ShareOpenError::ConfigName(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
