//! Bodies of other crates under names of a share, such as a volume whose sectors are atomic.
//!
//! ```text
//!   Shown { name: "disk0", body }      SHARE/disk0
//!        |                                 |
//!        |   the bytes' own file lies there: it stands for them
//!        |   nothing lies there:             an empty file is made, and stands for them
//!        |   an empty file lies there:       it was made by an earlier server, or by the operator
//!        '-- any other file lies there:      refused, it has bytes of its own
//! ```
//!
//! The file gives the name, an inode for locks and leases, and its times; it is never opened. Clients cannot remove or
//! rename it. The own file of the bytes is shown as them under each of its names in this share: who read or wrote it
//! past its body would tear what the body keeps whole.

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::Share;
use super::config::{ShareOpenError, Shown};
use super::error::ShareError;
use super::inode::{self, FileKey};
use super::name::SharePath;
use super::pattern::same_name;

impl Share {
    /// Looks whether each body can have its name. Changes nothing.
    pub(super) fn look_at_shown(&self, shown: &[Shown]) -> Result<(), ShareOpenError> {
        for (index, one) in shown.iter().enumerate() {
            let path = SharePath::parse(&one.name).map_err(|error| refused(one, error))?;
            if path.is_root() || path.parent() != SharePath::root() {
                return Err(refused(one, ShareError::PeerPathSyntax));
            }
            // In whatever case clients write it.
            if shown[..index].iter().any(|other| same_name(&other.name, &one.name)) {
                return Err(refused(one, ShareError::Exists));
            }
            self.stand_in_of(one).map_err(|error| refused(one, error))?;
        }
        Ok(())
    }

    /// Shows the bodies, with new files for those whose names are free.
    pub(super) fn begin_to_show(&mut self, shown: &[Shown]) -> Result<(), ShareOpenError> {
        for one in shown {
            let found = self.stand_in_of(one).map_err(|error| refused(one, error))?;
            let key = match found {
                Some(key) => key,
                None => self.make_stand_in(one).map_err(|error| refused(one, error))?,
            };
            self.devices.show(key, &one.body);
            if let Some(own) = one.file {
                self.devices.show(own, &one.body);
            }
        }
        Ok(())
    }

    // The file that has the name and may stand for the bytes.
    fn stand_in_of(&self, shown: &Shown) -> Result<Option<FileKey>, ShareError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match rustix::fs::openat(&self.root, &*shown.name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let stat = inode::stat(&found)?;
        let key = inode::key(&stat);
        let is_free = stat.stx_size == 0 && stat.stx_nlink == 1;
        match inode::kind(&stat) {
            FileType::RegularFile if is_free || shown.file == Some(key) => Ok(Some(key)),
            FileType::Directory => Err(ShareError::IsDirectory),
            _ => Err(ShareError::Exists),
        }
    }

    fn make_stand_in(&self, shown: &Shown) -> Result<FileKey, ShareError> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDONLY | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let made = rustix::fs::openat(&self.root, &*shown.name, flags, mode)?;
        Ok(inode::identify(&made)?.0)
    }
}

