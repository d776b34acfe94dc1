//! Why a connection ended, and on whose account.
//!
//! SMB Direct has no error message: apart from one refused version, every broken rule ends in a
//! dropped connection. The reason therefore stays on this side, for the log and the tests.
//!
//! Spec: MS-SMBD §3.1.5.6 to §3.1.5.8 (what a receiver must verify), §3.1.7 (timers).

use thiserror::Error;

use crate::negotiate::Status;

/// Why the connection cannot go on. Nothing was placed or delivered from the message at fault.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum CloseReason {
    /// A message ends before its fixed part does.
    #[error("peer sent a message of {got} bytes where at least {need} are needed")]
    PeerTruncated {
        /// Bytes the fixed part takes.
        need: usize,
        /// Bytes there were.
        got: usize,
    },
    /// A message is larger than the receive buffers the peer was told of.
    #[error("peer sent a message of {got} bytes, {max} were agreed")]
    PeerOversized {
        /// Bytes there were.
        got: usize,
        /// Bytes agreed in the negotiation.
        max: u32,
    },
    /// The peer's range of versions does not include ours. The one fault that is answered.
    #[error("peer speaks versions {min:#06x} to {max:#06x}, not 0x0100")]
    PeerVersion {
        /// Lowest version the peer speaks.
        min: u16,
        /// Highest version the peer speaks.
        max: u16,
    },
    /// The peer asks for no credits, so it could never be answered.
    #[error("peer requested no credits")]
    PeerRequestsNoCredits,
    /// The acceptor let us in but gave us nothing to send with.
    #[error("peer granted no credits in its negotiation response")]
    PeerGrantsNoCredits,
    /// The peer receives less than every implementation must.
    #[error("peer receives at most {0} bytes, 128 are required")]
    PeerReceiveSize(u32),
    /// The peer reassembles less than every implementation must.
    #[error("peer reassembles at most {0} bytes, 131072 are required")]
    PeerFragmentedSize(u32),
    /// The acceptor wants to send more than we said we receive.
    #[error("peer prefers to send {preferred} bytes, we receive {max}")]
    PeerPreferredSendSize {
        /// What the peer announced.
        preferred: u32,
        /// What we announced.
        max: u32,
    },
    /// The acceptor refused us.
    #[error("peer refused the negotiation with status {0}")]
    PeerRefused(Status),
    /// A negotiation message came when none was owed.
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
        /// Where the payload would end.
        end: u64,
        /// Where the message ends.
        got: usize,
    },
    /// A message without payload claims that payload follows.
    #[error("peer announced {0} more bytes in a message without payload")]
    PeerEmptyFragment(u32),
    /// The whole message would be larger than we said we reassemble.
    #[error("peer began a message of {total} bytes, {max} were agreed")]
    PeerFragmentedTooLong {
        /// Length of the whole message, as claimed.
        total: u64,
        /// Length we agreed to.
        max: u32,
    },
    /// A fragment does not continue the message before it.
    #[error("peer sent a fragment of a {claimed}-byte rest where {expected} bytes were missing")]
    PeerFragmentMismatch {
        /// Bytes that were still missing.
        expected: u32,
        /// Bytes the fragment says were missing, itself included.
        claimed: u64,
    },
    /// The peer sent a message without having a credit for it.
    #[error("peer sent a message without a credit")]
    PeerWithoutCredit,
    /// The peer said nothing for the idle time and did not answer the keepalive either.
    #[error("peer did not answer the keepalive")]
    PeerSilent,
    /// The peer said nothing because we never gave it a receive buffer to say it in.
    #[error("peer was left without credits until the idle time passed")]
    LocalReceivesWithheld,
    /// The caller closed the connection.
    #[error("closed on this side")]
    LocalClosed,
}

/// Who caused a connection to end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Blame {
    /// The other side broke a rule, refused, or went silent.
    Peer,
    /// This side withheld what the protocol needs, or closed.
    Local,
}

impl CloseReason {
    /// On whose account the connection ended.
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
