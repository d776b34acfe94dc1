//! A socket whose peer writes what it wants, for the fuzz target `rdma_shm`.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{recv, send, socketpair};

use super::super::unix::UnixSocket;
use super::greeting::{self, Greeting};
use super::segment::{RING_LEN, Ring, Segment, Side, Word};
use super::{ByteStream as _, ShmSocket, Transfer};
use crate::common::poller::Interest;

/// One end of ours, and what its peer holds.
#[derive(Debug)]
pub struct AttackedShm {
    ours: ShmSocket,
    theirs: OwnedFd,
    memory: Option<Segment>,
}

impl AttackedShm {
    /// Joins both; `accepts`: ours is the accepting end.
    ///
    /// # Errors
    /// The host gives no sockets.
    pub fn new(accepts: bool) -> Result<Self, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let ours = UnixSocket::of(ours, nowhere, nowhere);
        let ours = if accepts { ShmSocket::accepted(ours) } else { ShmSocket::dialled(ours) };
        Ok(Self { ours, theirs, memory: None })
    }

    /// The peer does its half of the greeting: offers memory, or maps what it was offered.
    pub fn peer_greets(&mut self, accepts: bool) {
        if accepts {
            if let Greeting::Memory(fd) = greeting::receive(self.theirs.as_fd()) {
                self.memory = Segment::adopt(&fd).ok();
                let _ = greeting::answer(self.theirs.as_fd(), self.memory.is_some());
            }
        } else if let Ok((memory, fd)) = Segment::create() {
            let _ = greeting::offer(self.theirs.as_fd(), &fd);
            self.memory = Some(memory);
        }
    }

    /// The peer sends bytes through the socket.
    pub fn peer_sends(&self, bytes: &[u8]) {
        let _ = send(&self.theirs, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// The peer takes what is in the socket.
    pub fn peer_hears(&self) {
        let _ = recv(&self.theirs, &mut [0; 4096], RecvFlags::DONTWAIT);
    }

    /// The peer writes a word.
    pub fn peer_tells(&self, word: u8, value: u64) {
        let Some(memory) = &self.memory else { return };
        let word = match word % 6 {
            0 => Word::Tail(Ring::ToAcceptor),
            1 => Word::Head(Ring::ToAcceptor),
            2 => Word::Tail(Ring::ToDialler),
            3 => Word::Head(Ring::ToDialler),
            4 => Word::Bell(Side::Dialler),
            _ => Word::Bell(Side::Acceptor),
        };
        memory.store(word, value);
    }

    /// The peer writes bytes into a ring, as far as they lie in it.
    pub fn peer_puts(&self, to_acceptor: bool, at: u32, bytes: &[u8]) {
        let Some(memory) = &self.memory else { return };
        let ring = if to_acceptor { Ring::ToAcceptor } else { Ring::ToDialler };
        let at = usize::try_from(at).unwrap_or(RING_LEN).min(RING_LEN);
        let len = bytes.len().min(RING_LEN - at);
        memory.copy_in(ring, at, bytes.get(..len).unwrap_or_default());
    }

    /// Our owner takes the connection.
    pub fn admit(&mut self) {
        self.ours.admit();
    }

    /// Receives into `room`; how many bytes came, if any.
    pub fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        bytes_of(self.ours.receive(room))
    }

    /// Sends; how many bytes went, if any.
    pub fn send(&mut self, bytes: &[u8]) -> Option<usize> {
        bytes_of(self.ours.send(bytes, true))
    }

    /// Our engine lies down, is rung for, and rises.
    pub fn rest(&mut self, read: bool, write: bool) {
        let _ = self.ours.rest(Interest { read, write });
        let _ = self.ours.takes_again();
        self.ours.reported();
        self.ours.rise();
    }
}

fn bytes_of(transfer: Transfer) -> Option<usize> {
    match transfer {
        Transfer::Bytes(len) => Some(len),
        Transfer::Blocked | Transfer::Closed | Transfer::Lost(_) | Transfer::Garbled => None,
    }
}