fn refused(shown: &Shown, source: ShareError) -> ShareOpenError {
    ShareOpenError::ConfigShown { name: shown.name.clone(), source }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use pmem::DurabilityClass;

    use super::super::{
        Body, Entry, Enumeration, Flushes, InlineIo, Looks, MapRefusal, Mappable, Next, OpenMode,
        Pattern, Reach, Replace, Share, ShareConfig, Span, Writing,
    };
    use super::*;
    use crate::rights::given::{MayAdd, MayRemove, MaySet, MayWrite};

    /// 300 sevens.
    #[derive(Debug)]
    struct Sevens;

    impl Body for Sevens {
        fn class(&self) -> DurabilityClass {
            DurabilityClass::Pmem
        }

        fn inline_io(&self) -> InlineIo {
            InlineIo::CachedReads
        }

        fn size(&self) -> Result<u64, ShareError> {
            Ok(300)
        }

        fn try_read_at(&self, _: &mut Vec<u8>, _: usize, _: u64) -> Result<usize, ShareError> {
            Err(ShareError::WouldBlock)
        }

        fn read_at(&self, out: &mut Vec<u8>, len: usize, _: u64) -> Result<usize, ShareError> {
            out.resize(out.len() + len, 7);
            Ok(len)
        }

        fn try_write_at(&self, _: &[u8], _: u64) -> Result<(), ShareError> {
            Err(ShareError::WouldBlock)
        }

        fn write_at(&self, _: &[u8], _: u64) -> Result<(), ShareError> {
            Ok(())
        }

        fn persist(&self, _: &dyn Flushes) -> Result<(), ShareError> {
            Ok(())
        }

        fn poison(&self, _: &dyn Flushes) {}

        fn is_sparse(&self) -> bool {
            true
        }

        fn zero(&self, _: Span, is_sparse: bool) -> Result<(), ShareError> {
            if is_sparse { Ok(()) } else { Err(ShareError::Unsupported) }
        }

        fn mappable(&self) -> Result<&dyn Mappable, MapRefusal> {
            Err(MapRefusal::SectorAtomic)
        }
    }

    fn config(top: &Path, names: &[&str]) -> ShareConfig {
        let shown = |name: &&str| Shown::new(*name, "/nowhere/sevens", Arc::new(Sevens));
        let shown = names.iter().map(shown).collect();
        ShareConfig { shown, ..ShareConfig::new("data", top) }
    }

    fn serving(config: &ShareConfig) -> Share {
        let mut share = Share::open(config).unwrap();
        share.take_over().unwrap();
        share
    }

    fn path(text: &str) -> SharePath {
        SharePath::parse(text).unwrap()
    }

    fn open(share: &Share, name: &str) -> Entry {
        let found = share.locate(&path(name)).unwrap().found.unwrap();
        let mode = OpenMode { read: true, write: Some(Writing::by(MayWrite::TEST)) };
        share.open_found(&found, mode).unwrap()
    }

    #[test]
    fn a_body_is_a_file_of_its_own_length_that_stays_under_its_name() {
        let top = tempfile::tempdir().unwrap();
        let config = config(top.path(), &["Disk"]);
        Share::open(&config).unwrap();
        assert!(!top.path().join("Disk").exists(), "nothing is made before the share is served");
        // An earlier server has left the file that stands for it.
        for _ in 0..2 {
            let share = serving(&config);
            let entry = open(&share, "DISK");
            let metadata = entry.metadata().unwrap();
            assert_eq!((metadata.size, metadata.allocation), (300, 300));
            let mut out = Vec::new();
            assert_eq!(entry.read_at(&mut out, 3, 0), Ok(3));
            assert_eq!(out, [7; 3]);
            assert_eq!(entry.class(), DurabilityClass::Pmem);
            assert!(share.volume_attributes(&entry).0 & 0x2000_0000 == 0, "it is never mapped");
            assert_eq!(entry.set_size(0), Err(ShareError::Unsupported));
            assert_eq!(entry.set_sparse(MaySet::TEST, true), Ok(()));
            assert_eq!(entry.zero(Span { start: 0, end: 9 }), Ok(()));
            let cannot = Err(ShareError::CannotDelete);
            assert_eq!(share.remove(MayRemove::TEST, &path("Disk"), entry.key(), false), cannot);
            let to = path("other");
            assert_eq!(
                share.rename(MayRemove::TEST, &path("Disk"), &to, entry.key(), None),
                cannot
            );
            let replace = Some(Replace::of(entry.key(), MayRemove::TEST));
            assert_eq!(
                share.link(MayAdd::TEST, &entry, &to, replace),
                Err(ShareError::Unsupported)
            );
        }
        assert_eq!(std::fs::metadata(top.path().join("Disk")).unwrap().len(), 0);
    }

    #[test]
    fn a_listing_has_the_length_of_a_body() {
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join("plain"), "12").unwrap();
        let share = serving(&config(top.path(), &["disk"]));
        let root = path("");
        let found = share.locate(&root).unwrap().found.unwrap();
        let entry = share.open_found(&found, OpenMode { read: true, write: None }).unwrap();
        for pattern in ["*", "disk"] {
            let mut cursor = Enumeration::start(&entry, Pattern::parse(pattern).unwrap()).unwrap();
            let mut looks = Looks { left: usize::MAX, reach: Reach::Everywhere };
            let mut sizes = Vec::new();
            while let Next::Found(listed) = cursor.next(&share, &entry, &root, &mut looks).unwrap()
            {
                sizes.extend((listed.name == "disk").then_some(listed.metadata.size));
            }
            assert_eq!(sizes, [300], "{pattern}");
        }
    }

    #[test]
    fn a_body_does_not_hide_a_file_that_has_bytes() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("directory")).unwrap();
        std::fs::write(top.path().join("bytes"), "b").unwrap();
        std::fs::write(top.path().join("one"), "").unwrap();
        std::fs::hard_link(top.path().join("one"), top.path().join("two")).unwrap();
        std::os::unix::fs::symlink("nowhere", top.path().join("link")).unwrap();
        for names in [
            &["directory"][..],
            &["bytes"],
            &["one"],
            &["link"],
            &["a/b"],
            &[""],
            &["a:b"],
            &["a", "A"],
        ] {
            let refused = Share::open(&config(top.path(), names)).unwrap_err();
            assert!(matches!(refused, ShareOpenError::ConfigShown { .. }), "{names:?}: {refused}");
        }
    }

    #[test]
    fn the_own_file_of_the_bytes_is_never_seen_bare() {
        let top = tempfile::tempdir().unwrap();
        let own = top.path().join("own");
        std::fs::write(&own, "the bare bytes").unwrap();
        std::fs::hard_link(&own, top.path().join("again")).unwrap();
        for name in ["own", "beside"] {
            let shown = vec![Shown::new(name, &own, Arc::new(Sevens))];
            let share = serving(&ShareConfig { shown, ..ShareConfig::new("data", top.path()) });
            for name in [name, "own", "again"] {
                assert_eq!(open(&share, name).metadata().unwrap().size, 300, "{name}");
            }
        }
    }
}
