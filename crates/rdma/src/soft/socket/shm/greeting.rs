//! The one message of a connection's unix socket: the acceptor sends the dialler the memory.
//!
//! ```text
//!   0         7        8
//!   +---------+--------+   with it, as SCM_RIGHTS: one descriptor, the sealed memory
//!   | "LFSHM" | version|
//!   | 0 0     | 1      |
//!   +---------+--------+
//! ```
//!
//! The memory goes this way and not the other because closing a descriptor that a stranger sent can block
//! (a file of a FUSE file system is closed when its server has answered), and an acceptor serves others
//! meanwhile. Who dials knows its acceptor: [`super::super::unix`].
//!
//! Spec: unix(7) (SCM_RIGHTS).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Sends the memory over a socket that has sent nothing yet.
pub(super) fn send(socket: BorrowedFd<'_>, memory: &OwnedFd) -> Result<(), Errno> {
    let fds = [memory.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(Errno::NOBUFS);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match sendmsg(socket, &[IoSlice::new(&GREETING)], &mut control, flags)? {
        len if len == GREETING.len() => Ok(()),
        _ => Err(Errno::NOBUFS),
    }
}

/// What came of the greeting.
#[derive(Debug)]
pub(super) enum Greeting {
    /// It has not come yet.
    Awaited,
    /// It is there, with the memory.
    Memory(OwnedFd),
    /// The peer has closed.
    Closed,
    /// Something else came.
    Garbled,
    /// The host lost the connection.
    Lost(Errno),
}

/// Looks for the greeting. Bells that follow it stay in the socket.
pub(super) fn receive(socket: BorrowedFd<'_>) -> Greeting {
    let mut bytes = [0; GREETING.len()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
    let len = match received {
        Ok(message) => message.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Greeting::Awaited,
        Err(errno) => return Greeting::Lost(errno),
    };
    if len == 0 {
        return Greeting::Closed;
    }
    let memory = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    match memory {
        Some(memory) if bytes == GREETING => Greeting::Memory(memory),
        _ => Greeting::Garbled,
    }
}

const GREETING: [u8; 8] = *b"LFSHM\0\0\x01";
