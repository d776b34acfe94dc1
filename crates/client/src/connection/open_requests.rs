//! Requests that have been sent and not answered.
//!
//! ```text
//!            register                    STATUS_PENDING
//!  (free) ------------> [ sent ] ---------------------------> [ pending, async id ]
//!                           \ final response                      / final response
//!                            +----------> answered <-------------+
//! ```
//!
//! Spec: MS-SMB2 §3.2.4.1.3, §3.2.5.1.5.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use smb::crypto::{Lane, LaneId, Turn, VerifyError};
use smb::{AsyncId, Command, Header, HeaderFlags, MessageId, NtStatus, SessionId};
use tokio::sync::oneshot;

use super::{Leftover, Protection, Response};
use crate::error::ConnectionError;

/// The outcome of an open request.
pub(super) type Answer = Result<Response, ConnectionError>;

/// How long the server has been silent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Silence {
    /// Not for long, or no request waits.
    Short,
    /// All open requests are ones that the server said may take long: the server may be gone.
    Suspicious,
    /// The server owes an answer.
    TooLong,
}

#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    lane: Lane,
    next_message_id: u64,
    open: HashMap<MessageId, Open>,
    /// When the last message of the server came.
    heard: Option<Instant>,
    failed: Option<ConnectionError>,
}

#[derive(Debug)]
struct Open {
    /// The waiting caller, until it was told that the answer is late.
    answer: Option<oneshot::Sender<Answer>>,
    /// What is left to do when the answer comes; then no caller waits.
    leftover: Option<Leftover>,
    /// When the caller stops waiting at the latest.
    deadline: Option<Instant>,
    charge: u16,
    async_id: Option<AsyncId>,
    /// The turn of the CANCEL, until it is sent.
    cancel: Option<Turn>,
    expected: Expected,
    sent: Instant,
}

/// The properties that the answer to a request must have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Expected {
    pub(super) command: Command,
    /// The session that the request names, whose key signs or seals it; 0 before there is a
    /// session.
    pub(super) session: SessionId,
    /// The protection of the request, which its answer must have at least.
    pub(super) protection: Protection,
}

impl Expected {
    /// Whether a message, verified if its session verifies any, may be the answer.
    ///
    /// A signature alone shows that the server sent the message at some time to some client, not that
    /// the message answers this request.
    fn check(&self, header: &Header, is_sealed: bool) -> Result<(), ConnectionError> {
        let Header { command, message_id, session_id, .. } = *header;
        if command != self.command {
            return Err(ConnectionError::PeerCommand { message_id, asked: self.command, command });
        }
        // The session that a PDU names has verified it. That must be the session of the request: a
        // PDU that names none of our sessions was not verified at all.
        if self.session != SessionId(0) && self.session != session_id {
            return Err(ConnectionError::PeerSession(session_id));
        }
        // An interim answer is neither signed nor sealed (MS-SMB2 §3.2.5.1.3), so it must not end a
        // request.
        if header.status == NtStatus::PENDING || is_sealed {
            return Ok(());
        }
        match self.protection {
            Protection::Seal => Err(ConnectionError::PeerUnencrypted),
            // MS-SMB2 §3.3.4.1.1: the answer to a signed request is signed.
            Protection::Sign if !header.flags.contains(HeaderFlags::SIGNED) => {
                Err(VerifyError::PeerUnsigned.into())
            }
            Protection::Sign | Protection::None => Ok(()),
        }
    }
}

impl OpenRequests {
    /// The lane of the turns that this table gives.
    pub(super) fn lane(&self) -> LaneId {
        self.lane.id()
    }

