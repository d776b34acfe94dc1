//! Set-user-ID and set-group-ID bits, and capabilities of files: bytes of a client never run with them.
//!
//! ```text
//!   WRITE, copies, zeros, holes, sizes   the kernel clears them, except for a thread with CAP_FSETID: a server
//!                                        of root does not use it ([`withhold_set_id`])
//!   bytes pushed by RDMA                 the kernel clears nothing for a mapping: MAP does before it maps
//! ```
//!
//! The set-group-ID bit of a directory has another meaning: new files in it get the directory's group. Linux
//! keeps the bit in a chmod(2) by a process outside of that group only with CAP_FSETID, so the capability stays
//! permitted for that one call ([`Using`]).
//!
//! Spec: capabilities(7), chmod(2), write(2).

use std::os::fd::AsFd;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::error::ShareError;

/// Set-user-ID and set-group-ID, among permission bits.
pub(super) const SET_ID: u32 = 0o6000;

/// Makes the kernel clear set-ID bits of files that this thread, and the threads it starts from now on, write. For
/// the first thread of a server, before it starts another.
///
/// # Errors
///
/// The error of the kernel.
pub fn withhold_set_id() -> std::io::Result<()> {
    let sets = capabilities(None)?;
    if sets.effective.contains(CapabilitySet::FSETID) {
        let effective = sets.effective.difference(CapabilitySet::FSETID);
        set_capabilities(None, CapabilitySets { effective, ..sets })?;
    }
    Ok(())
}

/// This thread uses CAP_FSETID until this is dropped, if the server has the capability.
#[derive(Debug)]
pub(super) struct Using {
    before: Option<CapabilitySets>,
}

impl Using {
    pub(super) fn begin() -> Result<Self, ShareError> {
        let sets = capabilities(None)?;
        let is_withheld = sets.permitted.difference(sets.effective).contains(CapabilitySet::FSETID);
        if is_withheld {
            let effective = sets.effective | CapabilitySet::FSETID;
            set_capabilities(None, CapabilitySets { effective, ..sets })?;
        }
        Ok(Self { before: is_withheld.then_some(sets) })
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            // A thread may always drop capabilities.
            set_capabilities(None, before).expect("fewer capabilities are never refused");
        }
    }
}

/// Clears set-ID bits and capabilities of a file, as write(2) would.
///
/// # Errors
///
/// [`ShareError::AccessDenied`]: the file belongs to another user, so the server may not.
pub(super) fn take_from(file: impl AsFd) -> Result<(), ShareError> {
    let mode = rustix::fs::fstat(&file)?.st_mode;
    if mode & SET_ID != 0 {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & !SET_ID))?;
    }
    match rustix::fs::fgetxattr(&file, CAPABILITY, &mut [0_u8; 0]) {
        Ok(_) => Ok(rustix::fs::fremovexattr(&file, CAPABILITY)?),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The xattr in which the kernel keeps the capabilities of a file.
const CAPABILITY: &str = "security.capability";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt as _, PermissionsExt, chown};

    use super::*;
    use crate::rights::given::MaySet;
    use crate::{Entry, OpenMode, Share, ShareConfig, SharePath};

    fn open(share: &Share, name: &str) -> Entry {
        let found = share.locate(&SharePath::parse(name).unwrap()).unwrap().found.unwrap();
        share.open_found(&found, OpenMode::default()).unwrap()
    }

    #[test]
    fn without_the_capability_only_directories_keep_set_id_bits() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |name: &str| dir.path().join(name).metadata().unwrap().permissions().mode();
        let set = |name: &str, mode| {
            std::fs::set_permissions(dir.path().join(name), PermissionsExt::from_mode(mode))
                .unwrap();
        };
        let file = std::fs::File::create(dir.path().join("f")).unwrap();
        set("f", 0o6755);
        std::fs::create_dir(dir.path().join("d")).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(dir.path().join("d"), None, Some(12_345)).unwrap();
        }
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        let directory = open(&share, "d");
        // Capabilities belong to a thread.
        let withheld = || {
            withhold_set_id().unwrap();
            file.write_all_at(b"of a client", 0).unwrap();
            share.set_permissions(MaySet::TEST, &directory, 0o2750).unwrap();
            capabilities(None).unwrap().effective
        };
        let left = std::thread::scope(|scope| scope.spawn(withheld).join().unwrap());
        assert!(!left.contains(CapabilitySet::FSETID));
        assert_eq!((mode("f") & 0o7777, mode("d") & 0o7777), (0o755, 0o2750));
    }

    #[test]
    fn a_written_file_keeps_no_bits_or_capabilities_of_other_rights() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("f");
        let file = std::fs::File::create(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o6711)).unwrap();
        // CAP_NET_RAW, as the kernel stores it: VFS_CAP_REVISION_2.
        let raw = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let flags = rustix::fs::XattrFlags::empty();
        // Only root may set it.
        let _ = rustix::fs::fsetxattr(&file, CAPABILITY, &raw, flags);
        take_from(&file).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o711);
        let left = rustix::fs::fgetxattr(&file, CAPABILITY, &mut [0_u8; 0]);
        assert_eq!(left, Err(Errno::NODATA));
        take_from(&file).unwrap();
    }
}
