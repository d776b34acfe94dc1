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

/// What is known of the peer's health.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keepalive {
    state: State,
    deadline: Instant,
}

/// What has to be done when a deadline passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Expired {
    /// Ask the peer for a sign of life.
    Ask,
    /// Give the peer up.
    GiveUp,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Heard,
    Due,
    Asked,
}

impl Keepalive {
    /// The peer was heard at `now`.
    pub(crate) fn heard(now: Instant) -> Self {
        Self { state: State::Heard, deadline: now + IDLE_TIMEOUT }
    }

    /// When [`Keepalive::expire`] next has something to say.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the next message has to ask for an answer.
    pub(crate) fn is_due(&self) -> bool {
        self.state == State::Due
    }

    /// The question was sent. The time for the answer already runs: a question that cannot even
    /// be sent for want of credits is as bad a sign as one that is not answered.
    pub(crate) fn asked(&mut self) {
        self.state = State::Asked;
    }

    /// Looks at the clock.
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

/// How long a peer may say nothing before it is asked (MS-SMBD §3.1.2.2; Windows and Linux alike).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a peer may take to answer. Our choice.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_first_questioned_and_then_final() {
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
    fn a_question_that_never_left_ends_the_same_way() {
        let start = Instant::now();
        let mut keepalive = Keepalive::heard(start);
        assert_eq!(keepalive.expire(start + IDLE_TIMEOUT), Some(Expired::Ask));
        let end = start + IDLE_TIMEOUT + KEEPALIVE_TIMEOUT;
        assert_eq!(keepalive.expire(end), Some(Expired::GiveUp));
    }
}
