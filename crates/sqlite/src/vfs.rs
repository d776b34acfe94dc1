//! What the files of a database do, in safe terms; `entry` translates from and to C.

use std::ffi::c_int;
use std::sync::Arc;

use logged::Base as _;

use crate::abi;
use crate::fault::Fault;
use crate::params::Params;
use crate::share::{Location, LockedFile, ShareFile};
use crate::wal::{Wal, WalError};

/// An open file that is not SQLite's own VFS's.
#[allow(clippy::large_enum_variant, reason = "there is one for each open file, in a box")]
#[derive(Debug)]
pub(crate) enum Opened {
    /// A database of this machine. SQLite's own VFS does the work; the hooks see its locks.
    Database(Hooks),
    /// A `-wal` file with a log.
    Wal(Arc<Wal>),
    /// A file of a share.
    Share {
        /// The file and its lock.
        file: LockedFile,
        /// What PRAGMA landfast says.
        hooks: Hooks,
        /// The file is temporary.
        delete: Option<ShareFile>,
    },
}

/// What a database knows of its log.
#[derive(Debug)]
pub(crate) struct Hooks {
    pub(crate) wal: Option<Arc<Wal>>,
    fault: Fault,
    is_share: bool,
}

impl Hooks {
    pub(crate) fn new(location: &Location, params: &Params) -> Self {
        Self {
            wal: Wal::of(location, params),
            fault: Fault::new(params.fault, params.fault_stays),
            is_share: matches!(location, Location::Share(_)),
        }
    }

    /// Whether a test has this call fail.
    pub(crate) fn fails(&self) -> bool {
        match &self.wal {
            Some(wal) => wal.fault.is_here(),
            None => self.fault.is_here(),
        }
    }

    /// What PRAGMA landfast answers.
    pub(crate) fn describe(&self) -> String {
        let locking = if self.is_share {
            "locking_mode=EXCLUSIVE needed for WAL (no shared memory with other hosts); NORMAL with a rollback journal"
        } else {
            "locking_mode=NORMAL (shared memory of this host)"
        };
        let log = match &self.wal {
            Some(wal) => format!("log {}", wal.describe()),
            None => "no log".into(),
        };
        format!("{locking}; {log}")
    }
}

/// A failure as SQLite's code; the message goes to SQLite's log.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) code: c_int,
    pub(crate) why: String,
}

impl Refused {
    pub(crate) fn new(code: c_int, why: impl ToString) -> Self {
        Self { code, why: why.to_string() }
    }
}

fn wal_failed(code: c_int) -> impl FnOnce(WalError) -> Refused {
    move |error| Refused::new(if error.is_busy() { abi::BUSY } else { code }, error)
}

fn planted(fails: bool, code: c_int) -> Result<(), Refused> {
    if fails { Err(Refused::new(code, "a planted fault")) } else { Ok(()) }
}

impl Opened {
    /// Opens a file of a share, or a `-wal` file with a log; `None` where SQLite's own VFS opens it alone.
    pub(crate) fn open(name: &str, flags: c_int, params: &Params) -> Result<Option<Self>, Refused> {
        let cannot = |why: &dyn ToString| Refused::new(abi::CANTOPEN, why.to_string());
        let location = Location::of(name).map_err(|error| cannot(&error))?;
        if flags & abi::OPEN_MAIN_DB != 0 {
            // Whoever opens the database without its log would miss commits, and overwrite them.
            if params.members.is_none()
                && Wal::is_needed(&location).map_err(wal_failed(abi::CANTOPEN))?
            {
                return Err(cannot(&"the last commits are in a log: open the database with log="));
            }
        } else if flags & abi::OPEN_WAL != 0 && params.members.is_some() {
            let database = name.strip_suffix("-wal").unwrap_or(name);
            let location = Location::of(database).map_err(|error| cannot(&error))?;
            if let Some(wal) = Wal::of(&location, params) {
                planted(wal.fault.is_here(), abi::CANTOPEN)?;
                wal.own().map_err(wal_failed(abi::CANTOPEN))?;
                return Ok(Some(Self::Wal(wal)));
            }
        }
        let hooks = |location: &Location, is_database: bool| match is_database {
            true => Hooks::new(location, params),
            false => Hooks::new(location, &Params { members: None, ..params.clone() }),
        };
        let is_database = flags & abi::OPEN_MAIN_DB != 0;
        match &location {
            Location::Local(_) if is_database => Ok(Some(Self::Database(hooks(&location, true)))),
            Location::Local(_) => Ok(None),
            Location::Share(share) => {
                let file = share.open_for(flags).map_err(|error| cannot(&error))?;
                let delete = (flags & abi::OPEN_DELETEONCLOSE != 0).then(|| share.clone());
                let hooks = hooks(&location, is_database);
                Ok(Some(Self::Share { file: LockedFile::new(file), hooks, delete }))
            }
        }
    }

