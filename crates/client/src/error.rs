//! What can go wrong for a client, and whose fault it is.
//!
//! A [`ConnectionError`] ends the connection and everything on it; all other errors end one
//! operation.

use std::io;

use smb::auth::InitiateError;
use smb::crypto::{OpenError, SealError, VerifyError};
use smb::negotiate::Dialect;
use smb::{Command, MessageId, NameTooLong, NtStatus, ParseError, SessionId};
use thiserror::Error;

use crate::region::RegionConfigError;
use crate::url::UrlError;

/// An operation failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server said no.
    #[error("the server answered {command} with {status}")]
    PeerStatus {
        /// What was asked.
        command: Command,
        /// Its answer.
        status: NtStatus,
    },
    /// The server's answer is not what its command says.
    #[error("the server's answer to {command} is malformed: {error}")]
    PeerMalformed {
        /// What was asked.
        command: Command,
        /// What is wrong with the answer.
        error: ParseError,
    },
    /// The server took less of a write than it was given.
    #[error("the server took {taken} of {given} bytes")]
    PeerShortWrite {
        /// Bytes it says it has.
        taken: u32,
        /// Bytes it was given.
        given: u32,
    },
    /// The server chose a dialect that was not offered.
    #[error("the server chose {0}, which was not offered")]
    PeerDialect(Dialect),
    /// The server changed the negotiation, or someone in between did.
    #[error("the negotiation was tampered with")]
    PeerNegotiation,
    /// The server did not sign what it has to sign.
    #[error("the server did not prove itself: {0}")]
    PeerUnproven(VerifyError),
    /// The authentication failed before the server said so.
    #[error(transparent)]
    Authentication(#[from] InitiateError),
    /// The connection is gone.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The address cannot be used.
    #[error(transparent)]
    ConfigUrl(#[from] UrlError),
    /// A name is too long for the protocol.
    #[error(transparent)]
    ConfigName(#[from] NameTooLong),
    /// Signing was required, but the session has no key: the server let us in as a guest.
    #[error("signing is required, but the server let us in as a guest")]
    ConfigSigning,
    /// Encryption was required, but server or dialect have none.
    #[error("encryption is required, but was not agreed on")]
    ConfigEncryption,
    /// The region asked for cannot be had.
    #[error(transparent)]
    ConfigRegion(#[from] RegionConfigError),
    /// No random numbers.
    #[error("the host has no random numbers")]
    HostRandom,
}

impl ClientError {
    /// The server's status, if it gave one.
    pub fn status(&self) -> Option<NtStatus> {
        match self {
            Self::PeerStatus { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// The connection is gone, and why.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The host's network failed.
    #[error("network: {}", io::Error::from(*.0))]
    HostIo(io::ErrorKind),
    /// No address is known of the server's name.
    #[error("the host's name has no address")]
    HostName,
    /// The server closed.
    #[error("the server closed the connection")]
    PeerClosed,
    /// We closed.
    #[error("the connection was closed")]
    Closed,
    /// The server sent something that is not SMB.
    #[error("the server broke the protocol: {0}")]
    PeerProtocol(#[from] ParseError),
    /// The server sent a frame whose session does not open it.
    #[error(transparent)]
    PeerSeal(#[from] OpenError),
    /// The server sent a wrong signature, or none.
    #[error(transparent)]
    PeerSignature(#[from] VerifyError),
    /// The server sent in the clear what has to be encrypted.
    #[error("the server answered in the clear on an encrypted session")]
    PeerUnencrypted,
    /// The server named a session we do not have.
    #[error("the server named session {:#x}, which is not ours", .0.0)]
    PeerSession(SessionId),
    /// The server answered what nobody asked.
    #[error("the server answered message {:#x}, which is not open", .0.0)]
    PeerMessage(MessageId),
    /// The server answered a request as if it had been another one.
    #[error("the server answered message {:#x}, {asked:?}, as if it were {command:?}", .message_id.0)]
    PeerCommand {
        /// The request.
        message_id: MessageId,
        /// Its command.
        asked: Command,
        /// That of the answer.
        command: Command,
    },
    /// The server answered a request by another route than it said it would.
    #[error("the server answered message {:#x} not by the async id it had said", .0.0)]
    PeerRoute(MessageId),
    /// The server ended a request with the status that says it has only begun.
    #[error("the server answered message {:#x} for good with STATUS_PENDING", .0.0)]
    PeerInterim(MessageId),
    /// The server took our last credit: nothing could ever be asked again.
    #[error("the server left us no credit")]
    PeerCredits,
    /// The server said nothing for as long as [`crate::ConnectOptions::answer_timeout`] allows.
    #[error("the server owes an answer and says nothing")]
    PeerSilent,
    /// Our own key is used up.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The server sent a longer frame than it may.
    #[error("the server sent a frame of {len} bytes, {len_max} were agreed")]
    PeerFrame {
        /// Its length.
        len: usize,
        /// The most it may be.
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
    /// The RDMA engine refused us.
    #[error(transparent)]
    RdmaEngine(#[from] rdma::EngineError),
    /// The RDMA engine refused our memory.
    #[error(transparent)]
    RdmaRegister(#[from] rdma::RegisterError),
    /// The RDMA engine refused an operation.
    #[error(transparent)]
    RdmaPost(#[from] rdma::PostError),
    /// SMB Direct ended, its reason says by whose fault.
    #[error(transparent)]
    Direct(#[from] smbdirect::CloseReason),
    /// The limits configured for SMB Direct cannot be kept.
    #[error(transparent)]
    ConfigDirect(#[from] smbdirect::ConfigError),
    /// SMB Direct did not take a frame.
    #[error(transparent)]
    DirectSend(#[from] smbdirect::SendError),
    /// The host has no memory to register.
    #[error(transparent)]
    HostMemory(#[from] pmem::MapError),
    /// Registered memory could not be reached.
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
