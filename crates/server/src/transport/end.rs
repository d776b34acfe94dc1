//! The reasons for the end of a TCP connection.

use std::io;

use tree::ShareError;

use crate::dispatch::Violation;

/// The reason for an end.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error("peer did not authenticate in time")]
    PeerSlowToAuthenticate,
    #[error("too many connections over which no user has logged on: the oldest makes room")]
    Evicted,
    #[error("peer has reset the connection")]
    PeerGone,
    #[error("peer has closed its sending side, and what it asked for before waits for too long")]
    PeerClosed,
    #[error("peer does not take its answers")]
    PeerDoesNotRead,
    #[error("peer does not send the rest of a long request")]
    PeerDoesNotSend,
    #[error("a file could not be read to the end that was promised: {0}")]
    File(ShareError),
    #[error("{0}")]
    HostIo(#[from] io::Error),
    #[error("the server ends it")]
    Closed,
    #[error("the server stops")]
    ServerStops,
}
