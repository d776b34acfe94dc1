//! The start-up of the end that dialled.
//!
//! ```text
//!        poll_transmit          handle_bytes
//!   new ---(Request)--> Waiting --(Reply: good)---> Done(Agreement)
//!                          |
//!                          +--(Reply: rejected, bad, unusable)--> Done(error)
//!                          +--(handle_timeout, handle_close)----> Done(error)
//! ```
//!
//! The initiator answers a well-formed Reply with unacceptable terms by a Terminate, which
//! `poll_transmit` then hands out.
//!
//! Spec: RFC 5044 §7.1, RFC 6581 §9.

use std::time::Instant;

use super::start_config::{Collector, private_data};
use super::{
    Agreement, Attempt, EnhancedRepr, MpaError, Profile, ReadyKind, Revision, Role, StartConfig,
    StartFlags, StartKind, StartRepr,
};
use crate::rdmap::{TerminateCode, TerminateRepr};
use crate::stream::Stream;

/// One start-up, from our Request to its outcome.
#[derive(Debug)]
pub struct Initiator {
    config: StartConfig,
    attempt: Attempt,
    transmit: Option<Vec<u8>>,
    deadline: Instant,
    reply: Collector,
    outcome: Option<Result<Agreement, MpaError>>,
}

impl Initiator {
    /// Begins a start-up in the form of `attempt`; the ULP's `private_data` goes along.
    ///
    /// # Errors
    ///
    /// A configuration that does not fit the frame is refused.
    pub fn new(
        config: StartConfig,
        attempt: Attempt,
        private_data_of_ulp: &[u8],
        now: Instant,
    ) -> Result<Self, MpaError> {
        config.check()?;
        let is_enhanced = attempt.revision == Revision::RFC_6581;
        let enhanced = is_enhanced.then_some(EnhancedRepr {
            ready: (!attempt.ready.is_empty()).then_some(attempt.ready),
            ird: config.ird,
            ord: config.ord,
        });
        let field = private_data(enhanced, config.profile, private_data_of_ulp)?;
        let request = StartRepr {
            kind: StartKind::Request,
            flags: config.flags(is_enhanced),
            revision: attempt.revision,
            private_data: &field,
        };
        let mut transmit = Vec::new();
        request.emit(&mut transmit)?;
        Ok(Self {
            config,
            attempt,
            transmit: Some(transmit),
            deadline: now + config.timeout,
            reply: Collector::default(),
            outcome: None,
        })
    }

