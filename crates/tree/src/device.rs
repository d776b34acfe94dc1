//! Devices of persistent memory (devdax) that a share shows as files.
//!
//! ```text
//!  the operator lists /dev/dax0.0            and gives it a name: mknod SHARE/log c 251 0
//!          | opened and mapped once,                  | found by a client
//!          v when the share opens                     v
//!   Device { number, medium } <---------------- of a number that is listed? else a special file
//!   Device { number, medium } <---------------- is its number listed? else a special file
//!
//! A node in the share is only a name: it is never opened, so no node that a user makes there leads
//! to a device that the operator did not list. devdax has neither read(2) nor write(2): bytes are
//! read and written through the device's medium, and written bytes are durable when the write
//! returns.
//!
//! Such a file always has the length of its device. Clients cannot empty, remove or rename it, and
//! it has no streams, extended attributes or holes, because a device node can hold none.
//!
//! Spec: Linux Documentation/ABI/testing/sysfs-bus-dax.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmem::{DurabilityClass, MapError, Medium, MediumError, OpenOptions};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use thiserror::Error;
use tracing::info;

use super::attributes::proc_name;
use super::error::ShareError;

/// The devices that one share may show.
#[derive(Debug, Default)]
pub(super) struct Devices(Vec<Arc<Device>>);

impl Devices {
    /// Opens and maps each device; the error names the first that cannot be served.
    pub(super) fn open(paths: &[PathBuf], read_only: bool) -> Result<Self, (PathBuf, DeviceError)> {
        let open = |path: &PathBuf| match Device::open(path, read_only) {
            Ok(device) => Ok(Arc::new(device)),
            Err(error) => Err((path.clone(), error)),
        };
        paths.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// The device of a node; any other special file is refused.
    pub(super) fn behind(&self, node: impl AsFd) -> Result<Arc<Device>, ShareError> {
        let stat = rustix::fs::statx(node, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
        self.of_number(rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor))
            .filter(|_| is_device(stat.stx_mode.into()))
            .ok_or(ShareError::SpecialFile)
    }

    /// An entry of an open directory and its device, not following a symbolic link.
    pub(super) fn behind_at(
        &self,
        directory: impl AsFd,
        name: &str,
    ) -> Result<(OwnedFd, Arc<Device>), ShareError> {
        if self.0.is_empty() {
            return Err(ShareError::SpecialFile);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let node = rustix::fs::openat(directory, name, flags, Mode::empty())?;
        let device = self.behind(&node)?;
        Ok((node, device))
    }

    fn of_number(&self, number: u64) -> Option<Arc<Device>> {
        self.0.iter().find(|device| device.number == number).cloned()
    }

    /// A medium under the number of any device.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn standing_in(number: u64, medium: Arc<dyn Medium>) -> Self {
        Self(vec![Arc::new(Device { number, medium })])
    }
}

/// A whole device, mapped.
#[derive(Debug)]
pub struct Device {
    /// Major and minor, as `st_rdev` has them.
    number: u64,
    medium: Arc<dyn Medium>,
}

impl Device {
    fn open(path: &Path, read_only: bool) -> Result<Self, DeviceError> {
        let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = rustix::fs::fstat(&found)?;
        // Before the device is opened: opening some devices has side effects.
        if !is_device(stat.st_mode) {
            return Err(DeviceError::ConfigNotDax);
        }
        let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(rustix::fs::open(proc_name(&found), flags, Mode::empty())?);
        let medium = pmem::length(&file)
            .and_then(|len| pmem::map_file(&file, len, OpenOptions::default()))
            .map_err(|error| match error {
                MapError::ConfigNotMappable => DeviceError::ConfigNotDax,
                other => DeviceError::MediaMap(other),
            })?;
        let (bytes, class) = (medium.len(), medium.class());
        info!(path = %path.display(), bytes, %class, "a device may be shown as a file");
        Ok(Self { number: stat.st_rdev, medium })
    }

