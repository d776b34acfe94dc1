//! What POSIX clients do to files beyond what others can: permissions, owners, symbolic links.
//!
//! All files belong to whom the server runs as, and who enters a share may do in it what the share allows:
//! permission bits and owners are kept for clients and for local programs, and checked by them.
//!
//! Two things are not done for anybody. A file is not given the right to run as its owner or group
//! (set-user-ID, set-group-ID): it would be the server's right. A link is not made that leads out of the share:
//! local programs would follow it.
//!
//! Spec: SMB3 POSIX extensions; chmod(2), chown(2), symlink(2).

use std::os::fd::AsFd as _;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid};

use crate::access::MaySet;

use super::Share;
use super::attributes::proc_name;
use super::entry::Entry;
use super::error::ShareError;
use super::links;
use super::lookup::Found;
use super::name::SharePath;

impl Share {
    /// Sets permission bits.
    pub(crate) fn set_permissions(
        &self,
        _leave: MaySet,
        entry: &Entry,
        permissions: u32,
    ) -> Result<(), ShareError> {
        self.writable()?;
        entry.not_on_devices()?;
        if !entry.is_directory() && permissions & SET_ID != 0 {
            return Err(ShareError::NotPrivileged);
        }
        let mode = Mode::from_raw_mode(permissions & PERMISSIONS);
        // By name: the handle may be of O_PATH.
        match rustix::fs::chmod(proc_name(entry.facts_fd()), mode) {
            Err(rustix::io::Errno::PERM) => Err(ShareError::NotPrivileged),
            other => Ok(other?),
        }
    }

    /// Sets the permission bits of something new: what it may not have is left out, and what a directory has
    /// from its parent (set-group-ID) stays.
    pub(crate) fn set_first_permissions(
        &self,
        leave: MaySet,
        entry: &Entry,
        permissions: u32,
    ) -> Result<(), ShareError> {
        let inherited = match entry.is_directory() {
            true => entry.metadata()?.posix.permissions & SET_ID,
            false => 0,
        };
        self.set_permissions(leave, entry, permissions & !SET_ID | inherited)
    }

    /// Sets owner and group; `None` leaves one alone. Needs a server that may (CAP_CHOWN), unless
    /// nothing changes.
    pub(crate) fn set_owner(
        &self,
        _leave: MaySet,
        entry: &Entry,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), ShareError> {
        self.writable()?;
        entry.not_on_devices()?;
        let owned = entry.metadata()?.posix;
        let uid = uid.filter(|uid| *uid != owned.uid);
        let gid = gid.filter(|gid| *gid != owned.gid);
        if uid.is_none() && gid.is_none() {
            return Ok(());
        }
        // The largest number means "leave alone" to the kernel, and is nobody's.
        if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
            return Err(ShareError::PeerInvalid);
        }
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match rustix::fs::chownat(CWD, proc_name(entry.facts_fd()), uid, gid, AtFlags::empty()) {
            Err(rustix::io::Errno::PERM) => Err(ShareError::NotPrivileged),
            other => Ok(other?),
        }
    }

    /// Where a link that was found points to, if that is inside the share.
    pub fn link_target(&self, found: &Found, path: &SharePath) -> Result<String, ShareError> {
        let target = rustix::fs::readlinkat(&found.anchor, "", Vec::new())?;
        let target = target.into_string().map_err(|_| ShareError::AccessDenied)?;
        if !links::leads_inside(path, &target) {
            return Err(ShareError::AccessDenied);
        }
        Ok(target)
    }

    /// Puts a symbolic link in the place of a new, empty file or directory; the handle stands for the
    /// link from then on.
    pub(crate) fn turn_into_link(
        &self,
        _leave: MaySet,
        entry: &Entry,
        path: &SharePath,
        target: &str,
    ) -> Result<(), ShareError> {
        self.writable()?;
        entry.not_on_devices()?;
        let parent = self.parent_of(path)?;
        let _linking = self.check_new_link(&parent, target)?;
        let metadata = entry.metadata()?;
        if metadata.posix.is_link
            || metadata.size != 0
            || metadata.links > 1 && !metadata.is_directory
        {
            return Err(ShareError::Unsupported);
        }
        // Only if it is still there, and empty.
        self.take_away(path, entry.key(), entry.is_directory())?;
        let _changing = self.changing(&parent)?;
        let make = || Ok(rustix::fs::symlinkat(target, &parent, path.leaf())?);
        self.names.change(&parent, make, Some(path.leaf()), None)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = rustix::fs::openat(parent.as_fd(), path.leaf(), flags, Mode::empty())?;
        entry.set_link(link);
        Ok(())
    }
}

const PERMISSIONS: u32 = 0o7777;
/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;
