//! What the operator says of a share, and what is wrong with it.

use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};
use thiserror::Error;

use super::body::{Body, DeviceError};
use super::error::ShareError;
use super::inode::{self, FileKey};
use super::residency::Residency;

/// The admission of a user to a share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// Everything that the share allows.
    Full,
    /// Only read.
    Reading,
    /// No access.
    Refused,
}

/// A body of another crate under a name in the top directory of a share.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The name that clients see.
    pub name: String,
    /// Where the operator says that the bytes are: for messages, and to compare settings.
    pub source: PathBuf,
    /// The file that holds the bytes, if they are in one of this machine.
    pub file: Option<FileKey>,
    /// The bytes.
    pub body: Arc<dyn Body>,
}

impl Shown {
    /// A body whose bytes are at `source`, which may be a file of this machine or only say where they are.
    pub fn new(name: impl Into<String>, source: impl Into<PathBuf>, body: Arc<dyn Body>) -> Self {
        let source = source.into();
        let stat = rustix::fs::statx(CWD, &source, AtFlags::empty(), StatxFlags::BASIC_STATS).ok();
        let file = stat.filter(|stat| inode::kind(stat) == FileType::RegularFile);
        let file = file.map(|stat| inode::key(&stat));
        Self { name: name.into(), source, file, body }
    }
}

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
    /// Every change of bytes and lengths, and every new or changed name, is durable before it is answered, whatever the
    /// client asks: for a share that another machine takes over. Removed names may come back after a crash.
    pub write_through: bool,
    /// Users who may enter and do what the share allows. `None` for this and for `readers`: every user.
    pub users: Option<Vec<String>>,
    /// Users who may enter and only read. A list without a name lets nobody in.
    pub readers: Option<Vec<String>>,
    /// The rights of users without proof of identity: with an unknown name, or no name. Their sessions
    /// have no keys: nothing of them is signed or encrypted.
    pub guests: Admission,
    /// The log of opens that survive a crash of the server: with it clients get persistent handles.
    /// A file of this share alone, best outside of its directory.
    pub persistent_opens: Option<PathBuf>,
    /// Devices of persistent memory (devdax) for which nodes in the directory may stand: such a
    /// node is a file as long as the device. Any other device in the directory is not served.
    pub devices: Vec<PathBuf>,
    /// Bodies of other crates that are files of the share's top directory.
    pub shown: Vec<Shown>,
    /// Whether pages of mapped files come into memory when they are asked for.
    pub residency: Residency,
    /// Most bytes of memory for such pages of this share; none: the budget of the server.
    pub flash_budget: Option<u64>,
    /// Most bytes of memory for such pages of one file of this share.
    pub flash_region_budget: Option<u64>,
    /// A directory that is faster than that of the share, and the most bytes of such pages that are kept there.
    pub flash_tier: Option<(u64, PathBuf)>,
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
            write_through: false,
            users: None,
            readers: None,
            guests: Admission::Refused,
            persistent_opens: None,
            devices: Vec::new(),
            shown: Vec::new(),
            residency: Residency::Automatic,
            flash_budget: None,
            flash_region_budget: None,
            flash_tier: None,
            emulate_persistence: false,
        }
    }
}

/// Why a share cannot be exported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShareOpenError {
    /// The directory of the tier cannot keep pages.
    #[error("flash_tier {}: {source}; it has to be a directory that the server may write, of 1 MiB to 4 TiB, on a file system with files without names (O_TMPFILE)", path.display())]
    ConfigTier {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
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
    /// A body cannot be a file of this name.
    #[error("cannot show {name:?} in the share: {source}")]
    ConfigShown {
        /// The name.
        name: String,
        /// The error.
        source: ShareError,
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
pub(super) fn check_share_name(name: &str) -> Result<(), ShareOpenError> {
    let forbidden = |c: char| c < ' ' || "\"/\\[]:|<>+=;,*?".contains(c);
    let reserved = name.eq_ignore_ascii_case("IPC$");
    if name.is_empty() || name.chars().count() > 80 || reserved || name.chars().any(forbidden) {
        return Err(ShareOpenError::ConfigName(name.to_owned()));
    }
    Ok(())
}
