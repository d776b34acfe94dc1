//! The side that was called: it checks the request, answers it, or drops the connection.
//!
//! ```text
//!              handle_receive               poll_transmit
//!   +---------+  (acceptable)  +-----------+  (response)  +--------+
//!   | Waiting |--------------->| Answering |------------->| Agreed |
//!   +---------+                +-----------+              +--------+
//!     |    |  (other version)  +----------+  (refusal)
//!     |    +------------------>| Refusing |------+
//!     |                        +----------+      v
//!     |  the time passed, a bad request       +--------+
//!     +-------------------------------------->| Failed |
//!                                             +--------+
//! ```
//!
//! The response grants the first credits, so the acceptor sends the response only after the caller
//! posted receive buffers; it grants no more credits than there are posted buffers.
//!
//! Spec: MS-SMBD §3.1.5.3, §3.1.5.6, §3.1.7.1.

use std::time::Instant;

use super::NEGOTIATE_TIMEOUT;
use super::agreement::Agreement;
use super::request::NegotiateRequest;
use super::response::{NegotiateResponse, Status};
use crate::config::{Config, ConfigError, honest_fragmented_size};
use crate::error::CloseReason;

/// One negotiation, from the accepted connection to its outcome.
#[derive(Debug)]
pub struct Acceptor {
    config: Config,
    posted: u16,
    state: State,
}

#[derive(Debug)]
enum State {
    Waiting { deadline: Instant },
    Answering(Agreement),
    Refusing(CloseReason),
    Agreed(Agreement),
    Failed(CloseReason),
}

impl Acceptor {
    /// Waits for a request from `now` on, which the acceptor answers within the limits of `config`.
    ///
    /// # Errors
    /// When `config` promises sizes that its buffers cannot hold.
    pub fn new(config: Config, now: Instant) -> Result<Self, ConfigError> {
        config.check()?;
        let deadline = now + NEGOTIATE_TIMEOUT;
        Ok(Self { config, posted: 0, state: State::Waiting { deadline } })
    }

    /// Tells the machine that the caller posted `count` more receive buffers, beside that for the request.
    pub fn receives_posted(&mut self, count: u16) {
        self.posted = self.posted.saturating_add(count);
    }

    /// Feeds the peer's first message. After `Ok` a response is due, which may be a refusal.
    ///
    /// # Errors
    /// The reason why the caller has to drop the connection without a response.
    pub fn handle_receive(&mut self, now: Instant, message: &[u8]) -> Result<(), CloseReason> {
        self.handle_timeout(now);
        let reason = match self.state {
            State::Waiting { .. } => match NegotiateRequest::parse(message) {
                Ok(request) => {
                    self.state = State::Answering(self.agree(request));
                    return Ok(());
                }
                // MS-SMBD §3.1.5.6: the acceptor answers no fault but a wrong version.
                Err(reason @ CloseReason::PeerVersion { .. }) => {
                    self.state = State::Refusing(reason);
                    return Ok(());
                }
                Err(reason) => reason,
            },
            State::Failed(reason) => reason,
            State::Answering(_) | State::Refusing(_) | State::Agreed(_) => {
                CloseReason::PeerOutOfTurn
            }
        };
        self.state = State::Failed(reason);
        Err(reason)
    }

    /// The response to send now, if a response is due. [`Acceptor::outcome`] says what follows it.
    pub fn poll_transmit(&mut self) -> Option<NegotiateResponse> {
        match &mut self.state {
            State::Answering(agreement) => {
                agreement.credits.posted(std::mem::take(&mut self.posted));
                let credits_granted = agreement.credits.first_grant()?;
                let response = NegotiateResponse::Accepted {
                    offer: agreement.answer(),
                    credits_granted,
                    read_write_size_max: agreement.read_write_size_max,
                };
                self.state = State::Agreed(*agreement);
                Some(response)
            }
            State::Refusing(reason) => {
                self.state = State::Failed(*reason);
                Some(NegotiateResponse::Refused(Status::NOT_SUPPORTED))
            }
            State::Waiting { .. } | State::Agreed(_) | State::Failed(_) => None,
        }
    }

