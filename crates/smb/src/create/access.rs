//! Access masks, share modes and oplock levels.
//!
//! ```text
//!  31 30 29 28 | 25 24 | 20 19 18 17 16 | 8 7 6 5 4 3 2 1 0
//!  GR GW GX GA | MA SS | SY WO WD RC DE | attributes, EA, execute, child, data
//! ```
//!
//! Spec: MS-SMB2 §2.2.13.1, MS-DTYP §2.4.3.

use crate::open_set::open_set;

bitflags::bitflags! {
    /// Rights asked for or granted. On directories the low bits mean list, add file, add
    /// subdirectory, traverse, delete child.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct AccessMask: u32 {
        /// Read data; list a directory.
        const READ_DATA = 0x0000_0001;
        /// Write data; add a file.
        const WRITE_DATA = 0x0000_0002;
        /// Append; add a subdirectory.
        const APPEND_DATA = 0x0000_0004;
        /// Read extended attributes.
        const READ_EA = 0x0000_0008;
        /// Write extended attributes.
        const WRITE_EA = 0x0000_0010;
        /// Execute; traverse.
        const EXECUTE = 0x0000_0020;
        /// Delete entries of a directory.
        const DELETE_CHILD = 0x0000_0040;
        /// Read attributes.
        const READ_ATTRIBUTES = 0x0000_0080;
        /// Write attributes.
        const WRITE_ATTRIBUTES = 0x0000_0100;
        /// Delete or rename.
        const DELETE = 0x0001_0000;
        /// Read the security descriptor.
        const READ_CONTROL = 0x0002_0000;
        /// Change the access list.
        const WRITE_DAC = 0x0004_0000;
        /// Change the owner.
        const WRITE_OWNER = 0x0008_0000;
        /// Wait for the handle.
        const SYNCHRONIZE = 0x0010_0000;
        /// Audit list.
        const ACCESS_SYSTEM_SECURITY = 0x0100_0000;
        /// As much as there is.
        const MAXIMUM_ALLOWED = 0x0200_0000;
        /// Everything.
        const GENERIC_ALL = 0x1000_0000;
        /// Executing.
        const GENERIC_EXECUTE = 0x2000_0000;
        /// Writing.
        const GENERIC_WRITE = 0x4000_0000;
        /// Reading.
        const GENERIC_READ = 0x8000_0000;
        /// Every right of a file: what GENERIC_ALL stands for.
        const FILE_ALL = 0x001f_01ff;
        /// What GENERIC_READ stands for on files.
        const FILE_GENERIC_READ = 0x0012_0089;
        /// What GENERIC_WRITE stands for on files.
        const FILE_GENERIC_WRITE = 0x0012_0116;
        /// What GENERIC_EXECUTE stands for on files.
        const FILE_GENERIC_EXECUTE = 0x0012_00a0;
        const _ = !0;
    }

    /// What other opens may do at the same time.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct ShareAccess: u32 {
        /// Read.
        const READ = 0x0000_0001;
        /// Write.
        const WRITE = 0x0000_0002;
        /// Delete and rename.
        const DELETE = 0x0000_0004;
        const _ = !0;
    }
}

impl AccessMask {
    /// The mask with generic rights spelled out as file rights.
    #[must_use]
    pub fn without_generics(self) -> Self {
        let map = [
            (Self::GENERIC_READ, Self::FILE_GENERIC_READ),
            (Self::GENERIC_WRITE, Self::FILE_GENERIC_WRITE),
            (Self::GENERIC_EXECUTE, Self::FILE_GENERIC_EXECUTE),
            (Self::GENERIC_ALL, Self::FILE_ALL),
        ];
        map.into_iter().fold(self, |mask, (generic, file)| {
            if mask.contains(generic) { (mask - generic) | file } else { mask }
        })
    }
}

open_set! {
    /// Caching right of one open, the way before leases.
    pub struct OplockLevel(u8) {
        /// None.
        NONE = 0x00,
        /// Shared read caching.
        II = 0x01,
        /// Exclusive caching.
        EXCLUSIVE = 0x08,
        /// Exclusive caching, handle too.
        BATCH = 0x09,
        /// A lease, see the context.
        LEASE = 0xff,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_rights_become_file_rights() {
        let mask = AccessMask::GENERIC_READ | AccessMask::DELETE;
        let spelled = AccessMask::FILE_GENERIC_READ | AccessMask::DELETE;
        assert_eq!(mask.without_generics(), spelled);
        assert_eq!(AccessMask::GENERIC_ALL.without_generics(), AccessMask::FILE_ALL);
    }
}