    /// Deletes a file of a share, or a `-wal` file with a log; `false` where SQLite's own VFS has to.
    pub(crate) fn delete(name: &str, durably: bool, params: &Params) -> Result<bool, Refused> {
        let failed = |error: WalError| wal_failed(abi::IOERR_DELETE)(error);
        if let Some(database) = name.strip_suffix("-wal")
            && params.members.is_some()
        {
            let location =
                Location::of(database).map_err(|error| Refused::new(abi::IOERR_DELETE, error))?;
            if let Some(wal) = Wal::of(&location, params) {
                planted(wal.fault.is_here(), abi::IOERR_DELETE)?;
                wal.remove().map_err(failed)?;
            }
        }
        match Location::of(name).map_err(|error| Refused::new(abi::IOERR_DELETE, error))? {
            Location::Local(_) => Ok(false),
            Location::Share(share) => match share.delete(durably) {
                Ok(true) => Ok(true),
                Ok(false) => Err(Refused::new(abi::IOERR_DELETE_NOENT, "there is no such file")),
                Err(error) => Err(Refused::new(abi::IOERR_DELETE, error)),
            },
        }
    }

    /// Whether a file exists, where SQLite's own VFS does not know.
    pub(crate) fn exists(name: &str) -> Result<Option<bool>, Refused> {
        let failed = |why: &dyn ToString| Refused::new(abi::IOERR_ACCESS, why.to_string());
        // After a power failure the name of the file may be gone, and what was committed is in the log.
        if let Some(database) = name.strip_suffix("-wal") {
            let location = Location::of(database).map_err(|error| failed(&error))?;
            if Wal::is_needed(&location).map_err(|error| failed(&error))? {
                return Ok(Some(true));
            }
        }
        match Location::of(name).map_err(|error| failed(&error))? {
            Location::Local(_) => Ok(None),
            Location::Share(share) => Ok(Some(share.exists().map_err(|error| failed(&error))?)),
        }
    }

