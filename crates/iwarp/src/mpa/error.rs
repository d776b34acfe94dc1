//! Why a start-up failed.
//!
//! Spec: RFC 5044 §7.1, RFC 6581 §8 to §10.

use super::{ProfileError, Revision};

/// What went wrong before full operation, and whose doing it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MpaError {
    /// The peer's first bytes are not an MPA key: it speaks something else.
    #[error("peer sent no MPA start-up frame")]
    PeerKey,
    /// A Request came where a Reply was due: both ends dialled.
    #[error("peer sent an MPA Request as well: both ends are initiators")]
    PeerIsInitiator,
    /// A Reply came where a Request was due: both ends listened.
    #[error("peer sent an MPA Reply to nothing: both ends are responders")]
    PeerIsResponder,
    /// A revision we do not speak, or not the one we used.
    #[error("peer used {0}")]
    PeerRevision(Revision),
    /// More private data than a frame may carry.
    #[error("peer announced {got} bytes of private data, {PRIVATE_DATA_FIELD_MAX} is the most")]
    PeerPrivateDataTooLong {
        /// How much.
        got: usize,
    },
    /// The S bit of a Reply is not that of our Request.
    #[error("peer replied in the other form (enhanced: {enhanced})")]
    PeerForm {
        /// The S bit of the Reply.
        enhanced: bool,
    },
    /// The S bit promised IRD and ORD and there was no room for them.
    #[error("peer announced IRD and ORD in {got} bytes of private data")]
    PeerEnhancedTruncated {
        /// How much private data there was.
        got: usize,
    },
    /// The peer's ULP or its implementation said no.
    #[error("peer rejected the connection")]
    PeerRejected,
    /// Bytes came that could not be due yet.
    #[error("peer sent {got} bytes before it could have had a reply")]
    PeerSpokeEarly {
        /// How many.
        got: usize,
    },
    /// The connection ended before the start-up did. A responder that does not know revision 2,
    /// or a flag in it, does just that.
    #[error("peer closed the connection during start-up")]
    PeerClosed,
    /// Nothing came in time.
    #[error("peer did not finish the start-up in time")]
    PeerTimeout,
    /// The peer means to have more requests outstanding than we take.
    #[error("peer wants {ord} requests outstanding, {ird} is what was offered")]
    PeerOrd {
        /// What it wants.
        ord: u16,
        /// What we offered.
        ird: u16,
    },
    /// The peer offers no ready-to-receive message that we offered.
    #[error("peer shares no ready-to-receive message with us")]
    PeerNoCommonReady,
    /// The peer's profile cannot be read.
    #[error(transparent)]
    PeerProfile(ProfileError),
    /// Our profile and private data cannot be written.
    #[error(transparent)]
    ConfigProfile(ProfileError),
    /// More private data was configured than a frame may carry.
    #[error("{got} bytes of private data were given, {limit} is the most")]
    ConfigPrivateDataTooLong {
        /// How much.
        got: usize,
        /// The most in this form of frame.
        limit: usize,
    },
    /// IRD or ORD has fourteen bits, the highest value of which means something else.
    #[error("a queue depth of {0} was configured, {DEPTH_MAX} is the most")]
    ConfigDepth(u16),
    /// Our own ULP did not decide in time whether to accept.
    #[error("nobody decided on the connection in time")]
    UlpTimeout,
    /// There is no request to decide on, or it is decided.
    #[error("there is no request to decide on")]
    NotDue,
}

/// Longest private data field: RFC 5044 §7.1.1.
pub const PRIVATE_DATA_FIELD_MAX: usize = 512;
/// Largest IRD and ORD: RFC 6581 §9.1 gives all ones another meaning, and we never send it.
pub const DEPTH_MAX: u16 = 0x3ffe;
