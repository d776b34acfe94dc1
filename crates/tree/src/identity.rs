//! Distinguishes a file from a later file with the same inode number.
//!
//! ```text
//!  0        1             9              13           21            29
//!  +--------+-------------+--------------+------------+-------------+
//!  | known  | birth, s    | birth, ns    | generation | file system |
//!  | 1 2    | i64         | u32          | u64        | u64         |
//!  +--------+-------------+--------------+------------+-------------+
//!     1: the birth is known, 2: the generation is known; unknown fields are 0
//! ```
//!
//! ext4 gives a freed inode number to the next new file. That file has a later birth and another generation. While
//! a file is open its number is not reused, so only notes for a later time need this.
//!
//! Spec: statx(2) stx_btime; FS_IOC_GETVERSION, ioctl_xfs and ext4; statfs(2) f_fsid.
//!
//! # Safety rules of this module
//!
//! FS_IOC_GETVERSION writes an `int` or a `long` where its argument points: eight initialised bytes are there.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FsWord, Mode, OFlags};
use rustix::ioctl::{Opcode, Updater, opcode};

use super::error::ShareError;
use super::inline::{BCACHEFS, BTRFS, EXT, TMPFS, ZFS};
use super::inode::{birth, proc_name};

/// See the module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileIdentity {
    /// Seconds and nanoseconds of the Unix epoch.
    birth: Option<(i64, u32)>,
    generation: Option<u64>,
    /// Zero if it does not outlast the boot, or is unknown.
    file_system: u64,
}

impl FileIdentity {
    /// The identity of an open file; none if its file system has no distinguishing fact. Blocks.
    ///
    /// # Errors
    ///
    /// The file cannot be examined.
    pub fn of(fd: impl AsFd) -> Result<Option<Self>, ShareError> {
        let birth = birth(&fd)?;
        let generation = generation(&fd);
        let file_system = file_system(&fd)?;
        let is_known = birth.is_some() || generation.is_some();
        Ok(is_known.then_some(Self { birth, generation, file_system }))
    }

    /// Whether two identities are of one file, as far as both are known.
    pub fn is_of(&self, other: &Self) -> bool {
        let births = self.birth.zip(other.birth).map(|(one, two)| one == two);
        let generations = self.generation.zip(other.generation).map(|(one, two)| one == two);
        let says = births.is_some() || generations.is_some();
        let both_known = self.file_system != 0 && other.file_system != 0;
        let file_systems = !both_known || self.file_system == other.file_system;
        says && births != Some(false) && generations != Some(false) && file_systems
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let known = u8::from(self.birth.is_some()) | u8::from(self.generation.is_some()) << 1;
        let (seconds, nanoseconds) = self.birth.unwrap_or_default();
        out.push(known);
        out.extend_from_slice(&seconds.to_le_bytes());
        out.extend_from_slice(&nanoseconds.to_le_bytes());
        out.extend_from_slice(&self.generation.unwrap_or_default().to_le_bytes());
        out.extend_from_slice(&self.file_system.to_le_bytes());
    }

    /// None if the bytes are not an identity.
    pub(super) fn parse(bytes: &mut &[u8]) -> Option<Self> {
        let known = take::<1>(bytes)?[0];
        let seconds = i64::from_le_bytes(take(bytes)?);
        let nanoseconds = u32::from_le_bytes(take(bytes)?);
        let generation = u64::from_le_bytes(take(bytes)?);
        let file_system = u64::from_le_bytes(take(bytes)?);
        Some(Self {
            birth: (known & 1 != 0).then_some((seconds, nanoseconds)),
            generation: (known & 2 != 0).then_some(generation),
            file_system,
        })
    }

    /// An identity for tests.
    #[cfg(test)]
    pub(crate) const TEST: Self = Self { birth: Some((1, 2)), generation: Some(3), file_system: 4 };
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

// A file that the server may not read, or on a file system without generations, has none.
fn generation(fd: impl AsFd) -> Option<u64> {
    // The handle may be of O_PATH, which takes no ioctl.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file: OwnedFd = rustix::fs::open(proc_name(fd), flags, Mode::empty()).ok()?;
    let mut words = [0_u32; 2];
    // SAFETY: the kernel reads nothing, and writes at most the eight bytes there are.
    let request = unsafe { Updater::<GETVERSION, [u32; 2]>::new(&mut words) };
    // SAFETY: the opcode is that of FS_IOC_GETVERSION, whose argument `request` is.
    unsafe { rustix::ioctl::ioctl(&file, request) }.ok()?;
    Some(u64::from(words[0]) | u64::from(words[1]) << 32)
}

fn file_system(fd: impl AsFd) -> Result<u64, ShareError> {
    let lasts = LASTING.contains(&rustix::fs::fstatfs(&fd)?.f_type);
    Ok(if lasts { rustix::fs::fstatvfs(&fd)?.f_fsid } else { 0 })
}

/// File systems that derive f_fsid from their UUID. XFS, F2FS and others derive it from the device number,
/// which may change at a boot.
const LASTING: [FsWord; 5] = [BCACHEFS, BTRFS, EXT, TMPFS, ZFS];

/// FS_IOC_GETVERSION: Linux uapi/linux/fs.h.
const GETVERSION: Opcode = opcode::read::<std::ffi::c_long>(b'v', 1);

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_file_has_one_identity_by_every_handle() {
        for place in ["/var/tmp", "/dev/shm"] {
            let dir = tempfile::tempdir_in(place).unwrap();
            let path = dir.path().join("f");
            let first = File::create(&path).unwrap();
            let identity = FileIdentity::of(&first).unwrap().unwrap();
            let again = FileIdentity::of(File::open(&path).unwrap()).unwrap().unwrap();
            assert!(identity.is_of(&again), "{identity:?} {again:?}");
            let anchor = rustix::fs::open(&path, OFlags::PATH, Mode::empty()).unwrap();
            assert!(FileIdentity::of(anchor).unwrap().unwrap().is_of(&identity));
            // Made in another tick of the file system's clock.
            let other = loop {
                let other = File::create(dir.path().join("g")).unwrap();
                let other = FileIdentity::of(&other).unwrap().unwrap();
                std::fs::remove_file(dir.path().join("g")).unwrap();
                if other.birth != identity.birth {
                    break other;
                }
            };
            assert!(!identity.is_of(&other), "{identity:?} {other:?}");
        }
    }

    #[test]
    fn two_identities_match_only_if_a_known_field_agrees() {
        let one = FileIdentity::TEST;
        let cases = [
            (one, true),
            (FileIdentity { birth: Some((1, 3)), ..one }, false),
            (FileIdentity { generation: Some(4), ..one }, false),
            (FileIdentity { file_system: 5, ..one }, false),
            (FileIdentity { file_system: 0, ..one }, true),
            (FileIdentity { birth: None, ..one }, true),
            (FileIdentity { generation: None, ..one }, true),
            (FileIdentity { birth: None, generation: None, ..one }, false),
        ];
        for (other, is_one) in cases {
            assert_eq!((one.is_of(&other), other.is_of(&one)), (is_one, is_one), "{other:?}");
        }
    }

    #[test]
    fn an_identity_parses_as_it_was_emitted() {
        let none = FileIdentity { birth: None, generation: None, ..FileIdentity::TEST };
        for identity in [FileIdentity::TEST, none] {
            let mut bytes = Vec::new();
            identity.emit(&mut bytes);
            assert_eq!(bytes.len(), 29);
            assert_eq!(FileIdentity::parse(&mut &bytes[..]), Some(identity));
            assert_eq!(FileIdentity::parse(&mut &bytes[..28]), None);
        }
    }
}
