//! Counts the bytes written to a socket that its peer has not acknowledged yet (SIOCOUTQ).
//!
//! A socket is writable again only when a good part of its buffer is empty; a slow peer may take minutes for that,
//! and must not be mistaken for a peer that receives nothing. std, tokio, rustix and socket2 have no name for the
//! request.
//!
//! Source: tcp(7), SIOCOUTQ: bytes in the send queue that were not acknowledged.
//!
//! # Safety rules of this module
//!
//! One call, with a pointer to an integer that outlives it.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes that were written and not acknowledged.
pub(super) fn len(socket: impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one integer to `bytes`. For a socket SIOCOUTQ is TIOCOUTQ.
    let done = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 { Ok(u64::try_from(bytes).unwrap_or(0)) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn bytes_beyond_the_receive_buffer_of_a_peer_stay_in_the_queue() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_peer, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        assert_eq!(len(&stream).unwrap(), 0);
        while stream.write(&[0; 1 << 16]).is_ok() {}
        assert!(len(&stream).unwrap() > 0);
    }
}
