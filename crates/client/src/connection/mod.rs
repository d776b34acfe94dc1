//! One connection: many requests in flight at once; an answer finds its request by message id.
//!
//! ```text
//!  submit:  credits -> message id -> emit -> sign or seal -> FrameSender
//!                          |
//!                          v  registered before it is sent
//!                   [ open requests ]
//!                          ^  found by message id
//!  receive: FrameReceiver -> open seal -> walk compound -> verify -> credits -> answer
//!                                                      \-> break of a lease -> its owner
//! ```
//!
//! All waiting happens before a message id is drawn: a caller that stops waiting leaves nothing
//! behind. An answer that no caller waits for any more is dropped, and its credits are kept.
//!
//! Spec: MS-SMB2 §3.2.4.1, §3.2.5.1.

mod breaks;
mod credits;
mod negotiate;
mod open_requests;
mod pair;
mod receive;
mod response;
mod security;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use basics::{Environment, Random};
use smb::crypto::{LaneId, Turn};
use smb::{Command, Header, MessageId, Route, SessionId, TreeId};

pub use breaks::LeaseBreak;
pub(crate) use breaks::{BreakCount, BreakReceiver, Breaks};
use credits::Credits;
pub use negotiate::Negotiated;
pub(crate) use negotiate::{negotiate, validate_input};
use open_requests::{Expected, OpenRequests};
pub(crate) use pair::Half;
pub(crate) use response::{PendingResponse, Response};
pub(crate) use security::SessionSecurity;

use crate::error::{ClientError, ConnectionError};
use crate::transport::direct::Pool;
use crate::transport::{FrameSender, OutFrame, Transport};

/// An established connection. It closes when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    _closer: Arc<Closer>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    sender: Box<dyn FrameSender>,
    credits: Credits,
    open: Mutex<OpenRequests>,
    sessions: RwLock<HashMap<SessionId, Arc<SessionSecurity>>>,
    breaks: Breaks,
    negotiated: OnceLock<Negotiated>,
    pool: Option<Arc<Pool>>,
    environment: Environment,
}

/// The properties of a request, beside its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) command: Command,
    pub(crate) session: Option<&'a SessionSecurity>,
    pub(crate) tree: TreeId,
    /// The share wants encryption even if the session does not.
    pub(crate) encrypt: bool,
    /// The request is signed even if the session signs no others.
    pub(crate) sign: bool,
    /// Bytes of the larger of request and answer beyond the fixed parts.
    pub(crate) payload: usize,
}

impl<'a> Request<'a> {
    pub(crate) fn new(command: Command) -> Self {
        let tree = TreeId(0);
        Self { command, session: None, tree, encrypt: false, sign: false, payload: 0 }
    }

    pub(crate) fn session(self, session: &'a SessionSecurity) -> Self {
        Self { session: Some(session), ..self }
    }

    fn expected(&self, protection: Protection) -> Expected {
        let session = self.session.map_or(SessionId(0), SessionSecurity::id);
        Expected { command: self.command, session, protection }
    }

    fn protection(&self, dialect_is_3_1_1: bool) -> Protection {
        let Some(session) = self.session else { return Protection::None };
        if session.can_seal() && (self.encrypt || session.encrypts()) {
            return Protection::Seal;
        }
        // MS-SMB2 §3.2.4.1.1: in 3.1.1 TREE_CONNECT is signed even if no other request is.
        let tree_connect = self.command == Command::TREE_CONNECT && dialect_is_3_1_1;
        match session.can_sign() && (session.signs() || self.sign || tree_connect) {
            true => Protection::Sign,
            false => Protection::None,
        }
    }
}

/// Credits of one request.
#[derive(Clone, Copy, Debug)]
struct Credit {
    charge: u16,
    ask: u16,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Protection {
    None,
    Sign,
    Seal,
}

impl Connection {
    /// Starts the receiving task. The connection fails if the server is silent for `patience` while
    /// it owes an answer.
    pub(crate) fn start(
        transport: Transport,
        patience: Duration,
        environment: Environment,
    ) -> Self {
        let shared = Arc::new(Shared {
            sender: transport.sender,
            credits: Credits::new(),
            open: Mutex::default(),
            sessions: RwLock::default(),
            breaks: Breaks::default(),
            negotiated: OnceLock::new(),
            pool: transport.pool,
            environment,
        });
        let receiving = tokio::spawn(receive::run(Arc::clone(&shared), transport.receiver));
        let watching = tokio::spawn(watch::run(Arc::downgrade(&shared), patience));
        let tasks = [receiving.abort_handle(), watching.abort_handle()];
        let closer = Closer { shared: Arc::clone(&shared), tasks };
        Self { shared, _closer: Arc::new(closer) }
    }

