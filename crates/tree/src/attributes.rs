//! DOS attributes and the creation time: facts that Linux inodes do not hold, kept in one xattr.
//!
//! ```text
//! user.landfast.dos, little-endian, 16 bytes, or 32 with a change time
//!  0        4            8                16               24               32
//!  +--------+------------+----------------+----------------+----------------+
//!  | version| attributes | creation time  | change time    | noted at       |
//!  | u32 =1 | u32        | FILETIME u64   | FILETIME u64   | FILETIME u64   |
//!  +--------+------------+----------------+----------------+----------------+
//!                        creation time 0: the inode's own birth time
//! ```
//!
//! The kernel lets no program set an inode's change time. So a change time that a client sets is noted
//! together with the time of day, and is valid until the inode's own change time moves on. A change of the
//! inode within the same [`NOTING_TICKS`] is not noticed.
//!
//! A file without the xattr has computed attributes: ARCHIVE for files, DIRECTORY for directories.
//! The xattr is written only when a client sets other attributes, so a share that only Linux and
//! ordinary clients use has none.
//!
//! Spec: MS-FSCC §2.6 (file attributes).

use std::os::fd::AsFd;
use std::sync::LazyLock;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::disk_clock;
use super::error::ShareError;
use super::inode::{FileKey, proc_name};
use super::name_locks::NameLocks;
use super::xattr::lacks;

/// The attribute word of MS-FSCC §2.6. Unknown bits are kept out: [`DosAttributes::settable`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DosAttributes(pub u32);

impl DosAttributes {
    /// Cannot be written or deleted.
    pub const READONLY: Self = Self(0x0001);
    /// Not shown by default.
    pub const HIDDEN: Self = Self(0x0002);
    /// Belongs to the operating system.
    pub const SYSTEM: Self = Self(0x0004);
    /// Is a directory.
    pub const DIRECTORY: Self = Self(0x0010);
    /// Changed since the last backup.
    pub const ARCHIVE: Self = Self(0x0020);
    /// None of the others; only ever alone.
    pub const NORMAL: Self = Self(0x0080);
    /// Deleted with its last handle.
    pub const TEMPORARY: Self = Self(0x0100);
    /// May contain holes.
    pub const SPARSE: Self = Self(0x0200);
    /// The file is another kind of object: a symbolic link, for clients that see links.
    pub const REPARSE_POINT: Self = Self(0x0400);
    /// Not to be indexed.
    pub const NOT_CONTENT_INDEXED: Self = Self(0x2000);

    // The bits that a client may set and the server keeps. DIRECTORY follows the inode, NORMAL means
    // "none", and SPARSE has a control of its own.
    const SETTABLE: u32 = 0x0001 | 0x0002 | 0x0004 | 0x0020 | 0x0100 | 0x1000 | 0x2000;

    /// Whether every bit of `other` is set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without the bits of `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The attributes that a stream of such a file or directory shows.
    pub(super) fn of_stream(self) -> Self {
        self.without(Self::DIRECTORY.union(Self::NORMAL)).presented(false)
    }

    /// Only the bits a client may set.
    pub fn settable(self) -> Self {
        Self(self.0 & Self::SETTABLE)
    }

    /// The word as clients see it: DIRECTORY by kind, NORMAL if no other bit is left.
    fn presented(self, is_directory: bool) -> Self {
        match Self(self.0 & (Self::SETTABLE | Self::SPARSE.0)) {
            kept if is_directory => kept.union(Self::DIRECTORY),
            Self(0) => Self::NORMAL,
            kept => kept,
        }
    }
}

/// The content of the xattr of one inode.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Stored {
    /// `None` if no client ever set attributes.
    pub(super) attributes: Option<DosAttributes>,
    /// FILETIME; `None` if the inode's birth time is valid.
    pub(super) creation: Option<u64>,
    /// Clients see the holes of the file as holes.
    pub(super) sparse: bool,
    /// A change time that a client has set.
    pub(super) change: Option<NotedChange>,
}

/// A change time that a client has set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct NotedChange {
    time: u64,
    noted_at: u64,
}

impl NotedChange {
    /// A change time noted now, to be saved at once.
    pub(super) fn now(time: u64) -> Self {
        Self { time, noted_at: disk_clock::file_time() }
    }

    /// The change time of an inode whose own change time is `own`.
    pub(super) fn effective(noted: Option<Self>, own: u64) -> u64 {
        match noted {
            Some(noted) if own <= noted.noted_at.saturating_add(NOTING_TICKS) => noted.time,
            _ => own,
        }
    }
}

impl Stored {
    /// The attributes clients see.
    pub(super) fn effective(self, is_directory: bool) -> DosAttributes {
        let default = if is_directory { DosAttributes::default() } else { DosAttributes::ARCHIVE };
        let sparse = if self.sparse { DosAttributes::SPARSE } else { DosAttributes::default() };
        self.attributes.unwrap_or(default).union(sparse).presented(is_directory)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if !matches!(bytes.len(), LEN | LEN_MAX) || word(0)? != VERSION {
            return None;
        }
        let creation = long(8)?;
        let change = match (long(16), long(24)) {
            (Some(time), Some(noted_at)) => Some(NotedChange { time, noted_at }),
            _ => None,
        };
        let attributes = DosAttributes(word(4)?);
        Some(Self {
            attributes: Some(attributes.without(DosAttributes::SPARSE)),
            creation: (creation != 0).then_some(creation),
            sparse: attributes.contains(DosAttributes::SPARSE),
            change,
        })
    }

