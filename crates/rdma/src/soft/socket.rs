//! TCP sockets that never block: the few calls the engine makes, as safe functions.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, accept_with, bind,
    connect, getpeername, getsockname, ipproto, listen, recv, send, shutdown, socket_with, sockopt,
};

use crate::common::watch_peer;
use crate::verbs::{WireHook, WireVerdict};

/// A connected or connecting socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
}

/// What a receive or send came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Transfer {
    /// So many bytes went.
    Bytes(usize),
    /// Nothing goes right now.
    Blocked,
    /// The peer has closed its direction (receiving only).
    Closed,
    /// The connection is lost.
    Lost(Errno),
}

impl Socket {
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

    /// How dialling ended. Ask once, when writable.
    pub(super) fn dialled(&self) -> Result<(), Errno> {
        self.error()
    }

    /// What went wrong with the connection and was not told yet. Asked once, it is forgotten.
    pub(super) fn error(&self) -> Result<(), Errno> {
        sockopt::socket_error(&self.fd).and_then(|outcome| outcome)
    }

    /// Receives into `room`, which is not empty.
    pub(super) fn receive(&self, room: &mut [u8]) -> Transfer {
        match recv(&self.fd, room, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Transfer::Closed,
            Ok((len, _)) => Transfer::Bytes(len),
            Err(Errno::AGAIN | Errno::INTR) => Transfer::Blocked,
            Err(errno) => Transfer::Lost(errno),
        }
    }

    /// The same, with a hook that sees the bytes first.
    pub(super) fn receive_shown(
        &self,
        room: &mut [u8],
        hook: Option<&dyn WireHook>,
        number: u64,
    ) -> Transfer {
        let transfer = self.receive(room);
        if let (Transfer::Bytes(len), Some(hook)) = (transfer, hook)
            && let Some(bytes) = room.get_mut(..len)
            && hook.received(number, bytes) == WireVerdict::Cut
        {
            return Transfer::Lost(Errno::CONNRESET);
        }
        transfer
    }

    /// Sends what TCP takes of `bytes`; no later byte shares a segment with the last of them if
    /// they `end_segment`.
    pub(super) fn send(&self, bytes: &[u8], end_segment: bool) -> Transfer {
        let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        flags.set(SendFlags::EOR, end_segment);
        match send(&self.fd, bytes, flags) {
            Ok(len) => Transfer::Bytes(len),
            Err(Errno::AGAIN | Errno::INTR) => Transfer::Blocked,
            Err(errno) => Transfer::Lost(errno),
        }
    }

    /// Tells the peer that nothing more comes.
    pub(super) fn finish(&self) {
        // Fails only if the connection is gone already.
        let _ = shutdown(&self.fd, Shutdown::Write);
    }

    /// Payload that fits one segment, from the path's MTU as the host knows it. (TCP_MAXSEG
    /// would be exact, but rustix does not have it; frames that miss a segment by a few bytes
    /// are still right.)
    pub(super) fn segment_size(&self) -> Option<usize> {
        let (local, _) = self.addresses()?;
        let (mtu, headers) = match local {
            SocketAddr::V4(_) => (sockopt::ip_mtu(&self.fd).ok()?, 20 + 32),
            SocketAddr::V6(_) => (sockopt::ipv6_mtu(&self.fd).ok()?, 40 + 32),
        };
        usize::try_from(mtu).ok()?.checked_sub(headers)
    }

    /// Our address and the peer's.
    pub(super) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let local = SocketAddr::try_from(getsockname(&self.fd).ok()?).ok()?;
        let peer = SocketAddr::try_from(getpeername(&self.fd).ok()??).ok()?;
        Some((local, peer))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    fd: OwnedFd,
}

impl Listener {
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

    /// The next connection, if one waits; one that has failed meanwhile is passed over.
    ///
    /// # Errors
    /// The host gives no socket for it, and says so for as long as the connection waits.
    pub(super) fn accept(&self, silence_max: Option<Duration>) -> Result<Option<Socket>, Errno> {
        loop {
            let fd = match accept_with(&self.fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(fd) => fd,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => return Err(errno),
            };
            if sockopt::set_tcp_nodelay(&fd, true).is_ok() {
                watch(&fd, silence_max);
                return Ok(Some(Socket { fd }));
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
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

/// Connections the host keeps for us to accept; the kernel's own limit may be lower.
const BACKLOG: i32 = 1024;