    /// The outcome of the negotiation.
    pub(crate) fn negotiated(&self) -> &Negotiated {
        self.shared.negotiated.get().expect("a client negotiates before it hands itself out")
    }

    /// Memory the server can reach by RDMA.
    pub(crate) fn pool(&self) -> Option<&Arc<Pool>> {
        self.shared.pool.as_ref()
    }

    pub(crate) fn breaks(&self) -> &Breaks {
        &self.shared.breaks
    }

    /// The client's random numbers.
    pub(crate) fn random(&self) -> &Random {
        &self.shared.environment.random
    }

    /// Where time and random numbers come from.
    pub(crate) fn environment(&self) -> &Environment {
        &self.shared.environment
    }

    /// The lane of the connection, in which the keys of its sessions sign.
    pub(crate) fn lane(&self) -> LaneId {
        self.shared.lock_open().lane()
    }

    /// Adds a session, whose answers are verified and opened from now on.
    pub(crate) fn add_session(&self, session: Arc<SessionSecurity>) {
        let mut sessions = self.shared.sessions.write().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(session.id(), session);
    }

    /// Sends a request. The answer may be awaited now or later.
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) async fn submit(
        &self,
        request: Request<'_>,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<PendingResponse, ConnectionError> {
        let charge = self.charge(request.payload);
        let ask = self.shared.credits.acquire(charge).await.map_err(|_| self.failure())?;
        self.submit_now(request, charge, ask, body).map(|(pending, _)| pending)
    }

    /// Sends a request if there are credits for it at once.
    pub(crate) fn try_submit(
        &self,
        request: Request<'_>,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Option<PendingResponse> {
        let charge = self.charge(request.payload);
        let ask = self.shared.credits.try_acquire(charge)?;
        self.submit_now(request, charge, ask, body).ok().map(|(pending, _)| pending)
    }

    /// Sends a request and waits for its answer, of whatever status.
    pub(crate) async fn exchange(
        &self,
        request: Request<'_>,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Response, ConnectionError> {
        self.submit(request, body).await?.await
    }

    /// As [`Connection::exchange`]; also returns the bytes of the request as it was sent.
    pub(crate) async fn exchange_recorded(
        &self,
        request: Request<'_>,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(Vec<u8>, Response), ConnectionError> {
        let charge = self.charge(request.payload);
        let ask = self.shared.credits.acquire(charge).await.map_err(|_| self.failure())?;
        let (pending, message) = self.submit_now(request, charge, ask, |out| {
            body(out);
        })?;
        Ok((message, pending.await?))
    }

    /// Sends a request and waits for an answer, which must report success.
    pub(crate) async fn call(
        &self,
        request: Request<'_>,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Response, ClientError> {
        self.exchange(request, body).await?.success()
    }

    /// Bytes that a READ or WRITE should carry now, at most `max`: as many as half of the free
    /// credits pay for; other requests get the rest.
    pub(crate) fn io_size(&self, max: u32) -> u32 {
        let credits =
            if self.negotiated().large_mtu() { self.shared.credits.owned() / 2 } else { 1 };
        max.min(credits.max(1).saturating_mul(CREDIT_BYTES))
    }

    fn charge(&self, payload: usize) -> u16 {
        let large_mtu = self.shared.negotiated.get().is_some_and(Negotiated::large_mtu);
        if !large_mtu || payload == 0 {
            return 1;
        }
        // MS-SMB2 §3.1.5.2: one credit for each 64 KiB or part of it.
        u16::try_from((payload - 1) / CREDIT_BYTES_USIZE + 1).unwrap_or(u16::MAX)
    }