    fn emit(self, is_directory: bool) -> Vec<u8> {
        let mut out = vec![0; LEN];
        out[..4].copy_from_slice(&VERSION.to_le_bytes());
        let shown = DosAttributes::DIRECTORY.union(DosAttributes::NORMAL);
        let attributes = self.effective(is_directory).without(shown);
        out[4..8].copy_from_slice(&attributes.0.to_le_bytes());
        out[8..].copy_from_slice(&self.creation.unwrap_or(0).to_le_bytes());
        if let Some(NotedChange { time, noted_at }) = self.change {
            out.extend_from_slice(&time.to_le_bytes());
            out.extend_from_slice(&noted_at.to_le_bytes());
        }
        out
    }
}

/// Reads the xattr. An unreadable or foreign one counts as absent: attributes are advice.
pub(super) fn load(fd: impl AsFd) -> Stored {
    try_load(fd).unwrap_or_default()
}

/// Reads the xattr.
///
/// # Errors
///
/// An xattr that may exist cannot be read for the moment. An absent or foreign one is no error.
pub(super) fn try_load(fd: impl AsFd) -> Result<Stored, ShareError> {
    let fd = fd.as_fd();
    let get = |bytes: &mut [u8]| match rustix::fs::fgetxattr(fd, NAME, &mut *bytes) {
        // A handle that was opened O_PATH reads no xattrs; opening its /proc name does.
        Err(Errno::BADF) => rustix::fs::getxattr(proc_name(fd), NAME, bytes),
        other => other,
    };
    read(|bytes| match get(bytes) {
        Err(Errno::ACCESS) if lacks(&proc_name(fd), NAME) => Err(Errno::NODATA),
        other => other,
    })
}

/// [`load`] for a handle that is known to have been opened O_PATH.
pub(super) fn load_anchor(anchor: impl AsFd) -> Stored {
    read(|bytes| rustix::fs::getxattr(proc_name(anchor), NAME, bytes)).unwrap_or_default()
}

/// Reads the xattr of an entry of the directory `dir`, not following a symbolic link.
pub(super) fn load_at(dir: impl AsFd, name: &str) -> Stored {
    read(|bytes| rustix::fs::lgetxattr(format!("{}/{name}", proc_name(dir)), NAME, bytes))
        .unwrap_or_default()
}

fn read(get: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Result<Stored, ShareError> {
    let mut bytes = [0_u8; LEN_MAX + 1];
    match get(&mut bytes) {
        Ok(len) => Ok(Stored::parse(&bytes[..len]).unwrap_or_default()),
        // Longer than any xattr of this server, or on a file system without xattrs.
        Err(Errno::NODATA | Errno::RANGE | Errno::OPNOTSUPP) => Ok(Stored::default()),
        Err(errno) => Err(errno.into()),
    }
}

/// Changes the content of the xattr of the inode `key`. Simultaneous changes do not overwrite each
/// other.
///
/// # Errors
///
/// Then nothing has changed; the xattr may also be unreadable for the moment.
pub(super) fn change(
    fd: impl AsFd,
    key: FileKey,
    is_directory: bool,
    act: impl FnOnce(&mut Stored),
) -> Result<(), ShareError> {
    let _alone = CHANGING.hold([key]);
    let mut stored = try_load(&fd)?;
    act(&mut stored);
    save(fd, stored, is_directory)
}

/// Writes the xattr of an inode that no other request knows.
pub(super) fn save(fd: impl AsFd, stored: Stored, is_directory: bool) -> Result<(), ShareError> {
    let bytes = stored.emit(is_directory);
    let fd = fd.as_fd();
    match rustix::fs::fsetxattr(fd, NAME, &bytes, XattrFlags::empty()) {
        Err(Errno::BADF) => {
            Ok(rustix::fs::setxattr(proc_name(fd), NAME, &bytes, XattrFlags::empty())?)
        }
        other => Ok(other?),
    }
}

/// Inodes whose xattr is being changed, of all shares: shares may overlap. No other lock is taken
/// under it.
static CHANGING: LazyLock<NameLocks> = LazyLock::new(NameLocks::default);

/// Whether a parsed value of the xattr keeps its meaning when it is written again: for the fuzz
/// targets. A value that this server did not write means nothing.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn is_kept(value: &[u8], is_directory: bool) -> bool {
    let Some(stored) = Stored::parse(value) else { return true };
    let written = stored.emit(is_directory);
    let again = Stored::parse(&written);
    again.is_some_and(|again| {
        let shows =
            |stored: Stored| (stored.effective(is_directory), stored.creation, stored.change);
        shows(again) == shows(stored) && again.emit(is_directory) == written
    })
}

