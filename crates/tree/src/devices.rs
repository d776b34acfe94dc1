//! Nodes in a share that stand for bytes elsewhere: devices that a share shows as files.
//!
//! ```text
//!  the operator lists /dev/dax0.0            and gives it a name: mknod SHARE/log c 251 0
//!          | opened and mapped once,                  | found by a client
//!          v when the share opens                     v
//!   251:0 -> its body <------------------------ is its number listed? else a special file
//! ```
//!
//! A node in the share is only a name: it is never opened, so no node that a user makes there leads
//! to a device that the operator did not list.
//!
//! A regular file stands for the body of another crate in the same way: `shown`.
//!
//! Such a file always has the length of its device. Clients cannot empty, remove or rename it, and
//! it has no streams, extended attributes or holes, because a device node can hold none.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};

use super::body::{Body, Device, DeviceError};
use super::error::ShareError;
use super::inode::FileKey;

/// The bodies that one share may show.
#[derive(Default)]
pub(super) struct Devices {
    /// By the numbers of the nodes that stand for them.
    numbers: Vec<(u64, Arc<dyn Body>)>,
    /// By the regular files that stand for them: `shown`.
    files: Vec<(FileKey, Arc<dyn Body>)>,
}

impl Devices {
    /// Opens and maps each device; the error names the first that cannot be served.
    pub(super) fn open(paths: &[PathBuf], read_only: bool) -> Result<Self, (PathBuf, DeviceError)> {
        let open = |path: &PathBuf| match Device::open(path, read_only) {
            Ok((number, device)) => Ok((number, Arc::new(device) as Arc<dyn Body>)),
            Err(error) => Err((path.clone(), error)),
        };
        let numbers = paths.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { numbers, files: Vec::new() })
    }

    /// Lets a regular file stand for a body.
    pub(super) fn show(&mut self, file: FileKey, body: &Arc<dyn Body>) {
        self.files.push((file, Arc::clone(body)));
    }

    /// The body for which a regular file stands.
    pub(super) fn shown(&self, file: FileKey) -> Option<&Arc<dyn Body>> {
        self.files.iter().find(|(of, _)| *of == file).map(|(_, body)| body)
    }

    /// The body of a node; any other special file is refused.
    pub(super) fn behind(&self, node: impl AsFd) -> Result<Arc<dyn Body>, ShareError> {
        let stat = rustix::fs::statx(node, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
        let is_device = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::CharacterDevice;
        let number = rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor);
        let listed = self.numbers.iter().find(|(of, _)| is_device && *of == number);
        listed.map(|(_, body)| Arc::clone(body)).ok_or(ShareError::SpecialFile)
    }

    /// An entry of an open directory and its body, not following a symbolic link.
    pub(super) fn behind_at(
        &self,
        directory: impl AsFd,
        name: &str,
    ) -> Result<(OwnedFd, Arc<dyn Body>), ShareError> {
        if self.numbers.is_empty() {
            return Err(ShareError::SpecialFile);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let node = rustix::fs::openat(directory, name, flags, Mode::empty())?;
        let body = self.behind(&node)?;
        Ok((node, body))
    }

    /// A body under the number of any device.
    pub(super) fn showing(number: u64, body: Arc<dyn Body>) -> Self {
        Self { numbers: vec![(number, body)], files: Vec::new() }
    }

    /// A medium under the number of any device.
    pub(super) fn standing_in(number: u64, medium: Arc<dyn pmem::Medium>) -> Self {
        Self::showing(number, Arc::new(Device::of(medium)))
    }
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = self.numbers.iter().map(|(number, body)| (number as &dyn fmt::Debug, body));
        let files = self.files.iter().map(|(file, body)| (file as &dyn fmt::Debug, body));
        f.debug_map().entries(numbers.chain(files)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::path::Path;

    use crate::rights::given::{MayAdd, MayRemove, MaySet, MayWrite};
    use pmem::crash::{AckLog, Budget, CrashState, Recorder, check};
    use pmem::{CommitGroup, DurabilityClass, Medium};
    use rustix::fs::CWD;
    use rustix::io::Errno;

    use super::super::{
        BasicChange, DosAttributes, Entry, Enumeration, Flushes, Looks, Next, OpenMode, Pattern,
        Reach, Replace, Share, ShareConfig, ShareOpenError, SharePath, Span, StreamName, Writing,
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

    /// Flushes of what is no file of the kernel's.
    struct NoGroup;

    impl Flushes for NoGroup {
        fn group_of(&self, _file: BorrowedFd<'_>) -> Result<&CommitGroup, ShareError> {
            panic!("a device is flushed by itself");
        }
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
        entry.persist(&NoGroup).unwrap();
    }

    #[test]
    fn no_flush_succeeds_once_a_device_may_have_lost_bytes() {
        let (_dir, share, _) = share(NUMBER);
        let entry = open(&share, "log").unwrap();
        entry.persist(&NoGroup).unwrap();
        entry.poison(&NoGroup);
        // The device is the same by every name and handle.
        for entry in [entry, open(&share, "Dir\\log").unwrap()] {
            assert_eq!(entry.persist(&NoGroup), Err(ShareError::MediaPoisoned));
        }
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