    /// Reads; the bytes beyond the end become zero, and `false` says that there were some.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<bool, Refused> {
        let count = match self {
            Self::Database(_) => return Err(Refused::new(abi::IOERR_READ, "not of this file")),
            Self::Wal(wal) => {
                planted(wal.fault.is_here(), abi::IOERR_READ)?;
                wal.read(offset, out).map_err(wal_failed(abi::IOERR_READ))?
            }
            Self::Share { file, hooks, .. } => {
                planted(hooks.fails(), abi::IOERR_READ)?;
                let read = file.file.read(offset, out);
                read.map_err(|error| Refused::new(abi::IOERR_READ, error))?
            }
        };
        out[count..].fill(0);
        Ok(count == out.len())
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        match self {
            Self::Database(_) => Err(Refused::new(abi::IOERR_WRITE, "not of this file")),
            Self::Wal(wal) => {
                planted(wal.fault.is_here(), abi::IOERR_WRITE)?;
                wal.write(offset, bytes).map_err(wal_failed(abi::IOERR_WRITE))
            }
            Self::Share { file, hooks, .. } => {
                planted(hooks.fails(), abi::IOERR_WRITE)?;
                let written = file.file.write(offset, bytes);
                written.map_err(|error| Refused::new(abi::IOERR_WRITE, error))
            }
        }
    }

    pub(crate) fn truncate(&self, len: u64) -> Result<(), Refused> {
        match self {
            Self::Database(_) => Err(Refused::new(abi::IOERR_TRUNCATE, "not of this file")),
            Self::Wal(wal) => {
                planted(wal.fault.is_here(), abi::IOERR_TRUNCATE)?;
                wal.set_len(len).map_err(wal_failed(abi::IOERR_TRUNCATE))
            }
            Self::Share { file, hooks, .. } => {
                planted(hooks.fails(), abi::IOERR_TRUNCATE)?;
                file.file.set_len(len).map_err(|error| Refused::new(abi::IOERR_TRUNCATE, error))
            }
        }
    }

    /// # Durability
    ///
    /// On `Ok` every earlier write of the file survives what its log, or its share, survives.
    pub(crate) fn sync(&self) -> Result<(), Refused> {
        match self {
            Self::Database(_) => Err(Refused::new(abi::IOERR_FSYNC, "not of this file")),
            Self::Wal(wal) => {
                planted(wal.fault.is_here(), abi::IOERR_FSYNC)?;
                wal.commit().map_err(wal_failed(abi::IOERR_FSYNC))
            }
            Self::Share { file, hooks, .. } => {
                planted(hooks.fails(), abi::IOERR_FSYNC)?;
                file.file.flush().map_err(|error| Refused::new(abi::IOERR_FSYNC, error))
            }
        }
    }

    pub(crate) fn len(&self) -> Result<u64, Refused> {
        match self {
            Self::Database(_) => Err(Refused::new(abi::IOERR_FSTAT, "not of this file")),
            Self::Wal(wal) => wal.len().map_err(wal_failed(abi::IOERR_FSTAT)),
            Self::Share { file, .. } => {
                file.file.len().map_err(|error| Refused::new(abi::IOERR_FSTAT, error))
            }
        }
    }

    /// Raises SQLite's lock; `false` is busy.
    pub(crate) fn lock(&mut self, level: c_int) -> Result<bool, Refused> {
        match self {
            Self::Share { file, .. } => {
                file.lock(level).map_err(|error| Refused::new(abi::IOERR_LOCK, error))
            }
            Self::Database(_) | Self::Wal(_) => Ok(true),
        }
    }

    pub(crate) fn unlock(&mut self, level: c_int) -> Result<(), Refused> {
        match self {
            Self::Share { file, .. } => {
                file.unlock(level).map_err(|error| Refused::new(abi::IOERR_UNLOCK, error))
            }
            Self::Database(_) | Self::Wal(_) => Ok(()),
        }
    }

    pub(crate) fn is_reserved(&self) -> Result<bool, Refused> {
        match self {
            Self::Share { file, .. } => {
                file.is_reserved().map_err(|error| Refused::new(abi::IOERR_LOCK, error))
            }
            Self::Database(_) | Self::Wal(_) => Ok(false),
        }
    }

    /// What a pragma of ours answers.
    pub(crate) fn pragma(&self, name: &str) -> Option<String> {
        if name != "landfast" {
            return None;
        }
        match self {
            Self::Database(hooks) | Self::Share { hooks, .. } => Some(hooks.describe()),
            Self::Wal(_) => None,
        }
    }

    /// Whether a test has a call of SQLite's own VFS fail.
    pub(crate) fn fails(&self) -> bool {
        match self {
            Self::Database(hooks) => hooks.fails(),
            Self::Wal(_) | Self::Share { .. } => false,
        }
    }

    /// The log of the database whose locks these are.
    pub(crate) fn wal(&self) -> Option<&Arc<Wal>> {
        match self {
            Self::Database(hooks) => hooks.wal.as_ref(),
            Self::Wal(_) | Self::Share { .. } => None,
        }
    }

    /// Closes the file.
    pub(crate) fn close(self) -> Result<(), Refused> {
        match self {
            Self::Share { file, delete: Some(name), .. } => {
                drop(file);
                let deleted = name.delete(false).map(drop);
                deleted.map_err(|error| Refused::new(abi::IOERR_CLOSE, error))
            }
            _ => Ok(()),
        }
    }
}
