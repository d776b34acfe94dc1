//! The reason why a connection ended, and the side that caused the end.
//!
//! SMB Direct has no error message: apart from one refused version, every broken rule ends in a
//! dropped connection. The peer never learns the reason, which is for the log and the tests.
//!
//! Spec: MS-SMBD §3.1.5.6 to §3.1.5.8 (what a receiver must verify), §3.1.7 (timers).

use thiserror::Error;

use crate::negotiate::Status;

/// The reason why the connection ended. Nothing of the offending message was placed or delivered.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum CloseReason {
    /// A message ends before its fixed part does.
    #[error("peer sent a message of {got} bytes where at least {need} are needed")]
    PeerTruncated {
        /// Bytes the fixed part takes.
        need: usize,
        /// Bytes received.
        got: usize,
    },
    /// A message is larger than the agreed size of a receive buffer.
    #[error("peer sent a message of {got} bytes, {max} were agreed")]
    PeerOversized {
        /// Bytes received.
        got: usize,
        /// Bytes agreed in the negotiation.
        max: u32,
    },
    /// The peer's range of versions does not include ours. An acceptor answers this fault only.
    #[error("peer speaks versions {min:#06x} to {max:#06x}, not 0x0100")]
    PeerVersion {
        /// Lowest version the peer speaks.
        min: u16,
        /// Highest version the peer speaks.
        max: u16,
    },
    /// The peer requests no credits, so nobody could answer it.
    #[error("peer requested no credits")]
    PeerRequestsNoCredits,
    /// The acceptor accepted the connection but granted no credits.
    #[error("peer granted no credits in its negotiation response")]
    PeerGrantsNoCredits,
    /// The peer receives less than every implementation must.
    #[error("peer receives at most {0} bytes, 128 are required")]
    PeerReceiveSize(u32),
    /// The peer reassembles less than every implementation must.
    #[error("peer reassembles at most {0} bytes, 131072 are required")]
    PeerFragmentedSize(u32),
    /// The acceptor's preferred send size exceeds our receive size.
    #[error("peer prefers to send {preferred} bytes, we receive {max}")]
    PeerPreferredSendSize {
        /// The size that the peer announced, in bytes.
        preferred: u32,
        /// The size that this side announced, in bytes.
        max: u32,
    },
    /// The acceptor refused the connection.
    #[error("peer refused the negotiation with status {0}")]
    PeerRefused(Status),
    /// A negotiation message came when none was due.
    #[error("peer sent a negotiation message out of turn")]
    PeerOutOfTurn,
    /// The peer did not negotiate within the time allowed.
    #[error("peer did not finish the negotiation in time")]
    PeerNegotiateTimeout,
    /// The payload does not begin on a multiple of eight.
    #[error("peer put the payload at offset {0}, not a multiple of 8")]
    PeerMisaligned(u32),
    /// The payload would begin inside the header.
    #[error("peer put the payload at offset {0}, inside the header")]
    PeerPayloadInHeader(u32),
    /// The payload would end behind the message.
    #[error("peer's payload ends at {end}, its message at {got}")]
    PeerPayloadBeyondEnd {
        /// Offset at which the payload would end.
        end: u64,
        /// Length of the message in bytes.
        got: usize,
    },
    /// A message without payload claims that payload follows.
    #[error("peer announced {0} more bytes in a message without payload")]
    PeerEmptyFragment(u32),
    /// The whole message would be larger than the agreed fragmented size.
    #[error("peer began a message of {total} bytes, {max} were agreed")]
    PeerFragmentedTooLong {
        /// Length of the whole message, as claimed.
        total: u64,
        /// The agreed fragmented size.
        max: u32,
    },
    /// A fragment does not continue the message before it.
    #[error("peer sent a fragment of a {claimed}-byte rest where {expected} bytes were missing")]
    PeerFragmentMismatch {
        /// Bytes that were still missing.
        expected: u32,
        /// Bytes missing as the header of the fragment says, the fragment included.
        claimed: u64,
    },
    /// The peer sent a message without having a credit for it.
    #[error("peer sent a message without a credit")]
    PeerWithoutCredit,
    /// The peer sent nothing for the idle time and did not answer the keepalive.
    #[error("peer did not answer the keepalive")]
    PeerSilent,
    /// The peer sent nothing because this side left it without credits.
    #[error("peer was left without credits until the idle time passed")]
    LocalReceivesWithheld,
    /// The caller closed the connection.
    #[error("closed on this side")]
    LocalClosed,
}

/// The side that caused a connection to end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Blame {
    /// The other side broke a rule, refused, or went silent.
    Peer,
    /// This side withheld what the protocol needs, or closed.
    Local,
}

impl CloseReason {
    /// The side that caused the connection to end.
    pub fn blame(self) -> Blame {
        match self {
            Self::LocalReceivesWithheld | Self::LocalClosed => Blame::Local,
            Self::PeerTruncated { .. }
            | Self::PeerOversized { .. }
            | Self::PeerVersion { .. }
            | Self::PeerRequestsNoCredits
            | Self::PeerGrantsNoCredits
            | Self::PeerReceiveSize(_)
            | Self::PeerFragmentedSize(_)
            | Self::PeerPreferredSendSize { .. }
            | Self::PeerRefused(_)
            | Self::PeerOutOfTurn
            | Self::PeerNegotiateTimeout
            | Self::PeerMisaligned(_)
            | Self::PeerPayloadInHeader(_)
            | Self::PeerPayloadBeyondEnd { .. }
            | Self::PeerEmptyFragment(_)
            | Self::PeerFragmentedTooLong { .. }
            | Self::PeerFragmentMismatch { .. }
            | Self::PeerWithoutCredit
            | Self::PeerSilent => Blame::Peer,
        }
    }
}
