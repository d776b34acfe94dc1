//! How two ends agree through what their bytes go: one message each over the unix socket.
//!
//! ```text
//!   0         6      7        8
//!   +---------+------+--------+   acceptor to dialler, when its owner has answered. With it, as SCM_RIGHTS, if
//!   | "LFSHM" | kind | version|   kind is 1: one descriptor, the memory
//!   | 0       |      | 2      |   kind: 0 bytes go through the socket, 1 through the memory
//!   +---------+------+--------+
//!
//!   +------+
//!   | kind |                      dialler to acceptor, after kind 1: what it made of that
//!   +------+
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
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
};

/// Sends the memory over a socket that has sent nothing yet.
pub(super) fn offer(socket: BorrowedFd<'_>, memory: &OwnedFd) -> Result<(), Errno> {
    let fds = [memory.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(Errno::NOBUFS);
    }
    match sendmsg(socket, &[IoSlice::new(&WITH_MEMORY)], &mut control, FLAGS)? {
        len if len == WITH_MEMORY.len() => Ok(()),
        _ => Err(Errno::NOBUFS),
    }
}

/// Says that there is no memory, over a socket that has sent nothing yet.
pub(super) fn decline(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    match send(socket, &WITHOUT, FLAGS)? {
        len if len == WITHOUT.len() => Ok(()),
        _ => Err(Errno::NOBUFS),
    }
}

/// Says what became of the memory.
pub(super) fn answer(socket: BorrowedFd<'_>, mapped: bool) -> Result<(), Errno> {
    let kind = if mapped { MEMORY } else { SOCKET };
    match send(socket, &[kind], FLAGS)? {
        1 => Ok(()),
        _ => Err(Errno::NOBUFS),
    }
}

/// What came of the greeting.
#[derive(Debug)]
pub(super) enum Greeting {
    /// It has not come yet.
    Awaited,
    /// The acceptor offers memory.
    Memory(OwnedFd),
    /// Bytes go through the socket.
    Socket,
    /// The peer has closed.
    Closed,
    /// Something else came.
    Garbled,
    /// The host lost the connection.
    Lost(Errno),
}

/// Looks for the greeting. What follows it stays in the socket.
pub(super) fn receive(socket: BorrowedFd<'_>) -> Greeting {
    let mut bytes = [0; WITH_MEMORY.len()];
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
        Some(memory) if bytes == WITH_MEMORY => Greeting::Memory(memory),
        None if bytes == WITHOUT => Greeting::Socket,
        _ => Greeting::Garbled,
    }
}

/// What came of the dialler's answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// It has not come yet.
    Awaited,
    /// The dialler has mapped the memory.
    Mapped,
    /// The dialler could not.
    Socket,
    /// The peer has closed.
    Closed,
    /// Something else came.
    Garbled,
    /// The host lost the connection.
    Lost(Errno),
}

/// Looks for the dialler's answer. What follows it stays in the socket.
pub(super) fn receive_answer(socket: BorrowedFd<'_>) -> Answer {
    let mut kind = [0];
    match recv(socket, &mut kind, RecvFlags::DONTWAIT).map(|(len, _)| len) {
        Ok(0) => Answer::Closed,
        Ok(_) if kind == [MEMORY] => Answer::Mapped,
        Ok(_) if kind == [SOCKET] => Answer::Socket,
        Ok(_) => Answer::Garbled,
        Err(Errno::AGAIN | Errno::INTR) => Answer::Awaited,
        Err(errno) => Answer::Lost(errno),
    }
}

const SOCKET: u8 = 0;
const MEMORY: u8 = 1;
const WITH_MEMORY: [u8; 8] = *b"LFSHM\0\x01\x02";
const WITHOUT: [u8; 8] = *b"LFSHM\0\x00\x02";
const FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
