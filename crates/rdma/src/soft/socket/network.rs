//! Where an engine's connections come from.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;

use super::Socket;
use super::tcp::{TcpListener, TcpSocket};
use super::unix::{UnixListener, UnixSocket};

/// What an engine dials through and listens on: one kind of stream for all its connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::soft) enum Network {
    /// TCP of the host.
    Tcp,
    /// Unix sockets.
    Unix,
}

impl Network {
    /// Begins to dial.
    pub(in crate::soft) fn dial(
        self,
        addr: SocketAddr,
        silence_max: Option<Duration>,
    ) -> Result<Socket, Errno> {
        match self {
            Self::Tcp => TcpSocket::dial(addr, silence_max).map(Socket::Tcp),
            Self::Unix => UnixSocket::dial(UNIX, addr).map(Socket::Unix),
        }
    }

    /// Listens.
    pub(in crate::soft) fn listen(self, addr: SocketAddr) -> Result<Listener, Errno> {
        match self {
            Self::Tcp => TcpListener::bind(addr).map(Listener::Tcp),
            Self::Unix => UnixListener::bind(UNIX, addr).map(Listener::Unix),
        }
    }
}

/// Takes connections.
#[derive(Debug)]
pub(in crate::soft) enum Listener {
    /// Of TCP.
    Tcp(TcpListener),
    /// Of unix sockets.
    Unix(UnixListener),
}

impl Listener {
    /// Where it listens.
    pub(in crate::soft) fn local_addr(&self) -> Result<SocketAddr, Errno> {
        match self {
            Self::Tcp(listener) => listener.local_addr(),
            Self::Unix(listener) => Ok(listener.local_addr()),
        }
    }

    /// The next connection, if one waits; one that has failed meanwhile is passed over.
    ///
    /// # Errors
    /// The host gives no socket for it, and says so for as long as the connection waits.
    pub(in crate::soft) fn accept(
        &self,
        silence_max: Option<Duration>,
    ) -> Result<Option<Socket>, Errno> {
        match self {
            Self::Tcp(listener) => Ok(listener.accept(silence_max)?.map(Socket::Tcp)),
            Self::Unix(listener) => Ok(listener.accept()?.map(Socket::Unix)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// The kind in the name of a socket that carries the bytes itself.
const UNIX: &str = "unix";
