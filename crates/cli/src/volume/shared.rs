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
        let access = if share.read_only { Access::ReadOnly } else { Access::ReadWrite };
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
        if let Some(open) = self.0.iter().find(|one| one.path == path) {
            return Ok(Arc::clone(&open.body));
        }
        let opened = opened::device(path, access, emulates);
        let (device, _) = opened.map_err(Failure::volume("cannot share the volume", path))?;
        let body = Arc::new(DeviceFile::new(device));
        self.0.push(One { path: path.to_owned(), body: Arc::clone(&body) });
        Ok(body)
    }

    /// Looks whether the volumes of a share are there; a server that runs may have them open.
    pub(crate) fn look(share: &Share) -> Result<(), Failure> {
        share.volumes.iter().try_for_each(|SharedVolume { path, .. }| {
            let found = opened::file(path, Access::ReadOnly);
            found.map(drop).map_err(Failure::volume("cannot share the volume", path))
        })
    }
}
