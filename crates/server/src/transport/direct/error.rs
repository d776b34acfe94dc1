//! The reasons for which this side ends an SMB Direct connection.

use pmem::MediumError;
use rdma::{PostError, RegisterError};
use smbdirect::CloseReason;
use thiserror::Error;

use crate::dispatch::Violation;

/// See the module. Each ends only its own connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(super) enum End {
    /// The peer broke a rule of SMB Direct, or fell silent.
    #[error(transparent)]
    Smbd(#[from] CloseReason),
    /// The peer broke a rule of SMB2.
    #[error(transparent)]
    Smb(#[from] Violation),
    /// The peer set up no session within the time allowed.
    #[error("peer did not authenticate in time")]
    PeerSlowToAuthenticate,
    /// The connection was evicted: too many waited for their first session.
    #[error("too many connections over which no user has logged on: the oldest makes room")]
    Evicted,
    /// A message longer than an unauthenticated peer needs.
    #[error("peer sent a message of {0} bytes before it authenticated")]
    PeerLongUnauthenticated(usize),
    /// Answers pile up because the peer grants no credits or receives nothing.
    #[error("peer takes no answers: {queued} bytes are waiting")]
    PeerTakesNothing {
        /// Bytes of the waiting answers.
        queued: usize,
    },
    /// An answer longer than the peer said it can reassemble.
    #[error("peer asked for an answer of {len} bytes, it takes {max}")]
    PeerAskedTooMuch {
        /// Bytes of the answer.
        len: usize,
        /// The greatest length that the peer takes.
        max: u32,
    },
    /// The peer has served none of the RDMA Reads in flight within the allowed time.
    #[error("peer serves no RDMA Reads of its memory")]
    PeerServesNoReads,
    /// An immediate message, or a message that invalidates a region of this side: SMB Direct has
    /// neither.
    #[error("peer sent what is no SMB Direct message")]
    PeerNotSmbDirect,
    /// More requests with tokens to invalidate than the SMB2 credits allow.
    #[error("peer has more requests under way than it has credits")]
    PeerTooManyRequests,
    /// The connections of its user, or of all guests, hold too much together: requests that wait, or notices.
    #[error("the connections of its user hold too much together, and this one most of it")]
    PeerHoldsMost,
    /// The peer takes answers too slowly, or not at all.
    #[error("peer does not take its answers")]
    PeerDoesNotRead,
    /// The peer serves the server's RDMA Reads too slowly for those who wait for the memory.
    #[error("peer serves RDMA Reads slowly, and others wait for the memory")]
    PeerServesSlowly,
    /// There was no memory to read into.
    #[error(
        "no memory for a minute to fetch what a WRITE names: other connections of its user hold all that it may have"
    )]
    LocalStagingScarce,
    /// The peer has begun a message, and sends no more of it.
    #[error("peer sent a part of a message, and no more of it for a minute")]
    PeerSendsHalf,
    /// The server made an answer without a length prefix.
    #[error("an answer is not a whole frame")]
    LocalFrame,
    /// The engine refused a work request.
    #[error("work request refused: {0}")]
    LocalPost(#[from] PostError),
    /// The engine refused to register memory.
    #[error("memory not registered: {0}")]
    LocalRegister(#[from] RegisterError),
    /// This side's buffers could not be read.
    #[error("buffer memory: {0}")]
    LocalMemory(#[from] MediumError),
    /// No memory for buffers.
    #[error("no buffer memory: {0}")]
    HostMemory(#[from] pmem::MapError),
    /// A bug of the server: handling a request panicked.
    #[error("handling a request panicked")]
    LocalPanic,
    /// The server ends the connection.
    #[error("the server ends it")]
    LocalClosed,
}
