//! A connection whose other end says what a test wants it to say.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smb::crypto::{KeySchedule, Role, SessionKey, SessionKeys};
use smb::{AsyncId, Command, Empty, Header, HeaderFlags, MessageId, NtStatus, Route, SessionId};
use tokio::sync::mpsc;

use super::{Connection, PendingResponse, Request, SessionSecurity};
use crate::error::ConnectionError;
use crate::transport::{FrameReceiver, FrameSender, InFrame, OutFrame, Transport};

const SESSION: SessionId = SessionId(7);
/// Far above what a test takes, far below that of whoever waits for the tests.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Outbound(mpsc::UnboundedSender<Vec<u8>>);

impl FrameSender for Outbound {
    fn send(&self, frame: OutFrame) -> Result<(), ConnectionError> {
        self.0.send(frame.payload().to_vec()).map_err(|_| ConnectionError::PeerClosed)
    }

    fn close(&self) {}
}

#[derive(Debug)]
struct Inbound(mpsc::UnboundedReceiver<Vec<u8>>);

impl FrameReceiver for Inbound {
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        _len_max: usize,
    ) -> Poll<Result<InFrame, ConnectionError>> {
        let frame = ready!(self.0.poll_recv(cx)).ok_or(ConnectionError::PeerClosed);
        Poll::Ready(frame.map(InFrame::from))
    }
}

/// The other end.
struct Server {
    requests: mpsc::UnboundedReceiver<Vec<u8>>,
    answers: mpsc::UnboundedSender<Vec<u8>>,
    keys: SessionKeys,
}

fn keys(role: Role) -> SessionKeys {
    KeySchedule::Smb30 { encryption: true }.derive(&SessionKey::new(&[3; 16]), role)
}

/// A connection with a session that signs, or seals.
fn connected(patience: Duration, encrypt: bool) -> (Connection, Arc<SessionSecurity>, Server) {
    let (outbound, requests) = mpsc::unbounded_channel();
    let (answers, inbound) = mpsc::unbounded_channel();
    let (sender, receiver) = (Box::new(Outbound(outbound)), Box::new(Inbound(inbound)));
    let connection = Connection::start(Transport { sender, receiver, pool: None }, patience);
    let keys_here = (keys(Role::Client), connection.lane());
    let session = Arc::new(SessionSecurity::new(SESSION, keys_here, true, encrypt));
    connection.add_session(Arc::clone(&session));
    (connection, session, Server { requests, answers, keys: keys(Role::Server) })
}

async fn ask(connection: &Connection, session: &SessionSecurity) -> PendingResponse {
    let request = Request::new(Command::FLUSH).session(session);
    connection.submit(request, |out| Empty.emit(out)).await.unwrap()
}

#[expect(clippy::disallowed_methods, reason = "what the server signs is the test's to say")]
fn sign(keys: &SessionKeys, pdu: &mut [u8]) {
    keys.signing.sign_unguarded(pdu).unwrap();
}

impl Server {
    /// An answer to the first request, with a credit, changed at will.
    fn answer(&self, is_signed: bool, change: impl FnOnce(&mut Header)) {
        let mut header = Header {
            flags: HeaderFlags::RESPONSE,
            credits: 1,
            session_id: SESSION,
            ..Header::request(Command::FLUSH, MessageId(0))
        };
        change(&mut header);
        let mut pdu = Vec::new();
        header.emit(&mut pdu);
        Empty.emit(&mut pdu);
        if is_signed {
            sign(&self.keys, &mut pdu);
        }
        self.answers.send(pdu).unwrap();
    }
}

#[tokio::test]
async fn a_signed_answer_of_the_session_that_asked_is_taken() {
    let (connection, session, server) = connected(PATIENCE, false);
    let pending = ask(&connection, &session).await;
    server.answer(true, |_| {});
    pending.await.unwrap().success().unwrap();
}

#[tokio::test]
async fn an_answer_that_names_no_session_of_ours_proves_nothing() {
    for (other, encrypt) in [(0, false), (8, false), (0, true)] {
        let (connection, session, server) = connected(PATIENCE, encrypt);
        let pending = ask(&connection, &session).await;
        server.answer(false, |header| header.session_id = SessionId(other));
        assert_eq!(pending.await.unwrap_err(), ConnectionError::PeerSession(SessionId(other)));
    }
}

#[tokio::test]
async fn an_interim_status_which_nobody_signs_ends_no_request() {
    let (connection, session, server) = connected(PATIENCE, false);
    let pending = ask(&connection, &session).await;
    server.answer(false, |header| header.status = NtStatus::PENDING);
    assert_eq!(pending.await.unwrap_err(), ConnectionError::PeerInterim(MessageId(0)));
}

#[tokio::test]
async fn what_was_asked_encrypted_is_not_answered_in_the_clear() {
    let (connection, session, server) = connected(PATIENCE, false);
    // The share wants it, the session does not.
    let request = Request { encrypt: true, ..Request::new(Command::FLUSH).session(&session) };
    let pending = connection.submit(request, |out| Empty.emit(out)).await.unwrap();
    server.answer(true, |_| {});
    assert_eq!(pending.await.unwrap_err(), ConnectionError::PeerUnencrypted);
}

#[tokio::test]
async fn a_server_that_takes_the_last_credit_ends_the_wait_for_one() {
    let (connection, session, server) = connected(PATIENCE, false);
    let pending = ask(&connection, &session).await;
    server.answer(true, |header| header.credits = 0);
    pending.await.unwrap().success().unwrap();
    let request = Request::new(Command::FLUSH).session(&session);
    let next = connection.exchange(request, |out| Empty.emit(out)).await;
    assert_eq!(next.unwrap_err(), ConnectionError::PeerCredits);
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let (connection, session, _server) = connected(Duration::from_millis(50), false);
    let pending = ask(&connection, &session).await;
    let answer = tokio::time::timeout(PATIENCE, pending).await.expect("it ends");
    assert_eq!(answer.unwrap_err(), ConnectionError::PeerSilent);
}

#[tokio::test]
async fn a_server_that_said_it_takes_long_is_asked_whether_it_is_there() {
    let (connection, session, mut server) = connected(Duration::from_millis(50), false);
    let pending = ask(&connection, &session).await;
    server.answer(false, |header| {
        header.status = NtStatus::PENDING;
        header.route = Route::Async(AsyncId(1));
        header.credits = 2;
    });
    let answer = tokio::time::timeout(PATIENCE, pending).await.expect("it ends");
    assert_eq!(answer.unwrap_err(), ConnectionError::PeerSilent);
    let _flush = server.requests.recv().await.unwrap();
    let echo = server.requests.recv().await.unwrap();
    assert_eq!(Header::parse(&echo).unwrap().command, Command::ECHO);
}
