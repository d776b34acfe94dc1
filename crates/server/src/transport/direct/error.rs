//! Why an SMB Direct connection ended on our side.

use pmem::MediumError;
use rdma::{PostError, RegisterError};
use smbdirect::CloseReason;
use thiserror::Error;

use crate::dispatch::Violation;

/// See the module. Each ends its own connection and no other.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(super) enum End {
    /// A rule of SMB Direct was broken, or the peer fell silent.
    #[error(transparent)]
    Smbd(#[from] CloseReason),
    /// A rule of SMB2 was broken.
    #[error(transparent)]
    Smb(#[from] Violation),
    /// No session within the time allowed.
    #[error("peer did not authenticate in time")]
    PeerSlowToAuthenticate,
    /// One more connection than may wait for their first session.
    #[error("too many connections over which no user has logged on: the oldest makes room")]
    Evicted,
    /// A message longer than an unauthenticated peer needs.
    #[error("peer sent a message of {0} bytes before it authenticated")]
    PeerLongUnauthenticated(usize),
    /// Answers pile up because the peer grants no credits or reads nothing.
    #[error("peer takes no answers: {queued} bytes are waiting")]
    PeerTakesNothing {
        /// Bytes of answers that wait.
        queued: usize,
    },
    /// An answer that the peer said it cannot put together.
    #[error("peer asked for an answer of {len} bytes, it takes {max}")]
    PeerAskedTooMuch {
        /// Bytes of the answer.
        len: usize,
        /// Bytes the peer takes.
        max: u32,
    },
    /// RDMA Reads under way, and none of them served for as long as we wait.
    #[error("peer serves no RDMA Reads of its memory")]
    PeerServesNoReads,
    /// An immediate message, or one that ends a region of ours: SMB Direct has neither.
    #[error("peer sent what is no SMB Direct message")]
    PeerNotSmbDirect,
    /// More requests with tokens to invalidate than SMB2 credits allow requests.
    #[error("peer has more requests under way than it has credits")]
    PeerTooManyRequests,
    /// An answer without a length prefix came out of the server.
    #[error("an answer is not a whole frame")]
    LocalFrame,
    /// The engine refused a work request.
    #[error("work request refused: {0}")]
    LocalPost(#[from] PostError),
    /// The engine refused to register memory.
    #[error("memory not registered: {0}")]
    LocalRegister(#[from] RegisterError),
    /// Our own buffers cannot be read.
    #[error("buffer memory: {0}")]
    LocalMemory(#[from] MediumError),
    /// No memory for buffers.
    #[error("no buffer memory: {0}")]
    HostMemory(#[from] pmem::MapError),
    /// Handling a request panicked: a bug of ours.
    #[error("handling a request panicked")]
    LocalPanic,
    /// The server ends the connection.
    #[error("the server ends it")]
    LocalClosed,
}