    fn submit_now(
        &self,
        request: Request<'_>,
        charge: u16,
        ask: u16,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(PendingResponse, Vec<u8>), ConnectionError> {
        let shared = &self.shared;
        let protection = self.protection(&request);
        let (turn, answer) =
            shared.lock_open().register(charge, request.expected(protection), shared.now())?;
        let message_id = MessageId(turn.message_id());
        let header = self.header(&request, message_id, Credit { charge, ask });
        let mut frame = OutFrame::new(FIXED_PARTS + request.payload, |out| {
            header.emit(out);
            body(out);
        });
        let recorded = match request.command {
            Command::NEGOTIATE | Command::SESSION_SETUP => frame.message().to_vec(),
            _ => Vec::new(),
        };
        // A request that is not sent leaves a gap in the ids, and the server accepts no id behind
        // the gap.
        let sent = shared.protect(&mut frame, request.session, protection, turn);
        sent.and_then(|()| shared.sender.send(frame)).inspect_err(|error| shared.fail(*error))?;
        Ok((PendingResponse::new(message_id, answer, self.clone()), recorded))
    }

    fn protection(&self, request: &Request<'_>) -> Protection {
        let negotiated = self.shared.negotiated.get();
        request.protection(negotiated.is_some_and(Negotiated::is_3_1_1))
    }

    fn header(&self, request: &Request<'_>, message_id: MessageId, credit: Credit) -> Header {
        let large_mtu = self.shared.negotiated.get().is_some_and(Negotiated::large_mtu);
        Header {
            // MS-SMB2 §3.2.4.1.2: reserved before 2.1.
            credit_charge: if large_mtu { credit.charge } else { 0 },
            credits: credit.ask,
            session_id: request.session.map_or(SessionId(0), SessionSecurity::id),
            route: Route::Sync { process_id: PROCESS_ID, tree_id: request.tree },
            ..Header::request(request.command, message_id)
        }
    }

    /// Asks the server to cancel a request. The server still answers the request.
    pub(crate) fn cancel(&self, message_id: MessageId, session: &SessionSecurity) {
        let shared = &self.shared;
        let found = shared.lock_open().cancel(message_id);
        let Some((async_id, protection, turn)) = found else { return };
        // MS-SMB2 §3.2.4.24: the same message id, no credit.
        let route = match async_id {
            Some(id) => Route::Async(id),
            None => Route::Sync { process_id: PROCESS_ID, tree_id: TreeId(0) },
        };
        let header = Header {
            route,
            session_id: session.id(),
            ..Header::request(Command::CANCEL, message_id)
        };
        let mut frame = OutFrame::new(FIXED_PARTS, |out| {
            header.emit(out);
            smb::Empty.emit(out);
        });
        let sent = shared
            .protect(&mut frame, Some(session), protection, turn)
            .and_then(|()| shared.sender.send(frame));
        if let Err(error) = sent {
            shared.fail(error);
        }
    }

    fn failure(&self) -> ConnectionError {
        self.shared.lock_open().failure().unwrap_or(ConnectionError::Closed)
    }
}

impl Shared {
    /// What time it is for the client.
    fn now(&self) -> Instant {
        self.environment.clock.now()
    }

    fn lock_open(&self) -> std::sync::MutexGuard<'_, OpenRequests> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self, id: SessionId) -> Option<Arc<SessionSecurity>> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        sessions.get(&id).cloned()
    }

    fn protect(
        &self,
        frame: &mut OutFrame,
        session: Option<&SessionSecurity>,
        protection: Protection,
        turn: Turn,
    ) -> Result<(), ConnectionError> {
        match (protection, session) {
            (Protection::Sign, Some(session)) => {
                session.sign(turn, frame.message_mut());
                Ok(())
            }
            (Protection::Seal, Some(session)) => session.seal(frame),
            (Protection::None, _) | (_, None) => Ok(()),
        }
    }

    /// Sends a request whose answer no caller waits for. It goes on the session that is to seal it,
    /// else on any session; without a session or a free credit it is not sent.
    fn send_detached(
        &self,
        command: Command,
        sealed_by: Option<SessionId>,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let session = match sealed_by {
            Some(id) => self.session(id),
            None => {
                let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
                sessions.values().next().cloned()
            }
        };
        let (Some(session), Some(ask)) = (session, self.credits.try_acquire(1)) else { return };
        let encrypt = sealed_by.is_some();
        let request = Request { encrypt, ..Request::new(command).session(&session) };
        let protection = request.protection(false);
        let expected = request.expected(protection);
        let Ok((turn, _)) = self.lock_open().register(1, expected, self.now()) else { return };
        let message_id = MessageId(turn.message_id());
        let header = Header {
            credit_charge: 1,
            credits: ask,
            session_id: session.id(),
            ..Header::request(command, message_id)
        };
        let mut frame = OutFrame::new(FIXED_PARTS, |out| {
            header.emit(out);
            body(out);
        });
        let sent = self.protect(&mut frame, Some(&session), protection, turn);
        if let Err(error) = sent.and_then(|()| self.sender.send(frame)) {
            self.fail(error);
        }
    }

    /// Ends everything on this connection with one error; the first error counts.
    fn fail(&self, error: ConnectionError) {
        self.lock_open().fail(error);
        self.credits.close();
        self.breaks.close();
        self.sender.close();
    }
}

#[derive(Debug)]
struct Closer {
    shared: Arc<Shared>,
    tasks: [tokio::task::AbortHandle; 2],
}

impl Drop for Closer {
    fn drop(&mut self) {
        self.shared.fail(ConnectionError::Closed);
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// The process id that Windows clients send; servers only echo it.
const PROCESS_ID: u32 = 0xfeff;
/// The bytes that one credit pays for.
const CREDIT_BYTES: u32 = 64 * 1024;
const CREDIT_BYTES_USIZE: usize = 64 * 1024;
/// Header and fixed part of any request, and the longest name in common use.
const FIXED_PARTS: usize = 512;
