//! Set-user-ID and set-group-ID bits, and capabilities of files: bytes of a client do not run with them.
//!
//! ```text
//!  WRITE, copies, zeros, holes, sizes   the kernel takes them away, but for a thread that has CAP_FSETID: a server
//!                                       of root does not use it ([`withhold_set_id`])
//!  bytes pushed by RDMA                 the kernel takes nothing away for a mapping: MAP does before it maps
//! ```
//!
//! The set-group-ID bit of a directory means something else, that what is made there belongs to the directory's
//! group. Linux keeps it in a chmod(2) by a process outside of that group only with CAP_FSETID, so the capability
//! stays permitted for that one call ([`Using`]).
//!
//! Spec: capabilities(7), chmod(2), write(2).

use std::os::fd::AsFd;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::error::ShareError;

/// Set-user-ID and set-group-ID, among permission bits.
pub(super) const SET_ID: u32 = 0o6000;

/// Has the kernel take set-ID bits from the files that this thread writes, and the threads that it starts from now
/// on. For the first thread of a server, before there is another one.
///
/// # Errors
///
/// The kernel's.
pub fn withhold_set_id() -> std::io::Result<()> {
    let sets = capabilities(None)?;
    if sets.effective.contains(CapabilitySet::FSETID) {
        let effective = sets.effective.difference(CapabilitySet::FSETID);
        set_capabilities(None, CapabilitySets { effective, ..sets })?;
    }
    Ok(())
}

/// This thread uses CAP_FSETID until it is dropped, if the server has it.
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
            // A thread may always give up what it has.
            set_capabilities(None, before).expect("fewer capabilities are never refused");
        }
    }
}

/// Takes set-ID bits and capabilities from a file, as write(2) would.
///
/// # Errors
///
/// [`ShareError::AccessDenied`]: the server may not, for the file is another user's.
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

/// Where the kernel keeps what a file may do when it runs.
const CAPABILITY: &str = "security.capability";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt as _, PermissionsExt, chown};

    use super::*;
    use crate::access::MaySet;
    use crate::share::{Entry, OpenMode, Share, ShareConfig, SharePath};

    fn open(share: &Share, name: &str) -> Entry {
        let found = share.locate(&SharePath::parse(name).unwrap()).unwrap().found.unwrap();
        share.open_found(&found, OpenMode::default()).unwrap()
    }

    #[test]
    fn a_thread_that_withholds_the_capability_leaves_no_set_id_bits_but_those_of_directories() {
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
        // Capabilities are a thread's own.
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
    fn a_file_keeps_nothing_that_makes_it_run_with_other_rights() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("f");
        let file = std::fs::File::create(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o6711)).unwrap();
        // CAP_NET_RAW, as the kernel keeps it: VFS_CAP_REVISION_2.
        let raw = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let flags = rustix::fs::XattrFlags::empty();
        // Only root may.
        let _ = rustix::fs::fsetxattr(&file, CAPABILITY, &raw, flags);
        take_from(&file).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o711);
        let left = rustix::fs::fgetxattr(&file, CAPABILITY, &mut [0_u8; 0]);
        assert_eq!(left, Err(Errno::NODATA));
        take_from(&file).unwrap();
    }
}
