//! The list of the xattrs of an inode, as the kernel has it.

use std::os::fd::AsFd;

use rustix::io::Errno;

use super::inode::proc_name;

/// Bytes of the names of all xattrs of a file, those of this server included: bounds their number.
pub(super) fn names_len(file: impl AsFd) -> usize {
    rustix::fs::listxattr_query(proc_name(file)).unwrap_or(0)
}

/// Whether an inode certainly has no xattr of this name. Reading a value takes the right to read the inode, reading
/// the list of names takes none.
pub(super) fn lacks(path: &str, xattr: &str) -> bool {
    let list = list_of(path);
    list.is_ok_and(|list| list.split(|byte| *byte == 0).all(|name| name != xattr.as_bytes()))
}

/// The names of all xattrs, each with a zero behind it.
pub(super) fn list_of(path: &str) -> Result<Vec<u8>, Errno> {
    read_list(|| rustix::fs::listxattr_query(path), |list| rustix::fs::listxattr(path, list))
}

/// A list as long as the kernel reports: most files have none.
pub(super) fn read_list(
    ask: impl Fn() -> Result<usize, Errno>,
    read: impl Fn(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    for _ in 0..RACE_RETRIES_MAX {
        let mut list = vec![0; ask()?];
        if list.is_empty() {
            return Ok(list);
        }
        match read(&mut list) {
            // The list has become longer.
            Err(Errno::RANGE) => {}
            len => {
                list.truncate(len?);
                return Ok(list);
            }
        }
    }
    Err(Errno::RANGE)
}

/// How often a value that others change meanwhile is read again.
pub(super) const RACE_RETRIES_MAX: usize = 16;
