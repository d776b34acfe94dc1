//! The start-up of the end that listened.
//!
//! ```text
//!                handle_bytes                 accept               poll_transmit
//!   new: Waiting --(Request: good)--> Asked --------> Done(Agreement) --(Reply)-->
//!          |                            | reject
//!          |                            +-----------> Done --(Reply with R)-->
//!          +--(bad, late, closed)--> Done(error)
//! ```
//!
//! The responder answers no bad request: it closes the connection (RFC 5044 §7.1.2). After the Reply
//! the stream stays silent until it has validated a frame.
//!
//! Spec: RFC 5044 §7.1, RFC 6581 §9.

use std::time::Instant;

use super::start_config::{Collector, private_data};
use super::{
    Agreement, EnhancedRepr, MpaError, Profile, ReadyKind, ReadySet, Revision, Role, StartConfig,
    StartFlags, StartKind, StartRepr,
};

/// One start-up, from the peer's Request to its outcome.
#[derive(Debug)]
pub struct Responder {
    config: StartConfig,
    deadline: Instant,
    request: Collector,
    state: State,
    transmit: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Waiting,
    Asked,
    Accepted(Agreement),
    Rejected,
    Failed(MpaError),
}

/// The peer's request, on which the ULP decides.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request<'b> {
    /// The form of start-up.
    pub revision: Revision,
    /// The peer demands CRCs.
    pub crc: bool,
    /// The peer demands markers in the frames that this end sends.
    pub markers: bool,
    /// IRD and ORD as the peer sent them, if the Request has them.
    pub depths: Option<(u16, u16)>,
    /// Ready-to-receive messages that the peer offers, if the peer will send one of them.
    pub ready: Option<ReadySet>,
    /// The profile of the peer, if the peer announced one.
    pub profile: Option<Profile>,
    /// The private data of the peer's ULP.
    pub private_data: &'b [u8],
}

impl Responder {
    /// Waits for a Request.
    ///
    /// # Errors
    ///
    /// A configuration that does not fit the frame is refused.
    pub fn new(config: StartConfig, now: Instant) -> Result<Self, MpaError> {
        config.check()?;
        Ok(Self {
            config,
            deadline: now + config.timeout,
            request: Collector::default(),
            state: State::Waiting,
            transmit: None,
        })
    }

