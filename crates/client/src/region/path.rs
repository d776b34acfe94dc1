//! The path that a region's operations take, and the reason.

use std::fmt;

use pmem::DurabilityClass;
use rdma::{ConnectFailure, DisconnectReason, EngineError, TerminateCode};
use smb::NtStatus;
use smb::push::Refusal;

use crate::error::ClientError;

/// The path in force. It never changes in silence: ask [`super::Region::path`] at any time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Path {
    /// One-sided RDMA: write, read and commit without the server's control side.
    Push {
        /// The durability class of a commit.
        class: DurabilityClass,
        /// The class is `volatile` and the operator switched emulation on.
        is_emulated: bool,
        /// Whether commit is an RDMA Flush; else commit is a message on the SMB connection.
        has_flush: bool,
        /// The RDMA provider of this end.
        provider: &'static str,
        /// Whether the provider is an adapter, whose RDMA Flush is an operation of its own.
        is_adapter: bool,
    },
    /// SMB2 READ, WRITE and FLUSH.
    Smb {
        /// Why the region is not in push mode.
        reason: FallbackReason,
    },
}

/// Why a region is not in push mode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum FallbackReason {
    /// The server recalled the region; it is mapped again when the server allows it.
    Recalled,
    /// The push connection ended.
    Disconnected(DisconnectReason),
    /// The push connection could not be made.
    Unreachable(ConnectFailure),
    /// The server did not answer on the push connection in time.
    Silent,
    /// The server opened the file and does not push it, for this reason.
    NotGranted(Refusal),
    /// The server does not know push mode.
    PeerUnaware,
    /// The server refused a request for push mode, with this status.
    Refused(NtStatus),
    /// The SMB connection failed during such a request.
    ControlLost,
    /// This machine gave no RDMA engine.
    Host(EngineError),
    /// This machine gave no memory for answers.
    HostMemory,
    /// The server's push connection cannot flush, or its answer to the mapping makes no sense.
    PeerIncapable,
}

impl FallbackReason {
    /// Why a request for push mode on the SMB connection failed.
    pub(super) fn of(error: &ClientError) -> Self {
        match error {
            ClientError::PeerStatus { status, .. } => Self::Refused(*status),
            ClientError::PeerMalformed { .. } => Self::PeerIncapable,
            _ => Self::ControlLost,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Push { class, is_emulated, has_flush, provider, is_adapter } => {
                let commit = match (has_flush, is_adapter) {
                    (true, true) => COMMIT_NATIVE,
                    (true, false) => COMMIT_BY_FLUSH,
                    (false, _) => COMMIT_BY_MESSAGE,
                };
                write!(f, "push by provider {provider}, class {class}, commit by {commit}")?;
                if *is_emulated { f.write_str(", persistence EMULATED") } else { Ok(()) }
            }
            Self::Smb { reason } => write!(f, "SMB READ, WRITE and FLUSH: {reason}"),
        }
    }
}

impl fmt::Display for FallbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recalled => f.write_str("the server recalled the region"),
            Self::Disconnected(reason) => {
                write!(f, "the push connection ended: {reason}")?;
                match reason {
                    DisconnectReason::PeerTerminated(ACCESS) => f.write_str(FORGETS),
                    _ => Ok(()),
                }
            }
            Self::Unreachable(failure) => write!(f, "no push connection ({failure:?})"),
            Self::Silent => f.write_str("the server was silent on the push connection"),
            Self::NotGranted(refusal) => write!(f, "the server does not push this file: {refusal}"),
            Self::PeerUnaware => f.write_str("the server does not know push mode"),
            Self::Refused(status) => write!(f, "the server refused push mode: {status}"),
            Self::ControlLost => f.write_str("the SMB connection failed"),
            Self::Host(error) => write!(f, "no RDMA on this machine: {error}"),
            Self::HostMemory => f.write_str("this machine gave no memory for RDMA"),
            Self::PeerIncapable => f.write_str("the server's push connection cannot do it"),
        }
    }
}

/// RFC 5040 §4.8: a region does not allow the operation. With this code a server answers commits of volatile
/// memory.
const ACCESS: TerminateCode = TerminateCode { layer: 0, etype: 1, code: 2 };
const FORGETS: &str = " (commits of files in memory, as on tmpfs, are refused unless the server runs with \
                       --emulate-persistence)";
/// A commit that the adapters at both ends carry out.
const COMMIT_NATIVE: &str = "native RDMA Flush";
/// A commit that the RDMA connection carries itself.
const COMMIT_BY_FLUSH: &str = "RDMA Flush";
/// A commit of bytes that an RDMA Read has shown to be placed.
const COMMIT_BY_MESSAGE: &str = "message (COMMIT_REMOTE_REGION)";

#[cfg(test)]
mod tests {
    use smb::{Command, ParseError};

    use super::*;

    #[test]
    fn a_refused_commit_names_the_option_that_allows_it() {
        let reason = FallbackReason::Disconnected(DisconnectReason::PeerTerminated(ACCESS));
        let text = reason.to_string();
        assert!(
            text.contains("--emulate-persistence") && !text.contains("TerminateCode"),
            "{text}"
        );
    }

    #[test]
    fn a_malformed_answer_is_not_reported_as_a_lost_connection() {
        let (command, error) = (Command::IOCTL, ParseError::PeerProtocolId(0));
        let malformed = ClientError::PeerMalformed { command, error };
        assert_eq!(FallbackReason::of(&malformed), FallbackReason::PeerIncapable);
    }
}