    /// The length of the device in bytes.
    pub(super) fn len(&self) -> u64 {
        self.medium.len()
    }

    /// The durability class of a write to the device.
    pub(super) fn class(&self) -> DurabilityClass {
        self.medium.class()
    }

    /// The medium of the device, for regions.
    pub fn medium(&self) -> &Arc<dyn Medium> {
        &self.medium
    }

    /// Appends `len` bytes without waiting. A short count means the end of the device. After an
    /// error nothing is appended.
    pub(super) fn try_read_at(
        &self,
        out: &mut Vec<u8>,
        len: usize,
        offset: u64,
    ) -> Result<usize, ShareError> {
        self.append(out, len, offset, |at, room| self.medium.try_read(at, room))
    }

    /// [`Device::try_read_at`] that may wait.
    pub(super) fn read_at(
        &self,
        out: &mut Vec<u8>,
        len: usize,
        offset: u64,
    ) -> Result<usize, ShareError> {
        self.append(out, len, offset, |at, room| self.medium.read(at, room))
    }

    fn append(
        &self,
        out: &mut Vec<u8>,
        len: usize,
        offset: u64,
        read: impl FnOnce(u64, &mut [u8]) -> Result<(), MediumError>,
    ) -> Result<usize, ShareError> {
        let (start, len) = (out.len(), self.within(len, offset));
        out.resize(start + len, 0);
        let read = read(offset.min(self.len()), &mut out[start..]);
        read.inspect_err(|_| out.truncate(start)).map_err(of_medium)?;
        Ok(len)
    }

    /// Writes without waiting, all bytes or none.
    ///
    /// # Durability
    ///
    /// As [`Device::write_at_durably`].
    pub(super) fn try_write_at_durably(&self, bytes: &[u8], offset: u64) -> Result<(), ShareError> {
        let len = self.check_room(bytes.len(), offset)?;
        self.medium.try_place(offset, bytes).map_err(of_medium)?;
        self.persist_range(offset, len)
    }

    /// Writes all of `bytes`, or nothing if they do not fit; may wait.
    ///
    /// # Durability
    ///
    /// After `Ok` the bytes survive a crash; before that each aligned word of 8 bytes may or may
    /// not survive.
    pub(super) fn write_at_durably(&self, bytes: &[u8], offset: u64) -> Result<(), ShareError> {
        let len = self.check_room(bytes.len(), offset)?;
        self.medium.place(offset, bytes).map_err(of_medium)?;
        self.persist_range(offset, len)
    }

    /// Every write has made its own bytes durable; a flush only reports memory that has failed.
    ///
    /// # Durability
    ///
    /// After `Ok`, every write that returned before this call survives a crash.
    pub fn persist(&self) -> Result<(), ShareError> {
        self.persist_range(0, self.len())
    }

    fn persist_range(&self, offset: u64, len: u64) -> Result<(), ShareError> {
        match self.medium.persist(offset, len) {
            // Memory that stands for a device in tests.
            Err(MediumError::VolatileRefused) => Ok(()),
            other => other.map_err(of_medium),
        }
    }

    // The part of a range that lies on the device.
    fn within(&self, len: usize, offset: u64) -> usize {
        let left = self.len().saturating_sub(offset);
        usize::try_from(left).map_or(len, |left| left.min(len))
    }

    fn check_room(&self, len: usize, offset: u64) -> Result<u64, ShareError> {
        let wide = u64::try_from(len).map_err(|_| ShareError::TooLarge)?;
        let end = offset.checked_add(wide);
        // A device does not grow.
        if end.is_none_or(|end| end > self.len()) { Err(ShareError::DiskFull) } else { Ok(wide) }
    }
}

/// Why a device cannot be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The path is a file, a disk, or another character device.
    #[error("it is no character device of persistent memory (devdax)")]
    ConfigNotDax,
    /// The device cannot be opened, or does not exist.
    #[error("it cannot be opened: {0}")]
    ConfigOpen(Errno),
    /// The device cannot be mapped.
    #[error("it cannot be mapped: {0}")]
    MediaMap(MapError),
}

