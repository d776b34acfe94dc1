//! The side that opened the connection: it sends the request, waits, and checks the response.
//!
//! ```text
//!            poll_transmit            handle_receive
//!   +------+  (request)   +---------+  (acceptable)   +--------+
//!   | Idle |------------->| Waiting |---------------->| Agreed |
//!   +------+              +---------+                 +--------+
//!                              | the time passed, a refusal, a bad answer
//!                              v
//!                         +--------+
//!                         | Failed |
//!                         +--------+
//! ```
//!
//! Before the request leaves, the caller posts one receive buffer for the response. It may post more
//! buffers for later messages, and reports those to the `Connection` made of the agreement.
//!
//! Spec: MS-SMBD §3.1.5.2, §3.1.5.7, §3.1.7.1.

use std::time::Instant;

use super::NEGOTIATE_TIMEOUT;
use super::agreement::Agreement;
use super::request::{NegotiateRequest, Offer};
use super::response::NegotiateResponse;
use crate::config::{Config, ConfigError};
use crate::error::CloseReason;

/// One negotiation, from the request to its outcome.
#[derive(Debug)]
pub struct Initiator {
    config: Config,
    state: State,
}

#[derive(Debug)]
enum State {
    Idle,
    Waiting { deadline: Instant },
    Agreed(Agreement),
    Failed(CloseReason),
}

impl Initiator {
    /// Prepares a request with the limits of `config`.
    ///
    /// # Errors
    /// When `config` promises sizes that its buffers cannot hold.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self { config, state: State::Idle })
    }

    /// The request to send now, if the request is due. The time for the answer starts at `now`.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<NegotiateRequest> {
        let State::Idle = self.state else { return None };
        self.state = State::Waiting { deadline: now + NEGOTIATE_TIMEOUT };
        Some(NegotiateRequest { offer: Offer::of(&self.config) })
    }

    /// Feeds the peer's first message.
    ///
    /// # Errors
    /// The reason why the caller has to drop the connection; [`Initiator::outcome`] repeats the reason.
    pub fn handle_receive(
        &mut self,
        now: Instant,
        message: &[u8],
    ) -> Result<Agreement, CloseReason> {
        self.handle_timeout(now);
        let outcome = match self.state {
            State::Waiting { .. } => self.judge(message),
            State::Failed(reason) => Err(reason),
            State::Idle | State::Agreed(_) => Err(CloseReason::PeerOutOfTurn),
        };
        self.state = match outcome {
            Ok(agreement) => State::Agreed(agreement),
            Err(reason) => State::Failed(reason),
        };
        outcome
    }

    /// When [`Initiator::handle_timeout`] next has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { deadline } => Some(deadline),
            State::Idle | State::Agreed(_) | State::Failed(_) => None,
        }
    }

    /// Tells the machine the present time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.state = State::Failed(CloseReason::PeerNegotiateTimeout);
        }
    }

    /// The outcome of the negotiation, once there is one.
    pub fn outcome(&self) -> Option<Result<Agreement, CloseReason>> {
        match self.state {
            State::Idle | State::Waiting { .. } => None,
            State::Agreed(agreement) => Some(Ok(agreement)),
            State::Failed(reason) => Some(Err(reason)),
        }
    }

    fn judge(&self, message: &[u8]) -> Result<Agreement, CloseReason> {
        match NegotiateResponse::parse(message)? {
            NegotiateResponse::Refused(status) => Err(CloseReason::PeerRefused(status)),
            NegotiateResponse::Accepted { offer, credits_granted, read_write_size_max } => {
                let (preferred, max) = (offer.preferred_send_size, self.config.receive_size_max);
                // MS-SMBD §3.1.5.7: the acceptor knows our receive size and must not exceed it.
                if preferred > max {
                    return Err(CloseReason::PeerPreferredSendSize { preferred, max });
                }
                let mut agreement = Agreement::between(&self.config, offer);
                agreement.read_write_size_max =
                    agreement.read_write_size_max.min(read_write_size_max);
                agreement.credits.gained(credits_granted);
                Ok(agreement)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::negotiate::Status;

    const ANSWER: NegotiateResponse = NegotiateResponse::Accepted {
        offer: Offer {
            credits_requested: 10,
            preferred_send_size: 1024,
            receive_size_max: 2048,
            fragmented_size_max: 131_072,
        },
        credits_granted: 7,
        read_write_size_max: 1 << 20,
    };

    fn bytes(response: NegotiateResponse) -> [u8; 32] {
        let mut out = [0; 32];
        response.emit(&mut out);
        out
    }

    fn waiting(now: Instant) -> Initiator {
        let mut initiator = Initiator::new(Config::default()).unwrap();
        let request = initiator.poll_transmit(now).unwrap();
        assert_eq!(request.offer.receive_size_max, 8192);
        assert_eq!(initiator.poll_transmit(now), None, "the request goes out once");
        initiator
    }

    #[test]
    fn an_acceptable_response_gives_an_agreement_with_its_credits() {
        let now = Instant::now();
        let mut initiator = waiting(now);
        let agreement = initiator.handle_receive(now, &bytes(ANSWER)).unwrap();
        assert_eq!((agreement.send_size_max, agreement.receive_size_max), (2048, 1024));
        assert_eq!(agreement.read_write_size_max, 1 << 20);
        assert_eq!(agreement.credits.held(), 7);
        assert_eq!(initiator.poll_timeout(), None);
        assert!(matches!(initiator.outcome(), Some(Ok(_))));
    }

    #[test]
    fn silence_fails_at_the_deadline_and_not_before() {
        let now = Instant::now();
        let mut initiator = waiting(now);
        let deadline = initiator.poll_timeout().unwrap();
        assert_eq!(deadline, now + Duration::from_secs(120));
        initiator.handle_timeout(deadline - Duration::from_nanos(1));
        assert!(initiator.outcome().is_none());
        let late = initiator.handle_receive(deadline, &bytes(ANSWER));
        assert_eq!(late.unwrap_err(), CloseReason::PeerNegotiateTimeout);
    }

    #[test]
    fn a_refusal_and_a_broken_rule_end_the_negotiation() {
        let now = Instant::now();
        let refusal = bytes(NegotiateResponse::Refused(Status::NOT_SUPPORTED));
        let refused = waiting(now).handle_receive(now, &refusal).unwrap_err();
        assert_eq!(refused, CloseReason::PeerRefused(Status::NOT_SUPPORTED));
        let mut greedy = bytes(ANSWER);
        greedy[20..24].copy_from_slice(&8193_u32.to_le_bytes());
        let reason = waiting(now).handle_receive(now, &greedy).unwrap_err();
        assert_eq!(reason, CloseReason::PeerPreferredSendSize { preferred: 8193, max: 8192 });
    }

    #[test]
    fn a_response_without_a_request_is_out_of_turn() {
        let now = Instant::now();
        let mut idle = Initiator::new(Config::default()).unwrap();
        let reason = idle.handle_receive(now, &bytes(ANSWER)).unwrap_err();
        assert_eq!(reason, CloseReason::PeerOutOfTurn);
        assert!(matches!(idle.outcome(), Some(Err(CloseReason::PeerOutOfTurn))));
    }
}