    /// The bytes to send now, if any are due. The caller sends all of them before any bytes of a stream.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.transmit.take()
    }

    /// When [`Responder::handle_timeout`] next has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        matches!(self.state, State::Waiting | State::Asked).then_some(self.deadline)
    }

    /// Tells the machine the present time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.deadline {
            return;
        }
        match self.state {
            State::Waiting => self.state = State::Failed(MpaError::PeerTimeout),
            State::Asked => self.state = State::Failed(MpaError::UlpTimeout),
            State::Accepted(_) | State::Rejected | State::Failed(_) => {}
        }
    }

    /// Tells the machine that the peer closed or reset the connection.
    pub fn handle_close(&mut self) {
        if matches!(self.state, State::Waiting | State::Asked) {
            self.state = State::Failed(MpaError::PeerClosed);
        }
    }

    /// Feeds received bytes and returns how many were taken. After [`Responder::accept`] the machine
    /// takes none, because they belong to the stream.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        if self.state == State::Waiting {
            let (used, whole) = self.request.take(StartKind::Request, bytes);
            taken = used;
            match whole
                .and_then(|whole| if whole { self.judge().map(|()| true) } else { Ok(false) })
            {
                Ok(false) => {}
                Ok(true) => self.state = State::Asked,
                Err(error) => self.state = State::Failed(error),
            }
        }
        // RFC 5044 §7.1.2: the initiator sends no frame before it has our Reply.
        let rest = bytes.len() - taken;
        if self.state == State::Asked && rest > 0 {
            self.state = State::Failed(MpaError::PeerSpokeEarly { got: rest });
        }
        taken
    }

    /// The peer's request, while it is undecided.
    pub fn request(&self) -> Option<Request<'_>> {
        if self.state != State::Asked {
            return None;
        }
        let frame = self.request.frame(StartKind::Request)?;
        let (word, field) = split(&frame).ok()?;
        let (profile, ulp) = Profile::parse(field).ok()?;
        Some(Request {
            revision: frame.revision,
            crc: frame.flags.contains(StartFlags::CRC),
            markers: frame.flags.contains(StartFlags::MARKERS),
            depths: word.map(|word| (word.ird, word.ord)),
            ready: word.and_then(|word| word.ready),
            profile,
            private_data: ulp,
        })
    }

    /// Accepts the connection; the Reply carries the ULP's `private_data`, and our profile only if
    /// the peer announced one: another peer would take the profile for data of its ULP.
    ///
    /// # Errors
    ///
    /// There is nothing to decide on, or too much private data; the request stays undecided.
    pub fn accept(&mut self, private_data_of_ulp: &[u8]) -> Result<Agreement, MpaError> {
        let request = self.request().ok_or(MpaError::NotDue)?;
        let mut agreement = Agreement {
            role: Role::Responder,
            revision: request.revision,
            crc: self.config.crc || request.crc,
            markers: request.markers,
            ird: self.config.ird,
            ord: self.config.ord,
            ready: None,
            ours: self.config.profile.filter(|_| request.profile.is_some()),
            theirs: request.profile,
        };
        let reply = match request.depths {
            Some((ird, ord)) => {
                agreement.ready = request.ready.map(|offered| self.ready(offered));
                Some(self.agree(ird, ord, &mut agreement))
            }
            None => None,
        };
        let flags = StartConfig { crc: agreement.crc, ..self.config }.flags(reply.is_some());
        let field = private_data(reply, agreement.ours, private_data_of_ulp)?;
        self.reply(agreement.revision, flags, &field)?;
        self.state = State::Accepted(agreement);
        Ok(agreement)
    }

    /// Rejects the connection; the Reply carries the ULP's `private_data`.
    ///
    /// # Errors
    ///
    /// There is nothing to decide on, or too much private data; the request stays undecided.
    pub fn reject(&mut self, private_data_of_ulp: &[u8]) -> Result<(), MpaError> {
        let request = self.request().ok_or(MpaError::NotDue)?;
        let revision = request.revision;
        let word = request.depths.map(|_| EnhancedRepr {
            ready: request.ready.map(|offered| ReadySet::only(self.ready(offered))),
            ird: self.config.ird,
            ord: self.config.ord,
        });
        let profile = self.config.profile.filter(|_| request.profile.is_some());
        let flags = self.config.flags(word.is_some()) | StartFlags::REJECTED;
        let field = private_data(word, profile, private_data_of_ulp)?;
        self.reply(revision, flags, &field)?;
        self.state = State::Rejected;
        Ok(())
    }

    /// The outcome of the start-up; `None` while undecided and after our own rejection.
    pub fn outcome(&self) -> Option<Result<Agreement, MpaError>> {
        match self.state {
            State::Waiting | State::Asked | State::Rejected => None,
            State::Accepted(agreement) => Some(Ok(agreement)),
            State::Failed(error) => Some(Err(error)),
        }
    }

    fn judge(&self) -> Result<(), MpaError> {
        let frame = self.request.frame(StartKind::Request).ok_or(MpaError::NotDue)?;
        if !matches!(frame.revision, Revision::RFC_5044 | Revision::RFC_6581) {
            return Err(MpaError::PeerRevision(frame.revision));
        }
        let (_, field) = split(&frame)?;
        Profile::parse(field).map(|_| ()).map_err(MpaError::PeerProfile)
    }

    /// RFC 6581 §9.1, the responder's part: our depths follow the peer's as far as our limits allow.
    fn agree(&self, ird: u16, ord: u16, agreement: &mut Agreement) -> EnhancedRepr {
        let mut reply = EnhancedRepr {
            ready: agreement.ready.map(ReadySet::only),
            ird: EnhancedRepr::BY_ULP,
            ord: EnhancedRepr::BY_ULP,
        };
        if ord != EnhancedRepr::BY_ULP {
            let floor = u16::from(agreement.ready == Some(ReadyKind::Read));
            agreement.ird = self.config.ird.min(ord.max(floor));
            reply.ird = agreement.ird;
        }
        if ird != EnhancedRepr::BY_ULP {
            agreement.ord = self.config.ord.min(ird);
            reply.ord = agreement.ord;
        }
        reply
    }

    /// RFC 6581 §9.2: a ready-to-receive message that the peer offered, or else one that this end supports.
    fn ready(&self, offered: ReadySet) -> ReadyKind {
        offered.preferred(self.config.ird > 0).unwrap_or(ReadyKind::Write)
    }

    fn reply(
        &mut self,
        revision: Revision,
        flags: StartFlags,
        field: &[u8],
    ) -> Result<(), MpaError> {
        let mut bytes = Vec::new();
        let kind = StartKind::Reply;
        StartRepr { kind, flags, revision, private_data: field }.emit(&mut bytes)?;
        self.transmit = Some(bytes);
        Ok(())
    }
}

/// The depths, if the Request has them, and the data behind them.
fn split<'b>(frame: &StartRepr<'b>) -> Result<(Option<EnhancedRepr>, &'b [u8]), MpaError> {
    let field = frame.private_data;
    // Revision 1 has no S bit: that bit is reserved there.
    let enhanced =
        frame.revision == Revision::RFC_6581 && frame.flags.contains(StartFlags::ENHANCED);
    if !enhanced {
        return Ok((None, field));
    }
    let (word, rest) =
        EnhancedRepr::parse(field).ok_or(MpaError::PeerEnhancedTruncated { got: field.len() })?;
    Ok((Some(word), rest))
}