impl From<Errno> for DeviceError {
    fn from(errno: Errno) -> Self {
        Self::ConfigOpen(errno)
    }
}

fn is_device(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::CharacterDevice
}

fn of_medium(error: MediumError) -> ShareError {
    match error {
        MediumError::WouldBlock => ShareError::WouldBlock,
        MediumError::ReadOnly => ShareError::ConfigReadOnly,
        MediumError::OutOfBounds { .. } | MediumError::Misaligned { .. } => ShareError::PeerInvalid,
        MediumError::MediaIo(errno) => ShareError::MediaIo(Errno::from_raw_os_error(errno)),
        MediumError::Truncated | MediumError::Poisoned | MediumError::VolatileRefused => {
            ShareError::MediaIo(Errno::IO)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::rights::given::{MayAdd, MayRemove, MaySet, MayWrite};
    use pmem::crash::{AckLog, Budget, CrashState, Recorder, check};
    use rustix::fs::CWD;

    use super::super::{
        BasicChange, DosAttributes, Entry, Enumeration, Looks, Next, OpenMode, Pattern, Reach,
        Replace, Share, ShareConfig, ShareOpenError, SharePath, Span, StreamName, Writing,
    };
    use super::*;

    /// A device number whose node can be made without privilege: 0:0.
    const NUMBER: u64 = 0;
    const LEN: u64 = 3 * 4096;

    /// A share with the nodes `log` and `Dir/log` of 0:0, for which the medium stands.
    fn share(number: u64) -> (tempfile::TempDir, Share, Arc<Recorder>) {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        std::fs::create_dir(dir.path().join("Dir")).unwrap();
        for name in ["log", "Dir/log"] {
            let (kind, mode) = (FileType::CharacterDevice, Mode::RUSR | Mode::WUSR);
            rustix::fs::mknodat(CWD, dir.path().join(name), kind, mode, NUMBER).unwrap();
        }
        let mut share = Share::open(&ShareConfig::new("data", dir.path())).unwrap();
        let recorder = Arc::new(Recorder::pmem(usize::try_from(LEN).unwrap()));
        share.devices = Devices::standing_in(number, Arc::clone(&recorder) as Arc<dyn Medium>);
        (dir, share, recorder)
    }

    fn path(text: &str) -> SharePath {
        SharePath::parse(text).unwrap()
    }

    fn open(share: &Share, name: &str) -> Result<Entry, ShareError> {
        let found = share.locate(&path(name))?.found.ok_or(ShareError::NotFound)?;
        share.open_found(&found, OpenMode { read: true, write: Some(Writing::by(MayWrite::TEST)) })
    }

    fn listed(share: &Share) -> Vec<(String, u64)> {
        let root = path("");
        let found = share.locate(&root).unwrap().found.unwrap();
        let entry = share.open_found(&found, OpenMode { read: true, write: None }).unwrap();
        let mut cursor = Enumeration::start(&entry, Pattern::parse("*o*").unwrap()).unwrap();
        let mut looks = Looks { left: usize::MAX, reach: Reach::Everywhere };
        let step = || match cursor.next(share, &entry, &root, &mut looks).unwrap() {
            Next::Found(listed) => Some(listed),
            Next::Paused | Next::End => None,
        };
        std::iter::from_fn(step).map(|listed| (listed.name, listed.metadata.size)).collect()
    }

    #[test]
    fn a_node_is_a_file_as_long_as_its_device_if_the_device_is_listed() {
        let (_dir, share, _) = share(NUMBER);
        for name in ["log", "LOG", "dir\\Log"] {
            let entry = open(&share, name).unwrap();
            let metadata = entry.metadata().unwrap();
            assert_eq!((metadata.size, metadata.allocation), (LEN, LEN), "{name}");
            assert!(!metadata.is_directory && !entry.is_directory());
            assert_eq!(metadata.key, entry.key());
            assert_eq!(entry.class(), DurabilityClass::Pmem);
            let root = share.locate(&path("")).unwrap().found.unwrap();
            let root = share.open_found(&root, OpenMode::default()).unwrap();
            let dax = |entry| share.volume_attributes(entry).0 & 0x2000_0000 != 0;
            assert!(dax(&entry) && !dax(&root), "FILE_DAX_VOLUME is the device's, not tmpfs's");
        }
        assert_eq!(share.class(), DurabilityClass::Volatile);
        assert_eq!(listed(&share), [("log".to_owned(), LEN)]);
    }

    #[test]
    fn a_node_of_any_other_device_is_a_special_file() {
        let (_dir, other, _) = share(rustix::fs::makedev(1, 3));
        assert_eq!(open(&other, "log").unwrap_err(), ShareError::SpecialFile);
        assert_eq!(listed(&other), []);
        // 1:3 is /dev/null; no other device is listed.
        let mut everything = Share::open(&ShareConfig::new("data", "/dev")).unwrap();
        for name in ["null", "zero"] {
            assert_eq!(open(&everything, name).unwrap_err(), ShareError::SpecialFile, "{name}");
        }
        everything.devices = other.devices;
        assert_eq!(open(&everything, "null").unwrap().metadata().unwrap().size, LEN);
        assert_eq!(open(&everything, "zero").unwrap_err(), ShareError::SpecialFile);
    }

    #[test]
    fn a_file_or_other_device_cannot_be_listed_as_devdax() {
        let (dir, ..) = share(NUMBER);
        let file = dir.path().join("file");
        std::fs::write(&file, [0; 4096]).unwrap();
        let refused = |device: &Path| {
            let devices = vec![device.to_owned()];
            let config = ShareConfig { devices, ..ShareConfig::new("data", dir.path()) };
            match Share::open(&config) {
                Err(ShareOpenError::ConfigDevice { path, source }) if path == device => source,
                other => panic!("{other:?}"),
            }
        };
        for path in [Path::new("/dev/null"), Path::new("/dev/zero"), &file, dir.path()] {
            let error = refused(path);
            assert!(matches!(error, DeviceError::ConfigNotDax), "{}: {error}", path.display());
        }
        let gone = refused(Path::new("/dev/dax77.7"));
        assert!(matches!(gone, DeviceError::ConfigOpen(Errno::NOENT)), "{gone}");
    }

    #[test]
    fn reads_and_writes_end_at_the_end_of_the_device() {
        let (_dir, share, _) = share(NUMBER);
        let entry = open(&share, "log").unwrap();
        entry.write_at(b"last", LEN - 4).unwrap();
        entry.try_write_at(b"first", 0).unwrap();
        let mut out = Vec::new();
        assert_eq!(entry.read_at(&mut out, 8, LEN - 4), Ok(4));
        assert_eq!(entry.try_read_at(&mut out, 5, 0), Ok(5));
        assert_eq!(out, *b"lastfirst");
        for offset in [LEN, LEN + 1, u64::MAX] {
            assert_eq!(entry.read_at(&mut out, 8, offset), Ok(0));
            assert_eq!(entry.try_read_at(&mut out, 8, offset), Ok(0));
        }
        assert_eq!(out, *b"lastfirst");
        // The device does not grow, and a write that does not fit is not begun.
        for offset in [LEN - 3, LEN, u64::MAX] {
            assert_eq!(entry.write_at(b"more", offset), Err(ShareError::DiskFull), "{offset}");
            assert_eq!(entry.try_write_at(b"more", offset), Err(ShareError::DiskFull));
        }
        assert_eq!(entry.read_at(&mut out, 8, LEN - 4), Ok(4));
        assert_eq!(out, *b"lastfirstlast");
    }

    #[test]
    fn a_write_is_durable_when_it_returns() {
        let (_dir, share, recorder) = share(NUMBER);
        let entry = open(&share, "log").unwrap();
        let mut acks = AckLog::new();
        for (number, len) in [(1_u8, 8), (2, 300), (3, 4096)] {
            let at = 61 + usize::from(number) * 100;
            let bytes = vec![number; len];
            match number {
                2 => entry.try_write_at(&bytes, at as u64).unwrap(),
                _ => entry.write_at(&bytes, at as u64).unwrap(),
            }
            acks.note(recorder.position(), (at, number, len));
        }
        // No write overwrites the first hundred bytes of another.
        let holds = |state: CrashState<'_, (usize, u8, usize)>| {
            let is_lost = |(_, (at, number, len)): &&(usize, (usize, u8, usize))| {
                let first = &state.image[*at..at + len.min(&100)];
                first.iter().any(|byte| byte != number)
            };
            state.acknowledged.iter().find(is_lost).map_or(Ok(()), |lost| Err(format!("{lost:?}")))
        };
        check(&recorder.log(), &acks, Budget { states_per_point: 200, seed: 1 }, holds).unwrap();
        entry.device().unwrap().persist().unwrap();
    }

    #[test]
    fn a_device_refuses_operations_of_regular_files() {
        let (dir, share, _) = share(NUMBER);
        let entry = open(&share, "log").unwrap();
        entry.write_at(b"kept", 0).unwrap();
        let unsupported = Err(ShareError::Unsupported);
        let span = Span { start: 0, end: 4096 };
        let attributes = Some(DosAttributes::HIDDEN);
        assert_eq!(entry.set_size(0), unsupported);
        assert_eq!(entry.set_allocation(LEN), unsupported);
        assert_eq!(entry.set_sparse(MaySet::TEST, true), unsupported);
        assert_eq!(entry.zero(span), unsupported);
        assert_eq!(entry.trim(span), unsupported);
        assert_eq!(
            entry.set_basic(MaySet::TEST, BasicChange { attributes, ..Default::default() }),
            unsupported
        );
        assert_eq!(
            entry.set_basic(
                MaySet::TEST,
                BasicChange { write: Some(1 << 60), ..Default::default() }
            ),
            Ok(())
        );
        assert_eq!(entry.metadata().unwrap().write, 1 << 60);
        assert_eq!(entry.reserve(0, LEN), Ok(()));
        assert_eq!(entry.allocated(span, 1).unwrap().0, [span]);
        let found = share.locate(&path("log")).unwrap().found.unwrap();
        let stream =
            share.create_stream(MayAdd::TEST, &found, &StreamName::parse("s").unwrap(), |_| ());
        assert_eq!(stream.unwrap_err(), ShareError::PeerStreamUnsupported);
        let file =
            share.create_file(MayAdd::TEST, &path("file"), DosAttributes::default()).unwrap();
        assert_eq!(entry.clone_from(&file, 0, 0, 1), unsupported);
        // The copy goes through memory.
        file.copy_from(&entry, 0, 0, 4).unwrap();
        let mut out = Vec::new();
        file.read_at(&mut out, 4, 0).unwrap();
        assert_eq!(out, *b"kept");
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        let before = names();
        let cannot = Err(ShareError::CannotDelete);
        assert_eq!(share.remove(MayRemove::TEST, &path("log"), entry.key(), false), cannot);
        assert_eq!(
            share.rename(MayRemove::TEST, &path("log"), &path("gol"), entry.key(), None),
            cannot
        );
        let replace = Some(Replace::of(entry.key(), MayRemove::TEST));
        assert_eq!(
            share.rename(MayRemove::TEST, &path("file"), &path("log"), file.key(), replace),
            cannot
        );
        assert_eq!(share.link(MayAdd::TEST, &file, &path("log"), replace), cannot);
        assert_eq!(share.link(MayAdd::TEST, &entry, &path("more"), None), unsupported);
        assert_eq!(names(), before);
        assert_eq!(open(&share, "log").unwrap().key(), entry.key());
    }
}
