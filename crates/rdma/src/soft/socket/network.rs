//! Where an engine's connections come from.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;

use super::Socket;
use super::shm::ShmSocket;
use super::tcp::{TcpListener, TcpSocket};
use super::unix::{UnixListener, UnixSocket};

/// What an engine dials through and listens on: one kind of stream for all its connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::soft) enum Network {
    /// TCP of the host.
    Tcp,
    /// Unix sockets.
    Unix,
    /// Memory that two processes share.
    Shm,
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
            Self::Shm => UnixSocket::dial(SHM, addr).map(ShmSocket::dialled).map(Socket::Shm),
        }
    }

    /// Listens.
    pub(in crate::soft) fn listen(self, addr: SocketAddr) -> Result<Listener, Errno> {
        match self {
            Self::Tcp => TcpListener::bind(addr).map(Listener::Tcp),
            Self::Unix => UnixListener::bind(UNIX, addr).map(Listener::Unix),
            Self::Shm => UnixListener::bind(SHM, addr).map(Listener::Shm),
        }
    }

    /// Whether an engine looks at each of its established streams in every round, and has to
    /// say when it does not ([`super::ByteStream::rest`]).
    pub(in crate::soft) fn is_looked_at(self) -> bool {
        match self {
            Self::Tcp | Self::Unix => false,
            Self::Shm => true,
        }
    }

    /// Whether the host ends a stream by itself whose peer takes nothing
    /// ([`crate::EngineConfig::silence_max`]).
    pub(in crate::soft) fn ends_stalled(self) -> bool {
        match self {
            Self::Tcp => true,
            Self::Unix | Self::Shm => false,
        }
    }

    /// Whether bytes pass anything on their way that could change them.
    pub(in crate::soft) fn needs_crc(self) -> bool {
        match self {
            Self::Tcp | Self::Unix => true,
            Self::Shm => false,
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
    /// Of unix sockets that bring shared memory.
    Shm(UnixListener),
}

impl Listener {
    /// Where it listens.
    pub(in crate::soft) fn local_addr(&self) -> Result<SocketAddr, Errno> {
        match self {
            Self::Tcp(listener) => listener.local_addr(),
            Self::Unix(listener) | Self::Shm(listener) => Ok(listener.local_addr()),
        }
    }

    /// Takes the next connection off.
    ///
    /// # Errors
    /// The host gives no socket for it, and says so for as long as the connection waits.
    pub(in crate::soft) fn accept(
        &self,
        silence_max: Option<Duration>,
    ) -> Result<Arrival<Socket>, Errno> {
        Ok(match self {
            Self::Tcp(listener) => listener.accept(silence_max)?.map(Socket::Tcp),
            Self::Unix(listener) => listener.accept()?.map(Socket::Unix),
            Self::Shm(listener) => {
                listener.accept()?.map(|socket| Socket::Shm(ShmSocket::accepted(socket)))
            }
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) | Self::Shm(listener) => listener.as_fd(),
        }
    }
}

/// What a listener had.
#[derive(Debug)]
pub(in crate::soft) enum Arrival<S> {
    /// A connection.
    Socket(S),
    /// A connection that has failed meanwhile, or is not welcome: it is closed, and another may wait.
    Gone,
    /// No connection waits.
    Nobody,
}

impl<S> Arrival<S> {
    fn map<T>(self, wrap: impl FnOnce(S) -> T) -> Arrival<T> {
        match self {
            Self::Socket(socket) => Arrival::Socket(wrap(socket)),
            Self::Gone => Arrival::Gone,
            Self::Nobody => Arrival::Nobody,
        }
    }
}

/// The kind in the name of a socket that carries the bytes itself.
const UNIX: &str = "unix";
/// The same of one that brings the memory that does.
const SHM: &str = "shm";
