//! The volumes that shares of a server show, open for as long as it serves them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tree::{Body, Shown};
use volume::Access;

use super::opened;
use super::shown::DeviceFile;
use crate::config::{Share, SharedVolume};
use crate::failure::Failure;

/// See the module. A config that is read again finds its volumes open.
#[derive(Debug, Default)]
pub(crate) struct SharedVolumes(Vec<One>);

#[derive(Debug)]
struct One {
    path: PathBuf,
    body: Arc<DeviceFile>,
}

impl SharedVolumes {
    /// The volumes of a share as files. Those that are not open yet are locked and opened.
    ///
    /// # Errors
    /// A volume cannot be opened, or is in use.
    pub(crate) fn of(&mut self, share: &Share, emulates: bool) -> Result<Vec<Shown>, Failure> {
        // A share that was removed has let go of its volumes.
        self.0.retain(|one| Arc::strong_count(&one.body) > 1);
        let access = access_of(share);
        let show = |volume: &SharedVolume| {
            let body = self.open(&volume.path, access, emulates)? as Arc<dyn Body>;
            Ok(Shown::new(&*volume.name, &*volume.path, body))
        };
        share.volumes.iter().map(show).collect()
    }

    fn open(
        &mut self,
        path: &Path,
        access: Access,
        emulates: bool,
    ) -> Result<Arc<DeviceFile>, Failure> {
        let open = |access| {
            let opened = opened::device(path, access, emulates);
            let opened = opened.map_err(Failure::volume("cannot share the volume", path));
            opened.map(|(device, _)| device)
        };
        if let Some(known) = self.0.iter().find(|one| one.path == path) {
            // The share was read-only so far.
            if access == Access::ReadWrite && known.body.is_read_only() {
                known.body.exchange(|| open(access), || open(Access::ReadOnly))?;
            }
            return Ok(Arc::clone(&known.body));
        }
        let body = Arc::new(DeviceFile::new(open(access)?));
        self.0.push(One { path: path.to_owned(), body: Arc::clone(&body) });
        Ok(body)
    }

    /// Looks whether the volumes of a share are there and fit; a server that runs may have them open. The files that it
    /// returns are not to be served: nobody is kept from the volumes.
    pub(crate) fn look(share: &Share, emulates: bool) -> Result<Vec<Shown>, Failure> {
        let look = |SharedVolume { name, path }: &SharedVolume| {
            let found = opened::look(path, access_of(share), emulates);
            let device = found.map_err(Failure::volume("cannot share the volume", path))?;
            let body = Arc::new(DeviceFile::new(device)) as Arc<dyn Body>;
            Ok(Shown::new(&**name, &**path, body))
        };
        share.volumes.iter().map(look).collect()
    }
}

fn access_of(share: &Share) -> Access {
    if share.read_only { Access::ReadOnly } else { Access::ReadWrite }
}

#[cfg(test)]
mod tests {
    use tree::Flushes;

    use super::*;

    struct NoGroup;

    impl Flushes for NoGroup {
        fn group_of(
            &self,
            _file: std::os::fd::BorrowedFd<'_>,
        ) -> Result<&pmem::CommitGroup, tree::ShareError> {
            panic!("a device is flushed by itself");
        }
    }

    #[test]
    fn a_volume_takes_writes_once_its_share_is_writable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        std::fs::write(&path, [7; 8192]).unwrap();
        let mut volumes = SharedVolumes::default();
        let body = volumes.open(&path, Access::ReadOnly, false).unwrap();
        body.write_at(b"refused", 0).unwrap_err();
        let again = volumes.open(&path, Access::ReadWrite, false).unwrap();
        assert!(Arc::ptr_eq(&body, &again));
        body.write_at(b"taken", 0).unwrap();
        body.persist(&NoGroup).unwrap();
        assert_eq!(&std::fs::read(&path).unwrap()[..6], b"taken\x07");
        // One that goes back to read-only keeps its device: the share refuses the writes.
        volumes.open(&path, Access::ReadOnly, false).unwrap();
        body.write_at(b"taken", 0).unwrap();
    }

    #[test]
    fn a_volume_that_a_start_would_refuse_is_refused_by_a_look() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("disk");
        std::fs::write(&path, [7; 8192]).unwrap();
        let mut share = Share::new("data", directory.path().to_owned());
        share.volumes.push(SharedVolume { name: "disk".to_owned(), path });
        for (emulates, read_only, is_fit) in
            [(false, false, false), (true, false, true), (false, true, true)]
        {
            share.read_only = read_only;
            let looked = SharedVolumes::look(&share, emulates).map(drop);
            let taken = SharedVolumes::default().of(&share, emulates).map(drop);
            assert_eq!(looked.is_ok(), is_fit, "{looked:?}");
            assert_eq!(taken.is_ok(), is_fit, "{taken:?}");
            assert_eq!(looked.map_err(|it| it.to_string()), taken.map_err(|it| it.to_string()));
        }
        // Neither is a volume.
        std::fs::write(directory.path().join("short"), [7; 4]).unwrap();
        for name in ["short", "."] {
            share.volumes[0].path = directory.path().join(name);
            let looked = SharedVolumes::look(&share, true).map(drop).map_err(|it| it.to_string());
            let taken = SharedVolumes::default().of(&share, true).map(drop);
            assert_eq!(looked, taken.map_err(|it| it.to_string()), "{name}");
        }
        // A server that runs has it.
        share.volumes[0].path = directory.path().join("disk");
        let mut volumes = SharedVolumes::default();
        let shown = volumes.of(&share, false).unwrap();
        SharedVolumes::look(&share, false).unwrap();
        drop(shown);
    }

    #[test]
    fn a_volume_that_cannot_be_opened_for_writing_is_read_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        std::fs::write(&path, [7; 8192]).unwrap();
        let body = DeviceFile::new(opened::device(&path, Access::ReadOnly, false).unwrap().0);
        let refuse = || Err(());
        let back = || Ok(opened::device(&path, Access::ReadOnly, false).unwrap().0);
        assert_eq!(body.exchange(refuse, back), Err(()));
        let mut out = Vec::new();
        assert_eq!(body.read_at(&mut out, 4, 0), Ok(4));
        assert_eq!(body.exchange(refuse, refuse), Err(()));
        body.read_at(&mut out, 4, 0).unwrap_err();
    }
}
