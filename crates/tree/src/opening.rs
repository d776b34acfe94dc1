//! From a path to an open file or directory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Share;
use super::entry::Entry;
use super::error::{ShareError, from_resolution};
use super::inode;
use super::lookup::{Found, open_beneath};
use super::metadata::Metadata;
use super::name::SharePath;
use super::rights::Writing;

/// The directions of data that an open needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenMode {
    /// Bytes will be read.
    pub read: bool,
    /// Bytes will be written: with leave.
    pub write: Option<Writing>,
}

impl Share {
    /// Opens an object that [`Share::locate`] found.
    pub fn open_found(&self, found: &Found, mode: OpenMode) -> Result<Entry, ShareError> {
        if mode.write.is_some() && !found.is_directory {
            self.writable()?;
        }
        if let Some(device) = &found.device {
            let anchor = rustix::io::fcntl_dupfd_cloexec(&found.anchor, 0)?;
            return Ok(Entry::of_device(anchor, found.key, Arc::clone(device)));
        }
        let file_system = self.mounts.of_stat(&found.anchor, &found.stat)?;
        if found.is_link {
            let link = rustix::io::fcntl_dupfd_cloexec(&found.anchor, 0)?;
            return Ok(Entry::of_link(link, found.key, file_system));
        }
        let name = inode::proc_name(&found.anchor);
        let common = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let open = |flags| rustix::fs::open(&*name, flags | common, Mode::empty());
        let fd = if found.is_directory {
            match open(OFlags::RDONLY | OFlags::DIRECTORY) {
                // Rights that the server took from itself can be restored.
                Err(Errno::ACCESS) if !mode.read => {
                    rustix::io::fcntl_dupfd_cloexec(&found.anchor, 0)?
                }
                other => other?,
            }
        } else if mode.write.is_some() {
            // Both directions even for a writer: mapping and compare operations read too.
            open(OFlags::RDWR)
                .or_else(|errno| if mode.read { Err(errno) } else { open(OFlags::WRONLY) })?
        } else if mode.read {
            open(OFlags::RDONLY)?
        } else {
            // Attributes only: a server that may not read the bytes may still see the inode.
            match open(OFlags::RDONLY) {
                Ok(fd) => fd,
                Err(_) => rustix::io::fcntl_dupfd_cloexec(&found.anchor, 0)?,
            }
        };
        Ok(Entry::new(fd, found.key, found.is_directory, file_system))
    }

    /// The metadata of an object that [`Share::locate`] found, without opening it.
    pub fn metadata_of(&self, found: &Found) -> Result<Metadata, ShareError> {
        match &found.device {
            Some(device) => Metadata::of_device(&found.anchor, &**device),
            None => Metadata::of_anchor(&found.anchor, &found.stat),
        }
    }

    /// The metadata of an entry of an open directory, if it stands for a listed device.
    pub(super) fn device_at(&self, directory: impl AsFd, name: &str) -> Option<Metadata> {
        let (node, device) = self.devices.behind_at(directory, name).ok()?;
        Metadata::of_device(node, &*device).ok()
    }

    /// The metadata of a regular file, whose bytes may be those of a body for which it stands.
    pub(super) fn as_shown(&self, file: Metadata) -> Metadata {
        match self.devices.shown(file.key) {
            Some(body) => file.of_body(&**body),
            None => file,
        }
    }

    /// The directory that holds the name of an object.
    pub(super) fn parent_of(&self, path: &SharePath) -> Result<OwnedFd, ShareError> {
        if path.is_root() {
            return Err(ShareError::AccessDenied);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match open_beneath(&self.root, path.parent().for_system(), flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => Err(ShareError::PathNotFound),
            other => other.map_err(from_resolution),
        }
    }
}
