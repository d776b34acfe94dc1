//! The extents of a file, as its file system lists them: written ones, reserved ones, and those that have no place on the disk yet.
//!
//! ```text
//!  0       8     16      20       24      28         32
//!  +-------+-----+-------+--------+-------+----------+-----------------------+
//!  | start | len | flags | mapped | count | reserved | `count` extents of 56 |
//!  +-------+-----+-------+--------+-------+----------+-----------------------+
//!
//!  0         8          16    24         40      44         56
//!  +---------+----------+-----+----------+-------+----------+
//!  | logical | physical | len | reserved | flags | reserved |
//!  +---------+----------+-----+----------+-------+----------+
//! ```
//!
//! Spec: Linux filesystems/fiemap.rst.
//!
//! # Safety rules of this module
//!
//! FS_IOC_FIEMAP reads the first 32 bytes of its argument, and writes these and as many extents behind them as `count` says:
//! both are plain numbers, and `count` is the length of the array.
#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::AsFd;

use rustix::ioctl::{Opcode, Updater, opcode};

/// The first 32 bytes of the argument.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Head {
    start: u64,
    len: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Extent {
    logical: u64,
    physical: u64,
    len: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved32: [u32; 3],
}

#[derive(Debug)]
#[repr(C)]
struct Argument {
    head: Head,
    extents: [Extent; AT_ONCE],
}

const _: () = assert!(size_of::<Head>() == 32 && size_of::<Extent>() == 56);

/// Calls `each` with every extent of a file, in order. `None`: the file has more than [`EXTENTS_MAX`], or its file system lists
/// none (tmpfs).
pub(super) fn for_each(file: impl AsFd, each: impl FnMut(Range<u64>)) -> Option<()> {
    for_each_of(file, EXTENTS_MAX, each)
}

fn for_each_of(file: impl AsFd, max: usize, mut each: impl FnMut(Range<u64>)) -> Option<()> {
    let mut argument = Argument { head: Head::default(), extents: [Extent::default(); AT_ONCE] };
    let mut start = 0;
    for _ in 0..max / AT_ONCE {
        let count = u32::try_from(AT_ONCE).expect("512 fits 32 bits");
        argument.head = Head { start, len: u64::MAX - start, count, ..Head::default() };
        // SAFETY: the argument is laid out as the opcode wants it, with room for `count` extents.
        let request = unsafe { Updater::<FIEMAP, Argument>::new(&mut argument) };
        // SAFETY: the opcode is that of FS_IOC_FIEMAP, whose argument `request` is.
        unsafe { rustix::ioctl::ioctl(&file, request) }.ok()?;
        let mapped = usize::try_from(argument.head.mapped).ok()?;
        for extent in argument.extents.get(..mapped)? {
            let end = extent.logical.saturating_add(extent.len);
            each(extent.logical..end);
            start = end;
            if extent.flags & LAST != 0 {
                return Some(());
            }
        }
        if mapped < AT_ONCE {
            return Some(());
        }
    }
    None
}

/// FS_IOC_FIEMAP and FIEMAP_EXTENT_LAST: Linux uapi/linux/fs.h, uapi/linux/fiemap.h.
const FIEMAP: Opcode = opcode::read_write::<Head>(b'f', 11);
const LAST: u32 = 1;
/// Extents that one system call lists: 28 KiB.
const AT_ONCE: usize = 512;
/// Extents of a file that are listed; some milliseconds.
const EXTENTS_MAX: usize = 32_768;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn the_extents_of_a_file_cover_what_was_written_in_more_pieces_than_one_call_lists() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let pieces = AT_ONCE as u64 + 100;
        for piece in 0..pieces {
            file.write_all_at(&[1; 4096], piece * 8192).unwrap();
        }
        let mut found = Vec::new();
        // Not every file system lists extents.
        if for_each(&file, |extent| found.push(extent)).is_some() {
            let expected: Vec<_> = (0..pieces).map(|at| at * 8192..at * 8192 + 4096).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_file_of_more_extents_than_the_limit_is_not_listed() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        (0..=AT_ONCE as u64).for_each(|at| file.write_all_at(&[1; 4096], at * 8192).unwrap());
        let count = |max| {
            let mut count = 0;
            for_each_of(&file, max, |_| count += 1).map(|()| count)
        };
        assert_eq!(count(AT_ONCE), None);
        // Not every file system lists extents.
        assert!(count(EXTENTS_MAX).is_none_or(|count| count == AT_ONCE + 1));
    }

    #[test]
    fn a_file_without_blocks_has_no_extents() {
        for folder in ["/var/tmp", "/dev/shm"] {
            let file = tempfile::tempfile_in(folder).unwrap();
            file.set_len(1 << 30).unwrap();
            let _ = for_each(&file, |extent| panic!("{extent:?}"));
        }
    }
}
