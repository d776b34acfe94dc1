//! The part of a share's tree in which a file lies: what one mount shows, or, of the mount that holds the share's top, what
//! lies below the top.
//!
//! ```text
//!   share/             a part: the top
//!    f
//!     disk/            another file system, mounted: a part of its own
//!      g
//!
//!   xattr user.landfast.part of the directory of g's streams
//!  0        4   8       16             45
//!  +--------+---+-------+--------------+
//!  | version| 0 | inode | FileIdentity |   version 1; inode and identity of the part's topmost directory (disk)
//!  +--------+---+-------+--------------+
//! ```
//!
//! A file of a part that is not mounted looks like a file that was removed. Streams lie at the share's top and stay there,
//! so their directory notes the part of their file: a sweep that does not find the part removes nothing of its files.
//!
//! A part is known by its topmost directory, whatever is mounted where: a file system may be mounted elsewhere next time,
//! and a directory that is mounted over another (a bind mount) may be there while another one of its file system is not.
//!
//! Spec: statx(2) STATX_MNT_ID.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, XattrFlags};
use rustix::io::Errno;

use super::error::ShareError;
use super::identity::FileIdentity;
use super::inode::{identify, key, proc_name};
use super::top::resolved;

/// See the module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct MountedPart {
    inode: u64,
    identity: FileIdentity,
}

impl MountedPart {
    /// The part of which an open directory (or a file that is mounted alone) is the topmost. None where the file system has
    /// nothing to know it by.
    pub(super) fn from_topmost(topmost: impl AsFd) -> Result<Option<Self>, ShareError> {
        let inode = identify(&topmost)?.0.inode;
        Ok(FileIdentity::of(topmost)?.map(|identity| Self { inode, identity }))
    }

    /// The part of an open file of the share with this top.
    pub(super) fn of_file(top: &OwnedFd, file: impl AsFd) -> Result<Option<Self>, ShareError> {
        let mount = Mount::of(&file)?;
        if mount == Mount::of(top)? {
            return Self::from_topmost(top);
        }
        let mut topmost = rustix::io::fcntl_dupfd_cloexec(&file, 0)?;
        for above in resolved(&file, Path::new("")).ancestors().skip(1) {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            // Whoever moves the file meanwhile gets a part that no sweep finds, which removes nothing.
            let Ok(above) = rustix::fs::open(above, flags, Mode::empty()) else { break };
            if Mount::of(&above)? != mount {
                break;
            }
            topmost = above;
        }
        Self::from_topmost(topmost)
    }

    /// Whether both are one part.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.inode == other.inode && self.identity.is_of(&other.identity)
    }

    /// Notes the part at the directory of streams of one of its files. On a file system without xattrs nothing is noted.
    pub(super) fn note(&self, home: impl AsFd) -> Result<(), ShareError> {
        match rustix::fs::setxattr(proc_name(&home), PART, &self.emit(), XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }

    /// The part that a directory of streams notes; none where it notes none that this version knows.
    pub(super) fn noted(home: impl AsFd) -> Option<Self> {
        let mut bytes = [0; PART_LEN + 1];
        let len = rustix::fs::getxattr(proc_name(&home), PART, &mut bytes).ok()?;
        Self::parse(&bytes[..len])
    }

    fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PART_LEN);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.inode.to_le_bytes());
        self.identity.emit(&mut out);
        out
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let is_ours = bytes.len() == PART_LEN && bytes[..4] == VERSION.to_le_bytes();
        is_ours.then_some(())?;
        let inode = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
        FileIdentity::parse(&mut &bytes[16..]).map(|identity| Self { inode, identity })
    }

    /// Whether a parsed value of the xattr is the same after it is written again: for the fuzz targets.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn is_kept(value: &[u8]) -> bool {
        Self::parse(value).is_none_or(|part| Self::parse(&part.emit()) == Some(part))
    }
}

/// A mount as long as it is there.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Mount {
    Number(u64),
    /// Of a kernel that does not number mounts.
    Device(u64),
}

impl Mount {
    pub(super) fn of(fd: impl AsFd) -> Result<Self, ShareError> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let stat = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, wanted)?;
        Ok(match stat.stx_mask & StatxFlags::MNT_ID.bits() {
            0 => Self::Device(key(&stat).device),
            _ => Self::Number(stat.stx_mnt_id),
        })
    }
}

const PART: &str = "user.landfast.part";
const PART_LEN: usize = 45;
const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_of_a_part_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let open = |path: &Path| rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
        let home = open(dir.path());
        assert_eq!(MountedPart::noted(&home), None);
        let part = MountedPart { inode: 0x0102, identity: FileIdentity::TEST };
        part.note(&home).unwrap();
        assert_eq!(MountedPart::noted(&home), Some(part));
        let bytes = part.emit();
        assert_eq!(bytes[..17], [1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 3]);
        for len in 0..bytes.len() {
            assert_eq!(MountedPart::parse(&bytes[..len]), None);
        }
        assert!(!part.is(&MountedPart { inode: 3, ..part }) && part.is(&part));
    }

    #[test]
    fn a_file_below_the_top_is_of_the_tops_part() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("deep/er")).unwrap();
        std::fs::write(dir.path().join("deep/er/f"), "").unwrap();
        let open = |path: &Path| rustix::fs::open(path, OFlags::PATH, Mode::empty()).unwrap();
        let top = open(dir.path());
        let of_file = MountedPart::of_file(&top, open(&dir.path().join("deep/er/f"))).unwrap();
        assert_eq!(of_file, MountedPart::from_topmost(&top).unwrap());
    }
}