    /// Draws the next message id, as a turn to sign, for a request that is `sent` now. The credits for
    /// it have been taken. Without a `deadline` its answer may take for ever.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn register(
        &mut self,
        charge: u16,
        expected: Expected,
        sent: Instant,
        deadline: Option<Instant>,
    ) -> Result<(Turn, oneshot::Receiver<Answer>), ConnectionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let (turn, cancel) = self.lane.turn(self.next_message_id).with_cancel();
        let (message_id, cancel) = (MessageId(turn.message_id()), Some(cancel));
        // MS-SMB2 §3.2.4.1.5: a request uses up as many ids as it costs credits.
        self.next_message_id += u64::from(charge);
        let (answer, receiver) = oneshot::channel();
        let (answer, leftover, async_id) = (Some(answer), None, None);
        let open = Open { answer, leftover, deadline, charge, async_id, cancel, expected, sent };
        self.open.insert(message_id, open);
        Ok((turn, receiver))
    }

    /// Whether a message may be the final or an interim answer to the request with its message id.
    ///
    /// # Errors
    /// The request is not open, or a field of the message is not as the request requires.
    pub(super) fn check(&self, header: &Header, is_sealed: bool) -> Result<(), ConnectionError> {
        let message_id = header.message_id;
        let open = self.open.get(&message_id);
        let open = open.ok_or(ConnectionError::PeerMessage(message_id))?;
        open.expected.check(header, is_sealed)?;
        // MS-SMB2 §3.3.4.4: after an interim answer with an async id, the final answer carries the
        // same id.
        match open.async_id.is_some() && open.async_id != header.async_id() {
            true => Err(ConnectionError::PeerRoute(message_id)),
            false => Ok(()),
        }
    }

    /// Notes that a message of the server came.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// How long the server has been silent, if it may take `patience` to answer.
    pub(super) fn silence(&self, now: Instant, patience: Duration) -> Silence {
        let since = |when: Instant| now.saturating_duration_since(when);
        let quiet = self.heard.map_or(Duration::MAX, since);
        let owes = |open: &&Open| open.async_id.is_none();
        if self.open.values().filter(owes).any(|open| since(open.sent) >= patience) {
            return if quiet >= patience { Silence::TooLong } else { Silence::Short };
        }
        let is_only_pending = !self.open.is_empty() && !self.open.values().any(|o| owes(&o));
        if is_only_pending && quiet >= patience / 2 { Silence::Suspicious } else { Silence::Short }
    }

    /// Whether no request is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Notes an interim response; returns what the request cost, if no earlier response did.
    pub(super) fn pend(&mut self, message_id: MessageId, async_id: AsyncId) -> Option<u16> {
        let open = self.open.get_mut(&message_id)?;
        open.async_id = Some(async_id);
        Some(std::mem::take(&mut open.charge))
    }

    /// Ends a request: its caller gets the answer. Returns what the request cost, and what is left to do if
    /// no caller waits. Caller and table change under one lock: a caller that stops waiting finds either its
    /// request here, or its answer.
    pub(super) fn finish(&mut self, response: Response) -> Option<Finished> {
        let open = self.open.remove(&response.header().message_id)?;
        let leftover = open.leftover.map(|leftover| (leftover, response.clone()));
        if let Some(answer) = open.answer {
            // The caller may have stopped waiting.
            let _ = answer.send(Ok(response));
        }
        Some(Finished { charge: open.charge, leftover })
    }

    /// Notes that no caller waits for a request any more; returns its command.
    ///
    /// # Errors
    /// The request is not open: its caller has its answer. What was left to do comes back.
    pub(super) fn abandon(
        &mut self,
        message_id: MessageId,
        leftover: Option<Leftover>,
    ) -> Result<Command, Option<Leftover>> {
        let Some(open) = self.open.get_mut(&message_id) else { return Err(leftover) };
        open.leftover = leftover;
        Ok(open.expected.command)
    }

    /// Tells the callers that have waited for too long; returns their requests, which stay open.
    pub(super) fn give_up_late(&mut self, now: Instant) -> Vec<MessageId> {
        let is_late = |open: &Open| open.deadline.is_some_and(|deadline| deadline <= now);
        let mut late = Vec::new();
        for (message_id, open) in self.open.iter_mut().filter(|(_, open)| is_late(open)) {
            if let Some(answer) = open.answer.take() {
                // A caller that stopped waiting need not know.
                let _ = answer.send(Err(ConnectionError::PeerLate(*message_id)));
                late.push(*message_id);
            }
        }
        late
    }

    /// The CANCEL of an open request. `None` if the request is not open, or was cancelled.
    pub(super) fn cancel(&mut self, message_id: MessageId) -> Option<Cancel> {
        let Open { async_id, expected, cancel, .. } = self.open.get_mut(&message_id)?;
        let Expected { session, protection, .. } = *expected;
        Some(Cancel { async_id: *async_id, session, protection, turn: cancel.take()? })
    }

    /// Ends all requests, later ones too.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        let error = *self.failed.get_or_insert(error);
        for (_, open) in self.open.drain() {
            // A caller that stopped waiting need not know.
            let _ = open.answer.map(|answer| answer.send(Err(error)));
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    pub(super) fn failure(&self) -> Option<ConnectionError> {
        self.failed
    }
}