const NAME: &str = "user.landfast.dos";
const VERSION: u32 = 1;
const LEN: usize = 16;
const LEN_MAX: usize = 32;
/// 20 ms: the kernel's clock of inodes ticks at least every 4 ms, and saving the xattr takes some
/// time.
const NOTING_TICKS: u64 = 200_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::{Binding, bind_to};
    use crate::rights::given::{MayAdd, MaySet};
    use crate::{BasicChange, Share, ShareConfig, SharePath};

    #[test]
    fn the_xattr_has_the_bytes_of_its_map() {
        let stored = Stored {
            attributes: Some(DosAttributes::HIDDEN.union(DosAttributes::READONLY)),
            creation: Some(0x0102_0304_0506_0708),
            sparse: false,
            change: None,
        };
        let golden = [1, 0, 0, 0, 3, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1];
        assert_eq!(stored.emit(false), golden);
        assert_eq!(Stored::parse(&golden), Some(stored));
        assert_eq!(Stored::parse(&golden[..15]), None);
        let sparse = Stored { sparse: true, ..stored };
        assert_eq!(sparse.emit(false)[4..8], [3, 2, 0, 0]);
        assert_eq!(Stored::parse(&sparse.emit(false)), Some(sparse));
    }

    #[test]
    fn a_change_time_counts_until_the_inode_changes_again() {
        let noted = NotedChange { time: 5, noted_at: 1_000_000 };
        let stored = Stored { change: Some(noted), ..Stored::default() };
        let bytes = stored.emit(false);
        assert_eq!(
            (bytes.len(), bytes[16], bytes[24..28].to_vec()),
            (32, 5, vec![0x40, 0x42, 15, 0])
        );
        assert_eq!(Stored::parse(&bytes).unwrap().change, Some(noted));
        assert_eq!(NotedChange::effective(Some(noted), 1_100_000), 5);
        assert_eq!(NotedChange::effective(Some(noted), 1_200_001), 1_200_001);
        assert_eq!(NotedChange::effective(None, 7), 7);
    }

    #[test]
    fn temporarily_unreadable_attributes_do_not_count_as_absent() {
        let none = Ok(Stored::default());
        for absent in [Errno::NODATA, Errno::RANGE, Errno::OPNOTSUPP] {
            assert_eq!(read(|_| Err(absent)), none, "{absent}");
        }
        assert_eq!(read(|_| Ok(0)), none, "foreign");
        for errno in [Errno::IO, Errno::NOMEM, Errno::ACCESS] {
            assert_eq!(read(|_| Err(errno)), Err(errno.into()));
        }
    }

    #[test]
    fn a_file_that_the_server_can_only_write_keeps_set_attributes() {
        let given = Stored { attributes: Some(DosAttributes::HIDDEN), ..Stored::default() };
        let hide = || {
            if rustix::process::geteuid().is_root() {
                let nobody = rustix::process::Uid::from_raw(65_534);
                // For this thread alone. Root may read everything.
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            let file = tempfile::tempfile_in("/var/tmp").unwrap();
            let set = |mode| rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(mode));
            set(0o200).unwrap();
            assert_eq!(try_load(&file), Ok(Stored::default()));
            assert_eq!(Binding::of(&file), Ok(None));
            save(&file, given, false).unwrap();
            // Now the file has an xattr that cannot be read.
            assert_eq!(try_load(&file), Err(ShareError::AccessDenied));
            bind_to(proc_name(&file).as_ref(), 5);
            assert_eq!(Binding::of(&file), Err(ShareError::AccessDenied));
            set(0o600).unwrap();
            assert_eq!(try_load(&file), Ok(given));
        };
        std::thread::scope(|scope| scope.spawn(hide).join().unwrap());
    }

    #[test]
    fn simultaneous_changes_of_attributes_are_both_kept() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        let path = SharePath::parse("f").unwrap();
        let entry = share.create_file(MayAdd::TEST, &path, DosAttributes::default()).unwrap();
        let hide =
            BasicChange { attributes: Some(DosAttributes::HIDDEN), ..BasicChange::default() };
        std::thread::scope(|scope| {
            let held = CHANGING.hold([entry.key()]);
            let changes = [
                scope.spawn(|| entry.set_sparse(MaySet::TEST, true)),
                scope.spawn(|| entry.set_basic(MaySet::TEST, hide)),
            ];
            while CHANGING.waiting(entry.key()) < changes.len() {
                assert!(!changes.iter().any(|change| change.is_finished()), "one did not wait");
                std::thread::yield_now();
            }
            drop(held);
            changes.into_iter().for_each(|change| change.join().unwrap().unwrap());
        });
        let both = DosAttributes::HIDDEN.union(DosAttributes::SPARSE);
        assert_eq!(entry.metadata().unwrap().attributes, both);
    }

    #[test]
    fn attributes_are_presented_as_windows_expects() {
        let none = Stored { attributes: Some(DosAttributes(0)), ..Stored::default() };
        assert_eq!(none.effective(false), DosAttributes::NORMAL);
        assert_eq!(none.effective(true), DosAttributes::DIRECTORY);
        assert_eq!(Stored::default().effective(false), DosAttributes::ARCHIVE);
    }
}
