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
//! All waiting happens before a message id is drawn: a caller that stops waiting before leaves nothing
//! behind. An answer that no caller waits for any more gives its credits, and what the request left to do is
//! done ([`Leftover`]).
//!
//! Spec: MS-SMB2 §3.2.4.1, §3.2.5.1.

mod breaks;
mod credits;
mod detached;
mod leftover;
mod negotiate;
mod open_requests;
mod pair;
mod receive;
mod response;
mod security;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use basics::{Environment, Random};
use smb::crypto::{LaneId, Turn};
use smb::{Command, FileId, Header, HeaderFlags, MessageId, Route, SessionId, TreeId};

pub use breaks::LeaseBreak;
pub(crate) use breaks::{BreakReceiver, Breaks};
use credits::Credits;
use detached::Detached;
pub(crate) use leftover::Leftover;
pub use negotiate::Negotiated;
pub(crate) use negotiate::{negotiate, validate_input};
use open_requests::{Cancel, Expected, OpenRequests};
pub(crate) use pair::Half;
pub(crate) use response::{PendingResponse, Response};
pub(crate) use security::SessionSecurity;

use crate::error::{ClientError, ConnectionError};
use crate::transport::direct::Pool;
use crate::transport::{FrameLimits, FrameSender, OutFrame, Transport};

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
    /// Requests that wait for credits, and no caller for them.
    later: Mutex<VecDeque<Detached>>,
    call_timeout: Duration,
    limits: FrameLimits,
    /// The addresses of the server, in canonical form.
    addresses: Vec<IpAddr>,
    environment: Environment,
}

/// How long a server may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// How long it may be silent while it owes an answer.
    pub(crate) silence: Duration,
    /// How long a call may take in all.
    pub(crate) call: Duration,
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
    /// The answer may take for ever.
    pub(crate) for_ever: bool,
    /// It has been sent before, and its answer was lost.
    pub(crate) replays: bool,
}