    /// The bytes to send now, if any are due. The caller sends all of them before any bytes of a stream.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.transmit.take()
    }

    /// When [`Initiator::handle_timeout`] next has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.outcome.is_none().then_some(self.deadline)
    }

    /// Tells the machine the present time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.outcome = Some(Err(MpaError::PeerTimeout));
        }
    }

    /// Tells the machine that the peer closed or reset the connection.
    pub fn handle_close(&mut self) {
        if self.outcome.is_none() {
            self.outcome = Some(Err(MpaError::PeerClosed));
        }
    }

    /// Feeds received bytes and returns how many were taken. Bytes behind the Reply belong to the
    /// stream, which refuses them: the responder must be silent until our first frame.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> usize {
        if self.outcome.is_some() {
            return 0;
        }
        let (taken, whole) = self.reply.take(StartKind::Reply, bytes);
        match whole {
            Ok(false) => {}
            Ok(true) => self.conclude(),
            Err(error) => self.outcome = Some(Err(error)),
        }
        taken
    }

    /// The outcome of the start-up, once there is one.
    pub fn outcome(&self) -> Option<Result<Agreement, MpaError>> {
        self.outcome
    }

    /// The private data of the peer's ULP, once a Reply has come, rejection or not.
    pub fn private_data(&self) -> &[u8] {
        let Some(reply) = self.reply.frame(StartKind::Reply) else { return &[] };
        let field = split_enhanced(&reply).map_or(reply.private_data, |(_, rest)| rest);
        Profile::parse(field).map_or(field, |(_, ulp)| ulp)
    }

    /// The IRD and ORD of the Reply as the peer sent them.
    pub fn peer_depths(&self) -> Option<(u16, u16)> {
        let reply = self.reply.frame(StartKind::Reply)?;
        split_enhanced(&reply).map(|(word, _)| (word.ird, word.ord))
    }

    fn conclude(&mut self) {
        let Some(reply) = self.reply.frame(StartKind::Reply) else { return };
        let outcome = self.judge(&reply);
        self.transmit = match outcome {
            Err(error) => self.refusal(&reply, error),
            Ok(_) => None,
        };
        self.outcome = Some(outcome);
    }

    fn judge(&self, reply: &StartRepr<'_>) -> Result<Agreement, MpaError> {
        // A rejection counts in any form: siw rejects in a form of its own.
        if reply.flags.contains(StartFlags::REJECTED) {
            return Err(MpaError::PeerRejected);
        }
        if reply.revision != self.attempt.revision {
            return Err(MpaError::PeerRevision(reply.revision));
        }
        let mut agreement = self.base(reply);
        // Revision 1 has no S bit: that bit is reserved there.
        let mut field = reply.private_data;
        if self.attempt.revision == Revision::RFC_6581 {
            // RFC 6581 §10: an enhanced Request gets an enhanced Reply.
            if !reply.flags.contains(StartFlags::ENHANCED) {
                return Err(MpaError::PeerForm { enhanced: false });
            }
            let (word, rest) = EnhancedRepr::parse(field)
                .ok_or(MpaError::PeerEnhancedTruncated { got: field.len() })?;
            field = rest;
            self.agree(&word, &mut agreement)?;
        }
        let (theirs, _) = Profile::parse(field).map_err(MpaError::PeerProfile)?;
        agreement.theirs = theirs;
        Ok(agreement)
    }

    /// The terms that follow from the flags alone.
    fn base(&self, reply: &StartRepr<'_>) -> Agreement {
        Agreement {
            role: Role::Initiator,
            revision: self.attempt.revision,
            crc: self.config.crc || reply.flags.contains(StartFlags::CRC),
            markers: reply.flags.contains(StartFlags::MARKERS),
            ird: self.config.ird,
            ord: self.config.ord,
            ready: None,
            ours: self.config.profile,
            theirs: None,
        }
    }

    /// RFC 6581 §9.1 and §9.2, the initiator's part.
    fn agree(&self, word: &EnhancedRepr, agreement: &mut Agreement) -> Result<(), MpaError> {
        if word.ird != EnhancedRepr::BY_ULP {
            agreement.ord = self.config.ord.min(word.ird);
        }
        if word.ord != EnhancedRepr::BY_ULP && word.ord > self.config.ird {
            return Err(MpaError::PeerOrd { ord: word.ord, ird: self.config.ird });
        }
        if !self.attempt.ready.is_empty() {
            agreement.ready = Some(self.ready(word)?);
        }
        Ok(())
    }

    fn ready(&self, word: &EnhancedRepr) -> Result<ReadyKind, MpaError> {
        let common = word.ready.map(|theirs| theirs & self.attempt.ready);
        let kind = common.and_then(|common| common.preferred(word.ird > 0));
        kind.ok_or(MpaError::PeerNoCommonReady)
    }

    /// The Terminate that RFC 6581 §9 makes the initiator send to the responder.
    fn refusal(&self, reply: &StartRepr<'_>, error: MpaError) -> Option<Vec<u8>> {
        let code = match error {
            MpaError::PeerOrd { .. } => TerminateCode::MPA_INSUFFICIENT_IRD,
            MpaError::PeerNoCommonReady => TerminateCode::MPA_NO_COMMON_READY,
            _ => return None,
        };
        let mut stream = Stream::new(&self.base(reply), 0);
        let mut bytes = vec![0; stream.frame_size_max()];
        let terminate = TerminateRepr { code, segment: None, read_request: None };
        let size = stream.frame_terminate(&mut bytes, &terminate).ok()?;
        bytes.truncate(size);
        Some(bytes)
    }
}

/// The depths and the data behind them, if the frame announces depths.
fn split_enhanced<'b>(frame: &StartRepr<'b>) -> Option<(EnhancedRepr, &'b [u8])> {
    let enhanced =
        frame.revision != Revision::RFC_5044 && frame.flags.contains(StartFlags::ENHANCED);
    enhanced.then(|| EnhancedRepr::parse(frame.private_data)).flatten()
}
