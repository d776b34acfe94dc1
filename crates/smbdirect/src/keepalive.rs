//! Notices a peer that has gone silent.
//!
//! ```text
//!              idle time passed           poll_transmit
//!   +-------+                    +-----+  (asks)          +-------+
//!   | Heard |------------------->| Due |----------------->| Asked |
//!   +-------+                    +-----+                  +-------+
//!       ^                           |  a message arrives      |
//!       +---------------------------+-------------------------+
//!                    the answer's time passed: the connection ends
//! ```
//!
//! Spec: MS-SMBD §3.1.2.2, §3.1.7.2.

use std::time::{Duration, Instant};

/// The state of the keepalive of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keepalive {
    state: State,
    deadline: Instant,
}

/// The action that is due when a deadline has passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Expired {
    /// Ask the peer for an answer.
    Ask,
    /// End the connection.
    GiveUp,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Heard,
    Due,
    Asked,
}

impl Keepalive {
    /// The state after a message of the peer arrived at `now`.
    pub(crate) fn heard(now: Instant) -> Self {
        Self { state: State::Heard, deadline: now + IDLE_TIMEOUT }
    }

    /// When [`Keepalive::expire`] next has an action to return.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the next message has to ask for an answer.
    pub(crate) fn is_due(&self) -> bool {
        self.state == State::Due
    }

    /// Notes that the question was sent. The time for the answer already runs: a question that
    /// cannot be sent for want of credits ends the connection like a question without an answer.
    pub(crate) fn asked(&mut self) {
        self.state = State::Asked;
    }

    /// Returns the action that is due at `now`, if any.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Expired> {
        if now < self.deadline {
            return None;
        }
        match self.state {
            State::Heard => {
                *self = Self { state: State::Due, deadline: now + KEEPALIVE_TIMEOUT };
                Some(Expired::Ask)
            }
            State::Due | State::Asked => Some(Expired::GiveUp),
        }
    }
}

/// Time without a message after which the peer is asked (MS-SMBD §3.1.2.2; Windows and Linux alike).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time that a peer has to answer. MS-SMBD leaves the value open.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_asked_once_and_then_given_up() {
        let start = Instant::now();
        let mut keepalive = Keepalive::heard(start);
        assert_eq!(keepalive.expire(start + IDLE_TIMEOUT - Duration::from_nanos(1)), None);
        let asked = start + IDLE_TIMEOUT;
        assert_eq!(keepalive.expire(asked), Some(Expired::Ask));
        assert!(keepalive.is_due());
        keepalive.asked();
        assert!(!keepalive.is_due());
        assert_eq!(keepalive.deadline(), asked + KEEPALIVE_TIMEOUT);
        assert_eq!(keepalive.expire(asked), None);
        assert_eq!(keepalive.expire(asked + KEEPALIVE_TIMEOUT), Some(Expired::GiveUp));
    }

    #[test]
    fn a_keepalive_that_cannot_be_sent_ends_the_connection_alike() {
        let start = Instant::now();
        let mut keepalive = Keepalive::heard(start);
        assert_eq!(keepalive.expire(start + IDLE_TIMEOUT), Some(Expired::Ask));
        let end = start + IDLE_TIMEOUT + KEEPALIVE_TIMEOUT;
        assert_eq!(keepalive.expire(end), Some(Expired::GiveUp));
    }
}
