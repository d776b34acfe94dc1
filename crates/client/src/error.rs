//! The errors of a client, and who is to blame for each.
//!
//! A [`ConnectionError`] ends the connection and everything on it, except those that say that the connection
//! goes on; all other errors end one operation.

use std::io;

use remote::RegionConfigError;
use smb::auth::InitiateError;
use smb::crypto::{OpenError, SealError, VerifyError};
use smb::negotiate::Dialect;
use smb::{Command, MessageId, NameTooLong, NtStatus, ParseError, SessionId};
use thiserror::Error;

use crate::url::UrlError;

/// An operation failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server refused.
    #[error("the server answered {command} with {status}")]
    PeerStatus {
        /// The command of the request.
        command: Command,
        /// The status of the answer.
        status: NtStatus,
    },
    /// The server's answer is malformed for its command.
    #[error("the server's answer to {command} is malformed: {error}")]
    PeerMalformed {
        /// The command of the request.
        command: Command,
        /// What is wrong with the answer.
        error: ParseError,
    },
    /// The server took less of a write than it was given.
    #[error("the server took {taken} of {given} bytes")]
    PeerShortWrite {
        /// Bytes the server says it has written.
        taken: u32,
        /// Bytes of the request.
        given: u32,
    },
    /// The server chose a dialect that was not offered.
    #[error("the server chose {0}, which was not offered")]
    PeerDialect(Dialect),
    /// The server changed the negotiation, or an attacker in between did.
    #[error("the negotiation was tampered with")]
    PeerNegotiation,
    /// The server did not sign a message that must be signed.
    #[error("the server did not prove itself: {0}")]
    PeerUnproven(VerifyError),
    /// The authentication failed on the client's side.
    #[error(transparent)]
    Authentication(#[from] InitiateError),
    /// The connection is gone.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The address cannot be used.
    #[error(transparent)]
    ConfigUrl(#[from] UrlError),
    /// A request cannot carry so many bytes.
    #[error("{len} bytes do not fit a request of this connection, which carries {max}")]
    ConfigTooLong {
        /// Bytes of the request.
        len: usize,
        /// The most that a request carries.
        max: u32,
    },
    /// No file has bytes there: offsets have 64 bits.
    #[error("no file has {len} bytes at {offset}")]
    ConfigRange {
        /// The first byte.
        offset: u64,
        /// Bytes from there.
        len: usize,
    },
    /// A listing takes more memory than allowed ([`crate::ConnectOptions::listing_bytes_max`]).
    #[error("the server lists more than fits {bytes_max} bytes")]
    PeerListing {
        /// The bound.
        bytes_max: usize,
    },
    /// A listing goes on without names, or for longer than a call may take.
    #[error("the server's listing does not end")]
    PeerListingEndless,
    /// A name is too long for the protocol.
    #[error(transparent)]
    ConfigName(#[from] NameTooLong),
    /// Signing was required, but the session has no key: the server admitted us as a guest.
    #[error("signing is required, but the server let us in as a guest")]
    ConfigSigning,
    /// Encryption was required, but the server or the dialect does not support it.
    #[error("encryption is required, but was not agreed on")]
    ConfigEncryption,
    /// The region cannot be mapped as asked.
    #[error(transparent)]
    ConfigRegion(#[from] RegionConfigError),
    /// A handle that outlives the server was asked for, and the share has none to give.
    #[error("the share keeps no persistent opens: its server is not told where (persistent_opens)")]
    PeerNotPersistent,
    /// The host starts no thread.
    #[error("the host starts no thread")]
    HostThread,
    /// The host gave no random numbers.
    #[error("the host has no random numbers")]
    HostRandom,
}

impl ClientError {
    /// Whether the session is over, so that the call may be made by another one.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            // The connection goes on after these.
            Self::Connection(
                ConnectionError::PeerFewCredits { .. } | ConnectionError::PeerLate(_),
            ) => false,
            Self::Connection(_) => true,
            _ => false,
        }
    }

    /// The server's status, if it gave one.
    pub fn status(&self) -> Option<NtStatus> {
        match self {
            Self::PeerStatus { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// The connection is lost, for this reason.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The host's network failed.
    #[error("network: {}", io::Error::from(*.0))]
    HostIo(io::ErrorKind),
    /// The server's name has no address.
    #[error("the host's name has no address")]
    HostName,
    /// The server closed the connection.
    #[error("the server closed the connection")]
    PeerClosed,
    /// This client closed the connection.
    #[error("the connection was closed")]
    Closed,
    /// The server sent something that is not SMB.
    #[error("the server broke the protocol: {0}")]
    PeerProtocol(#[from] ParseError),
    /// The server sent a sealed frame that the keys of its session do not open.
    #[error(transparent)]
    PeerSeal(#[from] OpenError),
    /// The server sent a wrong signature, or none.
    #[error(transparent)]
    PeerSignature(#[from] VerifyError),
    /// The server sent unencrypted what must be encrypted.
    #[error("the server answered in the clear on an encrypted session")]
    PeerUnencrypted,
    /// The server named a session that this client does not have.
    #[error("the server named session {:#x}, which is not ours", .0.0)]
    PeerSession(SessionId),
    /// The server answered a request that is not open.
    #[error("the server answered message {:#x}, which is not open", .0.0)]
    PeerMessage(MessageId),
    /// The server answered a request with another command.
    #[error("the server answered message {:#x}, {asked:?}, as if it were {command:?}", .message_id.0)]
    PeerCommand {
        /// The request.
        message_id: MessageId,
        /// Its command.
        asked: Command,
        /// The command of the answer.
        command: Command,
    },
    /// The server answered a request under another async id than it announced.
    #[error("the server answered message {:#x} not by the async id it had said", .0.0)]
    PeerRoute(MessageId),
    /// The server ended a request with the status of an interim answer.
    #[error("the server answered message {:#x} for good with STATUS_PENDING", .0.0)]
    PeerInterim(MessageId),
    /// The server took the last credit: no request could ever be sent again.
    #[error("the server left us no credit")]
    PeerCredits,
    /// The server does not grant the credits that a request needs. The connection goes on.
    #[error("the server does not grant the {charge} credits that the request needs")]
    PeerFewCredits {
        /// The credits that the request needs.
        charge: u16,
    },
    /// The server has not answered within [`crate::ConnectOptions::call_timeout`]. The connection goes on.
    #[error("the server has not answered message {:#x} in the time that a call may take", .0.0)]
    PeerLate(MessageId),
    /// The server was silent for as long as [`crate::ConnectOptions::answer_timeout`] allows.
    #[error("the server owes an answer and says nothing")]
    PeerSilent,
    /// The client's own key is used up.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The server sent a longer frame than it may.
    #[error("the server sent a frame of {len} bytes, {len_max} were agreed")]
    PeerFrame {
        /// The length of the frame.
        len: usize,
        /// The greatest length allowed.
        len_max: usize,
    },
    /// The RDMA connection could not be made.
    #[error("RDMA connection: {0:?}")]
    RdmaDial(rdma::ConnectFailure),
    /// The RDMA connection ended.
    #[error("RDMA connection: {0}")]
    RdmaLost(rdma::DisconnectReason),
    /// An RDMA operation failed, and the connection with it.
    #[error("RDMA operation: {0:?}")]
    RdmaWork(rdma::WcStatus),
    /// The RDMA engine refused a call.
    #[error(transparent)]
    RdmaEngine(#[from] rdma::EngineError),
    /// The RDMA engine did not register our memory.
    #[error(transparent)]
    RdmaRegister(#[from] rdma::RegisterError),
    /// The RDMA engine refused an operation.
    #[error(transparent)]
    RdmaPost(#[from] rdma::PostError),
    /// SMB Direct ended; the reason says who is to blame.
    #[error(transparent)]
    Direct(#[from] smbdirect::CloseReason),
    /// The configured limits of SMB Direct are invalid.
    #[error(transparent)]
    ConfigDirect(#[from] smbdirect::ConfigError),
    /// SMB Direct did not take a frame.
    #[error(transparent)]
    DirectSend(#[from] smbdirect::SendError),
    /// The host has no memory to register.
    #[error(transparent)]
    HostMemory(#[from] pmem::MapError),
    /// The host could not access registered memory.
    #[error(transparent)]
    HostMedium(#[from] pmem::MediumError),
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::PeerClosed,
            kind => Self::HostIo(kind),
        }
    }
}
