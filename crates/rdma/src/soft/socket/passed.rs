//! Refusing descriptors that a peer passes over a unix socket (SO_PASSRIGHTS).
//!
//! Nobody here has to ask for a descriptor to get it: bytes bring it along, from the moment a peer has
//! connected, and the host closes it in the thread that reads those bytes without asking for it, or
//! that closes the socket. Closing can block: a socket of TCP with SO_LINGER and a peer that reads nothing
//! holds whoever closes it for as long as its sender said. So a process of this host, also one that is
//! refused as soon as it is accepted, could stop an engine with all its connections.
//!
//! Where the option is set, whoever sends a descriptor gets EPERM. Rustix has no name for it.
//!
//! Source: Linux `unix_stream_sendmsg`, `unix_stream_connect` (what is accepted has the listener's
//! options), since Linux 6.16.
//!
//! # Safety rules of this module
//!
//! One call, with a pointer to an integer that outlives it and the length of that integer.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

/// Refuses them, to this socket and to those that are accepted from it later. `false`: a host that cannot.
pub(super) fn refuse(socket: impl AsFd) -> Result<bool, Errno> {
    let none: libc::c_int = 0;
    let len = libc::socklen_t::try_from(size_of_val(&none)).map_err(|_| Errno::INVAL)?;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the option's value is `none`, of `len` bytes.
    let done = unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const none).cast(), len)
    };
    if done == 0 {
        return Ok(true);
    }
    match Errno::from_io_error(&std::io::Error::last_os_error()) {
        Some(Errno::NOPROTOOPT) => Ok(false),
        other => Err(other.unwrap_or(Errno::IO)),
    }
}

/// asm-generic/socket.h; the libc crate does not have it.
const SO_PASSRIGHTS: libc::c_int = 83;
