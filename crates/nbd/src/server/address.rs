//! Where a server listens, and why it does not.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a server listens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    /// Anybody who reaches it may read and write, unless TLS asks for a client's certificate.
    Tcp(SocketAddr),
    /// Only the server's own user may connect. A socket that nobody listens on any more is replaced.
    Unix(PathBuf),
}

/// Why a server does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is in use, not of this machine, or not allowed.
    #[error("{address}: {source}")]
    ConfigAddress {
        /// Which.
        address: Address,
        /// What the operating system said.
        source: io::Error,
    },
    /// The machine has no more threads or descriptors.
    #[error("a server cannot be started: {0}")]
    HostResources(#[source] io::Error),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
