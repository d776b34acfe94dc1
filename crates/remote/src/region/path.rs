//! The path that a region's operations take, and the reason.

use std::fmt;

use pmem::DurabilityClass;
use rdma::{ConnectFailure, DisconnectReason, EngineError, TerminateCode};

use super::channel::ChannelError;
use super::control::Messages;

/// The path in force. It never changes in silence: ask [`super::Region::path`] at any time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Path<M: Messages> {
    /// One-sided RDMA: write, read and commit without the server's control side.
    Push {
        /// The durability class of a commit.
        class: DurabilityClass,
        /// The class is `volatile` and the operator switched emulation on.
        is_emulated: bool,
        /// Whether commit is an RDMA Flush; else commit is a message of the control side.
        has_flush: bool,
        /// The RDMA provider of this end.
        provider: &'static str,
        /// Whether the provider is an adapter, whose RDMA Flush is an operation of its own.
        is_adapter: bool,
    },
    /// Messages of the control side.
    Messages {
        /// Why the region is not in push mode.
        reason: FallbackReason<M>,
        /// What a commit is worth; `None` where the server does not say.
        promise: Option<Promise>,
    },
}

/// What a commit of a file is worth.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Promise {
    /// The durability class of the file.
    pub class: DurabilityClass,
    /// The class is `volatile` and the operator switched emulation on.
    pub is_emulated: bool,
}

impl Promise {
    /// Whether the server commits such a file at all.
    pub fn can_commit(self) -> bool {
        self.class != DurabilityClass::Volatile || self.is_emulated
    }
}

impl<M: Messages> Path<M> {
    /// What a commit is worth on this path; `None` where the server does not say.
    pub fn promise(&self) -> Option<Promise> {
        match *self {
            Self::Push { class, is_emulated, .. } => Some(Promise { class, is_emulated }),
            Self::Messages { promise, .. } => promise,
        }
    }

    /// Why the region is not in push mode; `None` in push mode.
    pub fn reason(&self) -> Option<FallbackReason<M>> {
        match *self {
            Self::Push { .. } => None,
            Self::Messages { reason, .. } => Some(reason),
        }
    }
}

/// Why a region is not in push mode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum FallbackReason<M: Messages> {
    /// The server recalled the region; it is mapped again when the server allows it.
    Recalled,
    /// The push connection ended.
    Disconnected(DisconnectReason),
    /// The push connection could not be made.
    Unreachable(ConnectFailure),
    /// The server did not answer on the push connection in time.
    Silent,
    /// The server opened the file and does not push it, for this reason.
    NotGranted(M::Refusal),
    /// The server does not know push mode.
    PeerUnaware,
    /// The server refused a request for push mode, with this status.
    Refused(M::Status),
    /// The control side failed during such a request.
    ControlLost,
    /// This machine gave no RDMA engine.
    Host(EngineError),
    /// This machine gave no memory for answers.
    HostMemory,
    /// The client encrypts the control side, and a push connection is not encrypted.
    ConfigEncrypted,
    /// The control side is not signed: whoever is in between could name any address.
    ConfigUnsigned,
    /// The server names no address that this client takes for the server's.
    PeerAddresses,
    /// The server's push connection cannot flush, or its answer to the mapping makes no sense.
    PeerIncapable,
}

impl<M: Messages> From<ChannelError> for FallbackReason<M> {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Disconnected(reason) => Self::Disconnected(reason),
            ChannelError::Unreachable(failure) => Self::Unreachable(failure),
            ChannelError::Silent => Self::Silent,
            ChannelError::Host(error) => Self::Host(error),
            ChannelError::HostMemory => Self::HostMemory,
            ChannelError::PeerIncapable => Self::PeerIncapable,
        }
    }
}

impl<M: Messages> fmt::Display for Path<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Push { class, is_emulated, has_flush, provider, is_adapter } => {
                let promise = Promise { class: *class, is_emulated: *is_emulated };
                write!(f, "push by provider {provider}, class {class}, ")?;
                match (promise.can_commit(), has_flush, is_adapter) {
                    (false, ..) => f.write_str(REFUSED)?,
                    (true, true, true) => write!(f, "commit by {COMMIT_NATIVE}")?,
                    (true, true, false) => write!(f, "commit by {COMMIT_BY_FLUSH}")?,
                    (true, false, _) => write!(f, "commit by message ({})", M::COMMIT)?,
                }
                if *is_emulated { f.write_str(EMULATED) } else { Ok(()) }
            }
            Self::Messages { reason, promise } => {
                write!(f, "{}: {reason}", M::PLAIN)?;
                let Some(promise) = promise else { return Ok(()) };
                write!(f, "; class {}", promise.class)?;
                if promise.is_emulated {
                    f.write_str(EMULATED)?;
                }
                if promise.can_commit() { Ok(()) } else { write!(f, ", {REFUSED}") }
            }
        }
    }
}

impl<M: Messages> fmt::Display for FallbackReason<M> {
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
            Self::ControlLost => write!(f, "the {} connection failed", M::NAME),
            Self::Host(error) => write!(f, "no RDMA on this machine: {error}"),
            Self::HostMemory => f.write_str("this machine gave no memory for RDMA"),
            Self::ConfigEncrypted => write!(
                f,
                "the {} connection is encrypted, which a push connection cannot be",
                M::NAME
            ),
            Self::ConfigUnsigned => {
                write!(f, "the {} connection is not signed, so nothing proves the server", M::NAME)
            }
            Self::PeerAddresses => {
                f.write_str("the server names no address of its own for push connections")
            }
            Self::PeerIncapable => f.write_str("the server's push connection cannot do it"),
        }
    }
}

/// RFC 5040 §4.8: a region does not allow the operation. With this code a server answers commits of volatile
/// memory.
pub(super) const ACCESS: TerminateCode = TerminateCode { layer: 0, etype: 1, code: 2 };
const FORGETS: &str = " (commits of files in memory, as on tmpfs, are refused unless the server runs with \
                       --emulate-persistence)";
const REFUSED: &str = "commits refused (a file in memory, as on tmpfs, whose server runs without \
                       --emulate-persistence)";
const EMULATED: &str = ", persistence EMULATED";
/// A commit that the adapters at both ends carry out.
const COMMIT_NATIVE: &str = "native RDMA Flush";
/// A commit that the RDMA connection carries itself.
const COMMIT_BY_FLUSH: &str = "RDMA Flush";

#[cfg(test)]
mod tests {
    use super::super::tests::Cues;
    use super::*;

    #[test]
    fn a_refused_commit_names_the_option_that_allows_it() {
        let ended = DisconnectReason::PeerTerminated(ACCESS);
        let reason = FallbackReason::<Cues>::Disconnected(ended);
        let text = reason.to_string();
        assert!(
            text.contains("--emulate-persistence") && !text.contains("TerminateCode"),
            "{text}"
        );
    }
}