impl<'a> Request<'a> {
    pub(crate) fn new(command: Command) -> Self {
        let tree = TreeId(0);
        let (session, encrypt, sign, for_ever) = (None, false, false, false);
        Self { command, session, tree, encrypt, sign, payload: 0, for_ever, replays: false }
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
    /// Starts the receiving task. `addresses`: those that are the server's own.
    pub(crate) fn start(
        transport: Transport,
        patience: Patience,
        addresses: Vec<IpAddr>,
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
            later: Mutex::default(),
            call_timeout: patience.call,
            limits: transport.limits,
            addresses: addresses.into_iter().map(|address| address.to_canonical()).collect(),
            environment,
        });
        let receiving = tokio::spawn(receive::run(Arc::clone(&shared), transport.receiver));
        let watching = tokio::spawn(watch::run(Arc::downgrade(&shared), patience.silence));
        let tasks = [receiving.abort_handle(), watching.abort_handle()];
        let closer = Closer { shared: Arc::clone(&shared), tasks };
        Self { shared, _closer: Arc::new(closer) }
    }

    /// The outcome of the negotiation.
    pub(crate) fn negotiated(&self) -> &Negotiated {
        self.shared.negotiated.get().expect("a client negotiates before it hands itself out")
    }

    /// The addresses of the server, in canonical form.
    pub(crate) fn server_addresses(&self) -> &[IpAddr] {
        &self.shared.addresses
    }

    /// Most bytes of data that one message to the server carries, whatever was negotiated.
    pub(crate) fn sends_max(&self) -> u32 {
        data_max(self.shared.limits.send)
    }

    /// Most bytes of data that one message of the server carries, whatever was negotiated.
    pub(crate) fn receives_max(&self) -> u32 {
        data_max(self.shared.limits.receive)
    }

    /// How long a call may take.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.shared.call_timeout
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

    /// Ends the connection: nothing that the server still sends on it is taken.
    pub(crate) fn give_up(&self) {
        self.shared.fail(ConnectionError::Closed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.shared.lock_open().failure().is_some()
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
        let ask = self.credits(charge).await?;
        self.submit_now(request, charge, ask, body).map(|(pending, _)| pending)
    }

    /// Waits for `charge` credits and takes them; returns how many to ask for. A connection that has fewer in
    /// all asks for more first.
    ///
    /// # Errors
    /// The connection is gone; the server grants so many credits never, or not in time.
    async fn credits(&self, charge: u16) -> Result<u16, ConnectionError> {
        let credits = &self.shared.credits;
        if let Some(ask) = credits.try_acquire(charge) {
            return Ok(ask);
        }
        let waiting = async {
            while credits.owned() < u32::from(charge) {
                let before = credits.owned();
                self.ask_for_credits().await?;
                if credits.owned() <= before {
                    return Err(ConnectionError::PeerFewCredits { charge });
                }
            }
            let is_hopeless = || self.shared.lock_open().is_empty();
            let taken = credits.acquire(charge, is_hopeless).await;
            taken.ok_or_else(|| {
                let failed = self.shared.lock_open().failure();
                failed.unwrap_or(ConnectionError::PeerFewCredits { charge })
            })
        };
        let late = ConnectionError::PeerFewCredits { charge };
        tokio::time::timeout(self.shared.call_timeout, waiting).await.unwrap_or(Err(late))
    }

    /// Asks for more credits, by a request that costs one.
    async fn ask_for_credits(&self) -> Result<(), ConnectionError> {
        let session = self.shared.any_session();
        let request = Request::new(Command::ECHO);
        let request = session.as_deref().map_or(request, |session| request.session(session));
        let ask = self.shared.credits.acquire(1, || self.shared.lock_open().is_empty()).await;
        let ask = ask.ok_or_else(|| self.failure())?;
        let (pending, _) = self.submit_now(request, 1, ask, |out| smb::Empty.emit(out))?;
        pending.await.map(drop)
    }

    /// Closes a file as soon as there is a credit for it, without waiting for the answer.
    pub(crate) fn close_file(&self, session: SessionId, tree: TreeId, encrypt: bool, id: FileId) {
        self.shared.close_file(session, tree, encrypt, id);
    }

    /// Leaves a tree if there is a credit for it, without waiting for the answer.
    pub(crate) fn leave_tree(&self, session: SessionId, tree: TreeId, encrypt: bool) {
        let (command, session) = (Command::TREE_DISCONNECT, Some(session));
        let request = Detached { command, session, tree, encrypt, body: detached::empty() };
        self.shared.send_detached(&request);
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
        let ask = self.credits(charge).await?;
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
        let deadline = if request.for_ever { None } else { shared.deadline() };
        let expected = request.expected(protection);
        let (turn, answer) =
            shared.lock_open().register(charge, expected, shared.now(), deadline)?;
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
        let mut header = Header {
            // MS-SMB2 §3.2.4.1.2: reserved before 2.1.
            credit_charge: if large_mtu { credit.charge } else { 0 },
            credits: credit.ask,
            session_id: request.session.map_or(SessionId(0), SessionSecurity::id),
            route: Route::Sync { process_id: PROCESS_ID, tree_id: request.tree },
            ..Header::request(request.command, message_id)
        };
        header.flags.set(HeaderFlags::REPLAY, request.replays);
        header
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

    /// Asks the server to cancel a request. The server still answers the request.
    fn cancel(&self, message_id: MessageId) {
        let found = self.lock_open().cancel(message_id);
        let Some(Cancel { async_id, session, protection, turn }) = found else { return };
        let Some(session) = self.session(session) else { return };
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
        let sent = self
            .protect(&mut frame, Some(&session), protection, turn)
            .and_then(|()| self.sender.send(frame));
        if let Err(error) = sent {
            self.fail(error);
        }
    }

    /// When a call that begins now ends at the latest.
    fn deadline(&self) -> Option<Instant> {
        self.now().checked_add(self.call_timeout)
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

fn data_max(frame: usize) -> u32 {
    u32::try_from(frame.saturating_sub(FIXED_PARTS)).unwrap_or(u32::MAX)
}

/// The process id that Windows clients send; servers only echo it.
const PROCESS_ID: u32 = 0xfeff;
/// The bytes that one credit pays for.
const CREDIT_BYTES: u32 = 64 * 1024;
const CREDIT_BYTES_USIZE: usize = 64 * 1024;
/// Header and fixed part of any request, and the longest name in common use.
const FIXED_PARTS: usize = 512;
