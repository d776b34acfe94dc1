//! Sockets of TCP that never block.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, accept_with, bind,
    connect, getpeername, getsockname, ipproto, listen, recv, send, shutdown, socket_with, sockopt,
};

use super::{Arrival, BACKLOG, ByteStream, Transfer};
use crate::common::poller::{Interest, Poller};
use crate::common::watch_peer;
use crate::soft::token::Token;

/// A connected or connecting socket.
#[derive(Debug)]
pub(in crate::soft) struct TcpSocket {
    fd: OwnedFd,
}

impl TcpSocket {
    /// Begins to dial; the socket is writable when that has ended.
    pub(super) fn dial(addr: SocketAddr, silence_max: Option<Duration>) -> Result<Self, Errno> {
        let fd = new_socket(addr)?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        watch(&fd, silence_max);
        match connect(&fd, &addr) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Self { fd }),
            Err(errno) => Err(errno),
        }
    }
}

impl ByteStream for TcpSocket {
    fn receive(&mut self, room: &mut [u8]) -> Transfer {
        Transfer::of_receive(recv(&self.fd, room, RecvFlags::DONTWAIT).map(|(len, _)| len))
    }

    /// No later byte shares a segment with the last of them if they `end_segment`.
    fn send(&mut self, bytes: &[u8], end_segment: bool) -> Transfer {
        let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        flags.set(SendFlags::EOR, end_segment);
        Transfer::of_send(send(&self.fd, bytes, flags))
    }

    fn finish(&mut self) {
        // Fails only if the connection is gone already.
        let _ = shutdown(&self.fd, Shutdown::Write);
    }

    fn error(&self) -> Result<(), Errno> {
        sockopt::socket_error(&self.fd).and_then(|outcome| outcome)
    }

    /// From the path's MTU as the host knows it. (TCP_MAXSEG would be exact, but rustix does not
    /// have it; frames that miss a segment by a few bytes are still right.)
    fn segment_size(&self) -> Option<usize> {
        let (local, _) = self.addresses()?;
        let (mtu, headers) = match local {
            SocketAddr::V4(_) => (sockopt::ip_mtu(&self.fd).ok()?, 20 + 32),
            SocketAddr::V6(_) => (sockopt::ipv6_mtu(&self.fd).ok()?, 40 + 32),
        };
        usize::try_from(mtu).ok()?.checked_sub(headers)
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let local = SocketAddr::try_from(getsockname(&self.fd).ok()?).ok()?;
        let peer = SocketAddr::try_from(getpeername(&self.fd).ok()??).ok()?;
        Some((local, peer))
    }

    fn watch(&self, poller: &Poller, token: Token, interest: Interest) -> Result<(), Errno> {
        poller.add(&self.fd, token.to_bits(), interest)
    }

    fn rewatch(&self, poller: &Poller, token: Token, interest: Interest) {
        poller.modify(&self.fd, token.to_bits(), interest);
    }

    fn unwatch(&self, poller: &Poller) {
        poller.remove(&self.fd);
    }
}

/// A listening socket.
#[derive(Debug)]
pub(in crate::soft) struct TcpListener {
    fd: OwnedFd,
}

impl TcpListener {
    pub(super) fn bind(addr: SocketAddr) -> Result<Self, Errno> {
        let fd = new_socket(addr)?;
        // A restarted server must not wait for the last one's connections to be forgotten.
        sockopt::set_socket_reuseaddr(&fd, true)?;
        bind(&fd, &addr)?;
        listen(&fd, BACKLOG)?;
        Ok(Self { fd })
    }

    pub(super) fn local_addr(&self) -> Result<SocketAddr, Errno> {
        SocketAddr::try_from(getsockname(&self.fd)?).map_err(|_| Errno::AFNOSUPPORT)
    }

    /// [`super::Listener::accept`].
    pub(super) fn accept(
        &self,
        silence_max: Option<Duration>,
    ) -> Result<Arrival<TcpSocket>, Errno> {
        let fd = match accept_with(&self.fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(fd) => fd,
            Err(Errno::AGAIN) => return Ok(Arrival::Nobody),
            Err(Errno::INTR | Errno::CONNABORTED) => return Ok(Arrival::Gone),
            Err(errno) => return Err(errno),
        };
        if sockopt::set_tcp_nodelay(&fd, true).is_err() {
            return Ok(Arrival::Gone);
        }
        watch(&fd, silence_max);
        Ok(Arrival::Socket(TcpSocket { fd }))
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

// A host that refuses leaves the connection to its own idea of silence.
fn watch(fd: &OwnedFd, silence_max: Option<Duration>) {
    if let Err(error) = watch_peer(fd, silence_max) {
        tracing::warn!(%error, "vanished peers are not looked for");
    }
}

fn new_socket(addr: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}
