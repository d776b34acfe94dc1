//! Whether a file system has room for what is to be reserved: fallocate(2) keeps what it had taken when it finds the
//! disk full, and nobody can give that back who does not know what others have written there meanwhile.

use std::os::fd::AsFd;

/// Whether `len` bytes of the file can certainly not be reserved, since the file has too few blocks and its file
/// system too few to give. What the file has elsewhere counts as if it lay in the range.
pub(super) fn is_lacking(file: impl AsFd, len: u64) -> bool {
    let (Ok(stat), Ok(system)) = (rustix::fs::fstat(&file), rustix::fs::fstatvfs(&file)) else {
        return false;
    };
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK);
    // Without a bound of their own some file systems in memory say that they have no blocks at all.
    let is_bounded = system.f_blocks > 0;
    is_bounded && lacks(len, allocated, system.f_bavail.saturating_mul(system.f_frsize))
}

fn lacks(len: u64, allocated: u64, available: u64) -> bool {
    len.saturating_sub(allocated) > available
}

/// What `st_blocks` counts in, in bytes.
const BLOCK: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_has_is_not_asked_of_the_disk_again() {
        assert!(lacks(1 << 30, 0, 106 << 20));
        assert!(!lacks(1 << 30, 1 << 30, 0));
        assert!(!lacks(1 << 30, 1 << 20, 1 << 30));
        assert!(lacks(2, 1, 0) && !lacks(1, 2, 0));
    }

    #[test]
    fn a_range_longer_than_the_disk_is_refused_before_anything_is_taken() {
        let file = tempfile::tempfile().unwrap();
        assert!(is_lacking(&file, u64::MAX));
        assert!(!is_lacking(&file, 1));
    }
}
