//! Operations of POSIX clients beyond those of others: permissions, owners, symbolic links.
//!
//! All files belong to the user of the server, and a client that enters a share may do in it what the
//! share allows: permission bits and owners are stored for clients and for local programs, which check
//! them.
//!
//! Two operations are refused to every client. A file does not get the right to run as its owner or group
//! (set-user-ID, set-group-ID): that would be the server's right. A link that leads out of the share is not
//! made: local programs would follow it.
//!
//! Spec: SMB3 POSIX extensions; chmod(2), chown(2), symlink(2).

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

use super::Share;
use super::entry::Entry;
use super::error::ShareError;
use super::hard_link::random_name;
use super::inode::identify;
use super::inode::proc_name;
use super::links;
use super::lookup::Found;
use super::name::SharePath;
use super::rights::MaySet;
use super::set_id::{SET_ID, Using};

impl Share {
    /// Sets permission bits.
    pub fn set_permissions(
        &self,
        _leave: impl MaySet,
        entry: &Entry,
        permissions: u32,
    ) -> Result<(), ShareError> {
        self.writable()?;
        entry.check_has_facts()?;
        if !entry.is_directory() && permissions & SET_ID != 0 {
            return Err(ShareError::NotPrivileged);
        }
        let mode = Mode::from_raw_mode(permissions & PERMISSIONS);
        let _using = (permissions & SET_ID != 0).then(Using::begin).transpose()?;
        // By name: the handle may be of O_PATH.
        match rustix::fs::chmod(proc_name(entry.facts_fd()), mode) {
            Err(Errno::PERM) => Err(ShareError::NotPrivileged),
            other => Ok(other?),
        }
    }

    /// Sets the permission bits of a new object: forbidden bits are left out, and the bit that a directory
    /// inherits from its parent (set-group-ID) stays.
    pub fn set_first_permissions(
        &self,
        leave: impl MaySet,
        entry: &Entry,
        permissions: u32,
    ) -> Result<(), ShareError> {
        let inherited = match entry.is_directory() {
            true => entry.metadata()?.posix.permissions & SET_ID,
            false => 0,
        };
        self.set_permissions(leave, entry, permissions & !SET_ID | inherited)
    }

    /// Sets owner and group; `None` leaves one unchanged. Needs a server with CAP_CHOWN, unless
    /// nothing changes.
    pub fn set_owner(
        &self,
        _leave: impl MaySet,
        entry: &Entry,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), ShareError> {
        self.writable()?;
        entry.check_has_facts()?;
        let owned = entry.metadata()?.posix;
        let uid = uid.filter(|uid| *uid != owned.uid);
        let gid = gid.filter(|gid| *gid != owned.gid);
        if uid.is_none() && gid.is_none() {
            return Ok(());
        }
        // The largest number means "unchanged" to the kernel, and belongs to no user.
        if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
            return Err(ShareError::PeerInvalid);
        }
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match rustix::fs::chownat(CWD, proc_name(entry.facts_fd()), uid, gid, AtFlags::empty()) {
            Err(Errno::PERM) => Err(ShareError::NotPrivileged),
            other => Ok(other?),
        }
    }

    /// The target of a link that was found, if it is inside the share.
    pub fn link_target(&self, found: &Found, path: &SharePath) -> Result<String, ShareError> {
        let target = rustix::fs::readlinkat(&found.anchor, "", Vec::new())?;
        let target = target.into_string().map_err(|_| ShareError::AccessDenied)?;
        if !links::leads_inside(path, &target) {
            return Err(ShareError::AccessDenied);
        }
        Ok(target)
    }

    /// Replaces a new, empty file or directory without streams by a symbolic link; the handle denotes the link
    /// from then on. No other client has the file open, nor opens it meanwhile.
    ///
    /// # Durability
    ///
    /// After a crash the name denotes the file or the link.
    ///
    /// # Errors
    ///
    /// Then nothing has changed.
    pub fn turn_into_link(
        &self,
        _leave: impl MaySet,
        entry: &Entry,
        path: &SharePath,
        target: &str,
    ) -> Result<(), ShareError> {
        self.writable()?;
        entry.check_has_facts()?;
        if entry.is_stream() {
            return Err(ShareError::Unsupported);
        }
        let parent = self.parent_of(path)?;
        let _linking = self.check_new_link(&parent, target)?;
        let directory = identify(&parent)?.0;
        let held = self.name_locks.hold([directory, entry.key()]);
        let _file = self.named(&parent, path, entry.key())?;
        let metadata = entry.metadata()?;
        if metadata.posix.is_link
            || metadata.size != 0
            || metadata.links > 1 && !metadata.is_directory
            || self.has_streams(entry.facts_fd())?
        {
            return Err(ShareError::Unsupported);
        }
        let _changing = self.changing(&parent)?;
        // The directory of new links lies on the top's file system: a file system mounted below has its own
        // names.
        let apart = self.new_links()?;
        let is_mounted = identify(&apart)?.0.device != directory.device;
        let random = &self.environment.random;
        let (new, name) = match is_mounted {
            true => (&parent, format!(".landfast-{}", random_name(random)?)),
            false => (&apart, random_name(random)?),
        };
        // No other request has a name there that only this one knows, but a sweep removes names that are not
        // locked.
        let swept = (!is_mounted).then(|| identify(new)).transpose()?.map(|(key, _)| key);
        let _held = (held, self.name_locks.hold(swept));
        rustix::fs::symlinkat(target, new, &*name)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let put = || {
            let link = rustix::fs::openat(new, &*name, flags, Mode::empty())?;
            put_in_place(new, &name, &parent, path.leaf(), entry.is_directory())?;
            Ok(link)
        };
        match self.names.change(&parent, put, Some(path.leaf()), None) {
            Ok(link) => entry.set_link(link),
            Err(error) => {
                let _ = rustix::fs::unlinkat(new, &*name, AtFlags::empty());
                return Err(error);
            }
        }
        Ok(())
    }
}

// Gives a link the name of a file, or of a directory if that is empty.
fn put_in_place(
    new: &OwnedFd,
    name: &str,
    parent: &OwnedFd,
    leaf: &str,
    is_directory: bool,
) -> Result<(), ShareError> {
    if !is_directory {
        return Ok(rustix::fs::renameat(new, name, parent, leaf)?);
    }
    // rename(2) does not replace a directory by a link: the two are exchanged.
    let exchange = || rustix::fs::renameat_with(new, name, parent, leaf, RenameFlags::EXCHANGE);
    exchange()?;
    match rustix::fs::unlinkat(new, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(()),
        Err(errno) => {
            exchange()?;
            Err(match errno {
                Errno::EXIST | Errno::NOTEMPTY => ShareError::DirectoryNotEmpty,
                other => other.into(),
            })
        }
    }
}

const PERMISSIONS: u32 = 0o7777;