/// A request that is answered.
#[derive(Debug)]
pub(super) struct Finished {
    /// What the request cost, if no interim answer has paid for it.
    pub(super) charge: u16,
    /// What is left to do with the answer, if no caller waits.
    pub(super) leftover: Option<(Leftover, Response)>,
}

/// What a CANCEL says.
#[derive(Debug, PartialEq)]
pub(super) struct Cancel {
    pub(super) async_id: Option<AsyncId>,
    pub(super) session: SessionId,
    /// That of the request.
    pub(super) protection: Protection,
    pub(super) turn: Turn,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const PLAIN: Expected =
        Expected { command: Command::ECHO, session: SessionId(0), protection: Protection::None };
    const PATIENCE: Duration = Duration::from_secs(60);

    fn now() -> Instant {
        Instant::now()
    }

    fn answer_to(id: MessageId) -> Response {
        let header = Header::request(Command::ECHO, id).response(NtStatus::SUCCESS);
        Response::new(Arc::new(Vec::new().into()), 0..0, header)
    }

    #[test]
    fn a_request_that_is_late_stays_open_for_its_answer() {
        let (mut open, start) = (OpenRequests::default(), now());
        let (turn, mut answer) = open.register(1, PLAIN, start, Some(start + PATIENCE)).unwrap();
        let id = MessageId(turn.message_id());
        assert!(open.give_up_late(start).is_empty());
        assert_eq!(open.give_up_late(start + PATIENCE), [id]);
        assert_eq!(answer.try_recv().unwrap().unwrap_err(), ConnectionError::PeerLate(id));
        assert!(open.give_up_late(start + PATIENCE).is_empty(), "it is told once");
        assert_eq!(open.finish(answer_to(id)).unwrap().charge, 1);
    }

    #[test]
    fn a_server_that_owes_an_answer_is_silent_for_too_long() {
        let mut open = OpenRequests::default();
        let start = now();
        assert_eq!(open.silence(start + PATIENCE, PATIENCE), Silence::Short, "nobody waits");
        let _first = open.register(1, PLAIN, now(), None).unwrap();
        assert_eq!(open.silence(start, PATIENCE), Silence::Short);
        assert_eq!(open.silence(now() + PATIENCE, PATIENCE), Silence::TooLong);
        open.heard(now());
        assert_eq!(open.silence(start + PATIENCE, PATIENCE), Silence::Short, "it is busy");
    }

    #[test]
    fn a_server_that_owes_only_pending_answers_is_probed_by_echo() {
        let mut open = OpenRequests::default();
        let (turn, _answer) = open.register(1, PLAIN, now(), None).unwrap();
        open.pend(MessageId(turn.message_id()), AsyncId(1));
        open.heard(now());
        assert_eq!(open.silence(now(), PATIENCE), Silence::Short);
        assert_eq!(open.silence(now() + PATIENCE, PATIENCE), Silence::Suspicious);
    }

    #[test]
    fn a_request_uses_as_many_ids_as_credits() {
        let mut open = OpenRequests::default();
        assert_eq!(open.register(3, PLAIN, now(), None).unwrap().0.message_id(), 0);
        assert_eq!(open.register(1, PLAIN, now(), None).unwrap().0.message_id(), 3);
        assert_eq!(open.register(1, PLAIN, now(), None).unwrap().0.message_id(), 4);
    }

    #[test]
    fn the_charge_of_a_request_counts_once_despite_an_interim_response() {
        let mut open = OpenRequests::default();
        let (turn, _answer) = open.register(2, PLAIN, now(), None).unwrap();
        let id = MessageId(turn.message_id());
        assert_eq!(open.pend(id, AsyncId(9)), Some(2));
        assert_eq!(open.cancel(id).unwrap().async_id, Some(AsyncId(9)));
        assert_eq!(open.cancel(id), None, "a CANCEL is signed once");
        assert_eq!(open.finish(answer_to(id)).unwrap().charge, 0);
        assert!(open.finish(answer_to(id)).is_none());
    }

    #[test]
    fn a_failure_ends_open_and_later_requests() {
        let mut open = OpenRequests::default();
        let (_, mut answer) = open.register(1, PLAIN, now(), None).unwrap();
        open.fail(ConnectionError::PeerClosed);
        open.fail(ConnectionError::Closed);
        assert_eq!(answer.try_recv().unwrap().unwrap_err(), ConnectionError::PeerClosed);
        assert_eq!(open.register(1, PLAIN, now(), None).unwrap_err(), ConnectionError::PeerClosed);
    }
}
