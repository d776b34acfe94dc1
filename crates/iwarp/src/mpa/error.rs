//! Why a start-up failed.
//!
//! Spec: RFC 5044 §7.1, RFC 6581 §8 to §10.

use super::{ProfileError, Revision};

/// An error of the start-up; the name of the variant says which side caused it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MpaError {
    /// The peer's first bytes are not an MPA key: the peer speaks another protocol.
    #[error("peer sent no MPA start-up frame")]
    PeerKey,
    /// A Request came where a Reply was due: both ends dialled.
    #[error("peer sent an MPA Request as well: both ends are initiators")]
    PeerIsInitiator,
    /// A Reply came where a Request was due: both ends listened.
    #[error("peer sent an MPA Reply to nothing: both ends are responders")]
    PeerIsResponder,
    /// A revision that this crate does not implement, or another revision than the Request had.
    #[error("peer used {0}")]
    PeerRevision(Revision),
    /// More private data than a frame may carry.
    #[error("peer announced {got} bytes of private data, {PRIVATE_DATA_FIELD_MAX} is the most")]
    PeerPrivateDataTooLong {
        /// Bytes of private data.
        got: usize,
    },
    /// The S bit of a Reply is not that of our Request.
    #[error("peer replied in the other form (enhanced: {enhanced})")]
    PeerForm {
        /// The S bit of the Reply.
        enhanced: bool,
    },
    /// The S bit announced IRD and ORD, and the private data was too short for them.
    #[error("peer announced IRD and ORD in {got} bytes of private data")]
    PeerEnhancedTruncated {
        /// Bytes of private data.
        got: usize,
    },
    /// The peer's ULP or its implementation rejected the connection.
    #[error("peer rejected the connection")]
    PeerRejected,
    /// The peer sent bytes before they were due.
    #[error("peer sent {got} bytes before it could have had a reply")]
    PeerSpokeEarly {
        /// Number of bytes.
        got: usize,
    },
    /// The connection ended before the start-up did. A responder that does not know revision 2,
    /// or a flag of revision 2, closes the connection like that.
    #[error("peer closed the connection during start-up")]
    PeerClosed,
    /// The peer sent nothing in time.
    #[error("peer did not finish the start-up in time")]
    PeerTimeout,
    /// The peer wants more requests outstanding than this end takes.
    #[error("peer wants {ord} requests outstanding, {ird} is what was offered")]
    PeerOrd {
        /// The depth that the peer wants.
        ord: u16,
        /// The depth that this end offered.
        ird: u16,
    },
    /// The peer offers none of the ready-to-receive messages that this end offered.
    #[error("peer shares no ready-to-receive message with us")]
    PeerNoCommonReady,
    /// The profile of the peer is garbled.
    #[error(transparent)]
    PeerProfile(ProfileError),
    /// The configured profile and private data do not fit.
    #[error(transparent)]
    ConfigProfile(ProfileError),
    /// More private data was configured than a frame may carry.
    #[error("{got} bytes of private data were given, {limit} is the most")]
    ConfigPrivateDataTooLong {
        /// Bytes of private data.
        got: usize,
        /// The most in this form of frame.
        limit: usize,
    },
    /// A configured IRD or ORD is above the limit: the field has fourteen bits, and all ones has another meaning.
    #[error("a queue depth of {0} was configured, {DEPTH_MAX} is the most")]
    ConfigDepth(u16),
    /// The ULP of this end did not decide in time whether to accept.
    #[error("nobody decided on the connection in time")]
    UlpTimeout,
    /// There is no request to decide on, or the request is decided already.
    #[error("there is no request to decide on")]
    NotDue,
}

/// Longest private data field: RFC 5044 §7.1.1.
pub const PRIVATE_DATA_FIELD_MAX: usize = 512;
/// Largest IRD and ORD: RFC 6581 §9.1 gives all ones another meaning, and we never send it.
pub const DEPTH_MAX: u16 = 0x3ffe;
