//! The order in which an initiator tries the forms of start-up, each on a new TCP connection.
//!
//! ```text
//!   revision 2, A = 0  -->  revision 2, A = 1 with C and D  -->  revision 1  -->  give up
//! ```
//!
//! A = 0 goes first because siw as responder crashes its host when a connection with A = 1 dies
//! early (`iw_cm`, Linux 6.12); Intel's adapters drop A = 0, so A = 1 is next; a responder that knows
//! neither closes the connection at revision 2 (RFC 6581 §10) and gets revision 1.

use super::{MpaError, ReadySet, Revision};

/// One form of start-up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attempt {
    /// The revision to use. Revision 2 sends IRD and ORD, revision 1 does not.
    pub revision: Revision,
    /// Ready-to-receive messages to offer. Empty leaves control flag A clear.
    pub ready: ReadySet,
}

impl Attempt {
    /// Client and server: the initiator's ULP speaks first.
    pub const CLIENT_SERVER: Self = Self { revision: Revision::RFC_6581, ready: ReadySet::empty() };
    /// Peer to peer: an explicit message says that the responder may speak.
    pub const PEER_TO_PEER: Self =
        Self { revision: Revision::RFC_6581, ready: ReadySet::WRITE.union(ReadySet::READ) };
    /// The start-up of RFC 5044, before RFC 6581.
    pub const UNENHANCED: Self = Self { revision: Revision::RFC_5044, ready: ReadySet::empty() };
}

/// The position in the order of attempts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dial {
    failed: usize,
}

impl Dial {
    /// A position before the first attempt.
    pub fn new() -> Self {
        Self::default()
    }

    /// The attempt to make now; `None` when every form has failed.
    pub fn attempt(&self) -> Option<Attempt> {
        ORDER.get(self.failed).copied()
    }

    /// The attempt to make after the present attempt ended with `error`; `None` if another form of
    /// start-up would end alike.
    pub fn after(&mut self, error: &MpaError) -> Option<Attempt> {
        if !may_be_the_form(error) {
            return None;
        }
        self.failed += 1;
        self.attempt()
    }
}

/// Whether a responder that does not know the form of the request would cause this error.
fn may_be_the_form(error: &MpaError) -> bool {
    matches!(
        error,
        MpaError::PeerClosed
            | MpaError::PeerRevision(_)
            | MpaError::PeerForm { .. }
            | MpaError::PeerEnhancedTruncated { .. }
            | MpaError::PeerNoCommonReady
    )
}

const ORDER: [Attempt; 3] = [Attempt::CLIENT_SERVER, Attempt::PEER_TO_PEER, Attempt::UNENHANCED];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_connection_leads_to_the_next_form_until_none_is_left() {
        let mut dial = Dial::new();
        assert_eq!(dial.attempt(), Some(Attempt::CLIENT_SERVER));
        assert_eq!(dial.after(&MpaError::PeerClosed), Some(Attempt::PEER_TO_PEER));
        let closed = MpaError::PeerRevision(Revision(1));
        assert_eq!(dial.after(&closed), Some(Attempt::UNENHANCED));
        assert_eq!(dial.after(&MpaError::PeerClosed), None);
        assert_eq!(dial.attempt(), None);
    }

    #[test]
    fn an_error_that_no_other_form_avoids_ends_the_dial() {
        let finals = [
            MpaError::PeerRejected,
            MpaError::PeerTimeout,
            MpaError::PeerKey,
            MpaError::PeerIsInitiator,
        ];
        for error in finals {
            assert_eq!(Dial::new().after(&error), None, "{error}");
        }
    }
}