    /// When [`Acceptor::handle_timeout`] next has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { deadline } => Some(deadline),
            State::Answering(_) | State::Refusing(_) | State::Agreed(_) | State::Failed(_) => None,
        }
    }

    /// Tells the machine the present time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.state = State::Failed(CloseReason::PeerNegotiateTimeout);
        }
    }

    /// The outcome of the negotiation, once there is one: after the response has left, if one was due.
    pub fn outcome(&self) -> Option<Result<Agreement, CloseReason>> {
        match self.state {
            State::Waiting { .. } | State::Answering(_) | State::Refusing(_) => None,
            State::Agreed(agreement) => Some(Ok(agreement)),
            State::Failed(reason) => Some(Err(reason)),
        }
    }

    fn agree(&self, request: NegotiateRequest) -> Agreement {
        let mut agreement = Agreement::between(&self.config, request.offer);
        // Smaller receive buffers hold less: the response promises no larger message than they hold.
        let honest =
            honest_fragmented_size(self.config.receive_credit_max, agreement.receive_size_max);
        agreement.fragmented_receive_size_max = agreement.fragmented_receive_size_max.min(honest);
        agreement
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::negotiate::Offer;

    const CIFS: NegotiateRequest = NegotiateRequest {
        offer: Offer {
            credits_requested: 255,
            preferred_send_size: 1364,
            receive_size_max: 1364,
            fragmented_size_max: 1 << 20,
        },
    };

    fn bytes(request: NegotiateRequest) -> [u8; 20] {
        let mut out = [0; 20];
        request.emit(&mut out);
        out
    }

    fn acceptor(now: Instant) -> Acceptor {
        Acceptor::new(Config::default(), now).unwrap()
    }

    #[test]
    fn the_response_adapts_sizes_and_advertises_only_what_buffers_hold() {
        let now = Instant::now();
        let mut acceptor = acceptor(now);
        acceptor.receives_posted(255);
        acceptor.handle_receive(now, &bytes(CIFS)).unwrap();
        let offer = Offer { fragmented_size_max: 173_910, ..CIFS.offer };
        let accepted = NegotiateResponse::Accepted {
            offer,
            credits_granted: 254,
            read_write_size_max: 8 << 20,
        };
        assert_eq!(acceptor.poll_transmit(), Some(accepted));
        assert_eq!(acceptor.poll_transmit(), None, "the response goes out once");
        let agreement = acceptor.outcome().unwrap().unwrap();
        assert_eq!((agreement.credits.with_peer(), agreement.credits.held()), (254, 0));
    }

    #[test]
    fn the_response_waits_for_a_posted_receive_buffer() {
        let now = Instant::now();
        let mut acceptor = acceptor(now);
        acceptor.handle_receive(now, &bytes(CIFS)).unwrap();
        assert_eq!(acceptor.poll_transmit(), None);
        assert!(acceptor.outcome().is_none());
        acceptor.receives_posted(1);
        let Some(NegotiateResponse::Accepted { credits_granted, .. }) = acceptor.poll_transmit()
        else {
            panic!("a response is due");
        };
        assert_eq!(credits_granted, 1);
    }

    #[test]
    fn a_request_of_another_version_is_refused_and_then_dropped() {
        let now = Instant::now();
        let mut acceptor = acceptor(now);
        let mut request = bytes(CIFS);
        request[0..4].copy_from_slice(&[0x00, 0x02, 0x00, 0x03]);
        acceptor.handle_receive(now, &request).unwrap();
        let refused = NegotiateResponse::Refused(Status::NOT_SUPPORTED);
        assert_eq!(acceptor.poll_transmit(), Some(refused));
        let version = CloseReason::PeerVersion { min: 0x0200, max: 0x0300 };
        assert_eq!(acceptor.outcome().unwrap().unwrap_err(), version);
    }

    #[test]
    fn a_request_with_another_fault_is_dropped_without_an_answer() {
        let now = Instant::now();
        let mut acceptor = acceptor(now);
        let mut request = bytes(CIFS);
        request[6..8].fill(0);
        let reason = acceptor.handle_receive(now, &request).unwrap_err();
        assert_eq!(reason, CloseReason::PeerRequestsNoCredits);
        assert_eq!(acceptor.poll_transmit(), None);
        assert_eq!(acceptor.outcome().unwrap().unwrap_err(), reason);
        assert_eq!(acceptor.handle_receive(now, &bytes(CIFS)), Err(reason), "it stays failed");
    }

    #[test]
    fn a_second_negotiate_request_is_out_of_turn() {
        let now = Instant::now();
        let mut acceptor = acceptor(now);
        acceptor.handle_receive(now, &bytes(CIFS)).unwrap();
        let again = acceptor.handle_receive(now, &bytes(CIFS));
        assert_eq!(again, Err(CloseReason::PeerOutOfTurn));
    }

    #[test]
    fn an_initiator_that_sends_no_request_is_dropped_at_the_deadline() {
        let now = Instant::now();
        let mut acceptor = acceptor(now);
        let deadline = now + Duration::from_secs(120);
        assert_eq!(acceptor.poll_timeout(), Some(deadline));
        acceptor.handle_timeout(deadline);
        let late = acceptor.handle_receive(deadline, &bytes(CIFS));
        assert_eq!(late, Err(CloseReason::PeerNegotiateTimeout));
    }
}
