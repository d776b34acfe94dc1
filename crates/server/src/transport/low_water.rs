//! Sets how many bytes make a socket readable (SO_RCVLOWAT).
//!
//! The rest of a long frame is useless before it is complete, yet each segment wakes the task that
//! waits for it: on an idle core that costs more than the copy of the segment, and the sender pays a
//! part of it. std, tokio, rustix and socket2 have no name for the option.
//!
//! Source: socket(7), tcp(7); Linux `tcp_set_rcvlowat`, which makes room for as many bytes and
//! checks again how many are there. The end of the stream counts as readable at any mark.
//!
//! # Safety rules of this module
//!
//! One call, with a pointer to an integer that outlives it and the length of that integer.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets the mark, in bytes: from now on a task that waits for the socket is woken once so many
/// bytes are there, or the stream has ended.
pub(super) fn set(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).map_err(io::Error::other)?;
    let len = libc::socklen_t::try_from(size_of_val(&bytes)).map_err(io::Error::other)?;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the option's value is `bytes`, of `len` bytes.
    let done = unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const bytes).cast(), len)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
