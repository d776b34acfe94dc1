//! Reads that extend a vector without clearing its room first, which would cost as much as a fifth
//! of the copy itself.
//!
//! # Safety rules of this module
//!
//! The kernel writes only to the vector's spare capacity, and the vector grows by exactly as many
//! bytes as the kernel reports written there.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

/// Appends up to `len` bytes of a file; may wait. Returns their number: 0 at the end of the file.
pub(super) fn read(
    fd: impl AsFd,
    out: &mut Vec<u8>,
    len: usize,
    offset: u64,
) -> Result<usize, Errno> {
    out.reserve(len);
    let (read, _) = rustix::io::pread(fd, &mut out.spare_capacity_mut()[..len], offset)?;
    let got = read.len();
    // SAFETY: these bytes of the spare capacity are those that `pread` hands back as written.
    unsafe { out.set_len(out.len() + got) };
    Ok(got)
}

/// [`read`] of bytes in memory (RWF_NOWAIT). [`Errno::AGAIN`] if none are.
pub(super) fn read_cached(
    fd: impl AsFd,
    out: &mut Vec<u8>,
    len: usize,
    offset: u64,
) -> Result<usize, Errno> {
    out.reserve(len);
    let room = &mut out.spare_capacity_mut()[..len];
    let buffer = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the one buffer is `room`, which is ours alone and outlives the call.
    let got = unsafe { libc::preadv2(fd, &raw const buffer, 1, offset, libc::RWF_NOWAIT) };
    let Ok(got) = usize::try_from(got) else {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    };
    // SAFETY: the kernel has written the first `got` bytes of `room`, which has no fewer.
    unsafe { out.set_len(out.len() + got.min(len)) };
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_grows_by_the_bytes_read_and_keeps_its_content() {
        // A file system in memory takes no RWF_NOWAIT.
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        rustix::io::pwrite(&file, b"0123456789", 0).unwrap();
        for read in [read, read_cached] {
            let mut out = b"head".to_vec();
            // The vector has more room than the read asks for: no more than that is read.
            out.reserve(4096);
            assert_eq!(read(&file, &mut out, 4, 3), Ok(4));
            assert_eq!(out, b"head3456");
            assert_eq!(read(&file, &mut out, 100, 8), Ok(2));
            assert_eq!(out, b"head345689");
            assert_eq!(read(&file, &mut out, 100, 10), Ok(0));
            assert_eq!(out, b"head345689");
        }
    }
}
