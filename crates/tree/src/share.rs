//! One exported directory tree: what its operations need.
//!
//! The operations are methods in files of their own, above this one.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use basics::Environment;
use basics::ordered::Mutex;
use pmem::DurabilityClass;

use super::body::Body;
use super::config::{ShareConfig, ShareOpenError, Shown, check_share_name};
use super::devices::Devices;
use super::error::ShareError;
use super::inline::InlineIo;
use super::inode::{self, FileKey};
use super::journal::{BootId, Journal};
use super::left_over::LeftOver;
use super::lookup::{self, Located, Reach};
use super::may_wait::MayWait;
use super::mounts::{FileSystem, Mounts};
use super::name::SharePath;
use super::name_locks::NameLocks;
use super::names::{Names, Table as NamesTable};
use super::policy::{Fixed, Policy};
use super::residency::Pages;
use super::top;
use super::tunnel::Tunnel;
use super::unsynced::Unsynced;
use crate::lock_order as order;

/// One exported directory tree.
#[derive(Debug)]
pub struct Share {
    pub(super) name: String,
    pub(super) root: OwnedFd,
    pub(super) root_key: FileKey,
    /// The path of its top when it was opened, without links.
    pub(super) place: PathBuf,
    /// The abilities of the top's file system; `mounts` has those of file systems mounted below.
    pub(super) top: FileSystem,
    pub(super) mounts: Mounts,
    pub(super) policy: Policy,
    pub(super) fixed: Fixed,
    pub(super) unsynced: Arc<Unsynced>,
    pub(super) name_locks: Arc<NameLocks>,
    pub(super) names: Names,
    pub(super) tunnel: Tunnel,
    pub(super) devices: Devices,
    /// Bodies that are shown once the share takes over.
    pub(super) to_show: Vec<Shown>,
    pub(super) journal: Option<Journal>,
    /// Opens at the end of an earlier server, until they are restored or given up.
    pub(super) left_over: LeftOver,
    /// Held while a symbolic link is made or moved, and while a directory is moved up: one lock for all
    /// shares.
    pub(super) links: Arc<Mutex<(), order::Links>>,
    pub(super) environment: Environment,
    pub(super) pages: Pages,
}

impl Share {
    /// Opens the directory and determines the promises of its file system. Changes nothing on the disk.
    pub fn open(config: &ShareConfig) -> Result<Self, ShareOpenError> {
        check_share_name(&config.name)?;
        let failed = |source| ShareOpenError::ConfigPath { path: config.path.clone(), source };
        let root = top::open(&config.path).map_err(failed)?;
        let place = top::resolved(&root, &config.path);
        let (root_key, _) = inode::identify(&root).map_err(failed)?;
        let devices = Devices::open(&config.devices, config.read_only)
            .map_err(|(path, source)| ShareOpenError::ConfigDevice { path, source })?;
        let (mounts, environment) = (Mounts::default(), Environment::host());
        let top = mounts.of(&root).map_err(failed)?;
        let share = Self {
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
            to_show: config.shown.clone(),
            journal: None,
            left_over: LeftOver::new(Vec::new(), environment.clock.now()),
            links: Arc::default(),
            environment,
            pages: Pages::new(config)?,
        };
        share.look_at_shown(&config.shown)?;
        Ok(share)
    }

    /// Joins the account of unsynced names, the cache of names of directories, and the locks of names and links of
    /// the server's shares.
    pub fn keep_names_in(&mut self, common: &CommonNames) {
        let CommonNames { unsynced, name_locks, names, links, pages } = common.clone();
        if let Some(pages) = &pages {
            self.keep_pages_in(pages);
        }
        (self.unsynced, self.name_locks) = (unsynced, name_locks);
        (self.names, self.links) = (Names::in_table(&names), links);
    }

    /// Uses the clocks and random numbers of its server.
    pub fn live_in(&mut self, environment: &Environment) {
        self.environment = environment.clone();
    }

    /// Whether both shares keep their names in the same tables and locks.
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

    /// Whether it keeps a log of persistent opens; without it there are none.
    pub fn keeps_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// The log of persistent opens. It is on a disk, and its lock is held by whoever waits for that.
    pub fn journal(&self, _: MayWait) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// The device of the file system that the log lies on, if there is one.
    pub fn journal_device(&self) -> Option<u64> {
        self.journal.as_ref().map(Journal::device)
    }

    /// The boot of the machine with which the log records opens.
    pub fn journal_boot(&self) -> Option<BootId> {
        self.journal.as_ref().map(Journal::boot)
    }

    /// [`Journal::ask_doubt`], which waits for nothing.
    pub fn ask_doubt(
        &self,
        serials: Vec<u64>,
        then: impl FnOnce(&io::Result<()>) + Send + 'static,
    ) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.ask_doubt(serials, then))
    }

    /// [`Journal::give_up_doubts`].
    pub fn give_up_doubts(&self) {
        if let Some(journal) = &self.journal {
            journal.give_up_doubts();
        }
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

    /// Lets a medium stand for the device of a number.
    pub fn stand_in(&mut self, number: u64, medium: Arc<dyn pmem::Medium>) {
        self.devices = Devices::standing_in(number, medium);
    }

    /// Takes the memory for pages from the budget of its server.
    pub fn keep_pages_in(&mut self, budget: &Arc<flash::Budget>) {
        self.pages = self.pages.in_budget(budget);
    }

    /// The memory for the pages of a file of this class and length, if it is mapped lazily. The first call of a server
    /// makes the memory.
    pub fn pages_of(&self, class: DurabilityClass, len: u64) -> Option<&flash::Share> {
        self.pages.of(&self.name, class, len)
    }

    /// Lets a body stand for the device of a number.
    pub fn show(&mut self, number: u64, body: Arc<dyn Body>) {
        self.devices = Devices::showing(number, body);
    }
}

/// The state of names for all shares of a server, as long as it lives: shares may overlap, also a removed share with
/// requests in progress and a share that was added later.
#[derive(Clone, Debug, Default)]
pub struct CommonNames {
    unsynced: Arc<Unsynced>,
    name_locks: Arc<NameLocks>,
    names: Arc<NamesTable>,
    links: Arc<Mutex<(), order::Links>>,
    /// The memory for pages of mapped files; without it each share has its own.
    pages: Option<Arc<flash::Budget>>,
}

impl CommonNames {
    /// The same, with one budget of memory for the pages of mapped files.
    #[must_use]
    pub fn with_budget(self, pages: Arc<flash::Budget>) -> Self {
        Self { pages: Some(pages), ..self }
    }

    /// The budget.
    pub fn budget(&self) -> Option<&Arc<flash::Budget>> {
        self.pages.as_ref()
    }
}
