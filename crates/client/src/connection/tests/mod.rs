//! A connection whose other end sends the messages that a test asks for.

mod regions;
mod signatures;

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use basics::Environment;
use smb::create::{AccessMask, LeaseKey, LeaseState};
use smb::crypto::{KeySchedule, LaneId, Role, SessionKey, SessionKeys, VerifyError};
use smb::negotiate::{Capabilities, Dialect, NegotiateResponse, SecurityMode};
use smb::{
    AsyncId, Command, Empty, ErrorResponse, FileTime, Guid, Header, HeaderFlags,
    LeaseBreakNotification, MessageId, NtStatus, Protocol, Route, SessionId, ShareCapabilities,
    ShareFlags, ShareType, TransformHeader, TreeConnectResponse, TreeId,
};
use tokio::sync::mpsc;

mod given_up;

use super::{Connection, Patience, PendingResponse, Request, SessionSecurity};
use crate::error::ConnectionError;
use crate::options::ConnectOptions;
use crate::transport::{FrameLimits, FrameReceiver, FrameSender, InFrame, OutFrame, Transport};
use crate::tree::Tree;

const SESSION: SessionId = SessionId(7);
/// Far longer than a test takes, far shorter than the limit of a test run.
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

/// The other end of the connection.
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
    connected_as(patience, |keys| SessionSecurity::new(SESSION, keys, true, encrypt))
}

fn connected_as(
    silence: Duration,
    session: impl FnOnce((SessionKeys, LaneId)) -> SessionSecurity,
) -> (Connection, Arc<SessionSecurity>, Server) {
    connected_for(Patience { silence, call: PATIENCE }, session)
}

fn connected_for(
    patience: Patience,
    session: impl FnOnce((SessionKeys, LaneId)) -> SessionSecurity,
) -> (Connection, Arc<SessionSecurity>, Server) {
    connected_at(Vec::new(), patience, session)
}

/// The server has these addresses.
fn connected_at(
    addresses: Vec<IpAddr>,
    patience: Patience,
    session: impl FnOnce((SessionKeys, LaneId)) -> SessionSecurity,
) -> (Connection, Arc<SessionSecurity>, Server) {
    let (outbound, requests) = mpsc::unbounded_channel();
    let (answers, inbound) = mpsc::unbounded_channel();
    let (sender, receiver) = (Box::new(Outbound(outbound)), Box::new(Inbound(inbound)));
    let limits = FrameLimits::NONE;
    let transport = Transport { sender, receiver, pool: None, peer: None, limits };
    let connection = Connection::start(transport, patience, addresses, Environment::host());
    let keys_here = (keys(Role::Client), connection.lane());
    let session = Arc::new(session(keys_here));
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
    /// A message with the given header and body.
    fn say(&self, is_signed: bool, header: Header, body: impl FnOnce(&mut Vec<u8>)) {
        let mut pdu = Vec::new();
        header.emit(&mut pdu);
        body(&mut pdu);
        if is_signed {
            sign(&self.keys, &mut pdu);
        }
        self.answers.send(pdu).unwrap();
    }

    /// An answer to the first request, with a credit; `change` edits its header.
    fn answer(&self, is_signed: bool, change: impl FnOnce(&mut Header)) {
        let mut header = Header {
            flags: HeaderFlags::RESPONSE,
            credits: 1,
            session_id: SESSION,
            ..Header::request(Command::FLUSH, MessageId(0))
        };
        change(&mut header);
        self.say(is_signed, header, |out| Empty.emit(out));
    }
}

#[tokio::test]
async fn a_signed_answer_of_the_asking_session_is_accepted() {
    let (connection, session, server) = connected(PATIENCE, false);
    let pending = ask(&connection, &session).await;
    server.answer(true, |_| {});
    pending.await.unwrap().success().unwrap();
}

#[tokio::test]
async fn an_answer_that_names_an_unknown_session_is_refused() {
    for (other, encrypt) in [(0, false), (8, false), (0, true)] {
        let (connection, session, server) = connected(PATIENCE, encrypt);
        let pending = ask(&connection, &session).await;
        server.answer(false, |header| header.session_id = SessionId(other));
        assert_eq!(pending.await.unwrap_err(), ConnectionError::PeerSession(SessionId(other)));
    }
}

#[tokio::test]
async fn an_unsigned_interim_status_ends_no_request() {
    let (connection, session, server) = connected(PATIENCE, false);
    let pending = ask(&connection, &session).await;
    server.answer(false, |header| header.status = NtStatus::PENDING);
    assert_eq!(pending.await.unwrap_err(), ConnectionError::PeerInterim(MessageId(0)));
}

#[tokio::test]
async fn an_encrypted_request_accepts_no_unencrypted_answer() {
    let (connection, session, server) = connected(PATIENCE, false);
    // The share requires encryption, the session does not.
    let request = Request { encrypt: true, ..Request::new(Command::FLUSH).session(&session) };
    let pending = connection.submit(request, |out| Empty.emit(out)).await.unwrap();
    server.answer(true, |_| {});
    assert_eq!(pending.await.unwrap_err(), ConnectionError::PeerUnencrypted);
}

#[tokio::test]
async fn a_server_that_takes_the_last_credit_ends_waits_for_credits() {
    let (connection, session, server) = connected(PATIENCE, false);
    let pending = ask(&connection, &session).await;
    server.answer(true, |header| header.credits = 0);
    pending.await.unwrap().success().unwrap();
    let request = Request::new(Command::FLUSH).session(&session);
    let next = connection.exchange(request, |out| Empty.emit(out)).await;
    assert_eq!(next.unwrap_err(), ConnectionError::PeerCredits);
}

#[tokio::test]
async fn a_connection_to_a_server_that_never_answers_fails() {
    let (connection, session, _server) = connected(Duration::from_millis(50), false);
    let pending = ask(&connection, &session).await;
    let answer = tokio::time::timeout(PATIENCE, pending).await.expect("it ends");
    assert_eq!(answer.unwrap_err(), ConnectionError::PeerSilent);
}

#[tokio::test]
async fn a_server_with_a_pending_request_is_probed_by_echo() {
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

#[tokio::test]
async fn an_answer_of_another_command_is_refused() {
    let (connection, session, server) = connected(PATIENCE, false);
    let pending = ask(&connection, &session).await;
    server.answer(true, |header| {
        (header.command, header.status) = (Command::SESSION_SETUP, NtStatus::NOT_SUPPORTED);
    });
    let expected = ConnectionError::PeerCommand {
        message_id: MessageId(0),
        asked: Command::FLUSH,
        command: Command::SESSION_SETUP,
    };
    assert_eq!(pending.await.unwrap_err(), expected);
}

#[tokio::test]
async fn an_answer_must_carry_the_async_id_of_its_interim_response() {
    for (route, is_taken) in [
        (Route::Async(AsyncId(9)), true),
        (Route::Async(AsyncId(8)), false),
        (Route::Sync { process_id: 0, tree_id: TreeId(0) }, false),
    ] {
        let (connection, session, server) = connected(PATIENCE, false);
        let pending = ask(&connection, &session).await;
        server.answer(false, |header| {
            (header.status, header.route) = (NtStatus::PENDING, Route::Async(AsyncId(9)));
        });
        server.answer(true, |header| header.route = route);
        match pending.await {
            Ok(_) => assert!(is_taken),
            Err(error) => {
                assert!(!is_taken);
                assert_eq!(error, ConnectionError::PeerRoute(MessageId(0)));
            }
        }
    }
}

#[tokio::test]
async fn a_signed_request_accepts_only_a_signed_answer() {
    let without = |keys| SessionSecurity::new(SESSION, keys, false, false);
    let (connection, session, server) = connected_as(PATIENCE, without);
    let request = Request { sign: true, ..Request::new(Command::FLUSH).session(&session) };
    let pending = connection.submit(request, |out| Empty.emit(out)).await.unwrap();
    server.answer(false, |_| {});
    let expected = ConnectionError::PeerSignature(VerifyError::PeerUnsigned);
    assert_eq!(pending.await.unwrap_err(), expected);
}

#[tokio::test]
async fn a_session_without_keys_accepts_no_answer_of_another_session() {
    let (connection, session, server) =
        connected_as(PATIENCE, |_| SessionSecurity::without_keys(SESSION));
    let pending = ask(&connection, &session).await;
    server.answer(false, |header| header.session_id = SessionId(8));
    assert_eq!(pending.await.unwrap_err(), ConnectionError::PeerSession(SessionId(8)));
}

#[tokio::test]
async fn a_sealed_break_of_an_unowned_lease_is_acknowledged_sealed() {
    // The share requires encryption, the session does not.
    let (_connection, _session, mut server) = connected(PATIENCE, false);
    let mut payload = Vec::new();
    let header = Header {
        flags: HeaderFlags::RESPONSE,
        ..Header::request(Command::OPLOCK_BREAK, MessageId::UNSOLICITED)
    };
    header.emit(&mut payload);
    let (current, new) = (LeaseState::READ, LeaseState::empty());
    let lease_key = LeaseKey([3; 16]);
    LeaseBreakNotification { epoch: 0, ack_required: true, lease_key, current, new }
        .emit(&mut payload);
    let mut frame = Vec::new();
    TransformHeader {
        signature: [0; 16],
        nonce: [0; 16],
        original_size: u32::try_from(payload.len()).unwrap(),
        session_id: SESSION,
    }
    .emit(&mut frame);
    let key = server.keys.sealing.as_ref().unwrap();
    key.seal(frame.as_mut_slice().try_into().unwrap(), &mut payload).unwrap();
    frame.extend(payload);
    server.answers.send(frame).unwrap();
    let acknowledged = server.requests.recv().await.unwrap();
    assert_eq!(Protocol::of(&acknowledged), Ok(Protocol::Encrypted));
}

/// Enters a share of a server of this dialect, which answers FSCTL_VALIDATE_NEGOTIATE_INFO with a
/// signed status. Returns whether the client goes on.
async fn enters(dialect: Dialect, answer: NtStatus, session_signs: bool) -> bool {
    let (connection, session, mut server) = connected_as(PATIENCE, |(_, lane)| {
        let keys = if dialect < Dialect::SMB_3_0 { KeySchedule::Smb2 } else { SCHEDULE };
        let keys = keys.derive(&SessionKey::new(&[3; 16]), Role::Client);
        SessionSecurity::new(SESSION, (keys, lane), session_signs, false)
    });
    if dialect < Dialect::SMB_3_0 {
        server.keys = KeySchedule::Smb2.derive(&SessionKey::new(&[3; 16]), Role::Server);
    }
    let serving = tokio::spawn(async move {
        while let Some(pdu) = server.requests.recv().await {
            let request = Header::parse(&pdu).unwrap();
            let mut header = request.response(NtStatus::SUCCESS);
            header.credits = 4;
            let is_signed = request.flags.contains(HeaderFlags::SIGNED);
            match request.command {
                Command::NEGOTIATE => server.say(false, header, |out| hello(dialect).emit(out)),
                Command::TREE_CONNECT => server.say(is_signed, header, |out| entered().emit(out)),
                Command::IOCTL => {
                    assert!(is_signed, "the question is signed whatever else is");
                    header.status = answer;
                    server.say(true, header, |out| ErrorResponse::NONE.emit(out));
                }
                _ => return,
            }
        }
    });
    let options = ConnectOptions::default();
    super::negotiate(&connection, &options, "host").await.unwrap();
    let entered = Tree::enter(connection, session, "host", "share", false).await;
    let is_in = entered.is_ok();
    drop(entered);
    serving.await.unwrap();
    is_in
}

fn hello(dialect: Dialect) -> NegotiateResponse<'static> {
    NegotiateResponse {
        security_mode: SecurityMode::SIGNING_ENABLED,
        dialect,
        server_guid: Guid([1; 16]),
        capabilities: Capabilities::empty(),
        transact_size_max: 1 << 16,
        read_size_max: 1 << 16,
        write_size_max: 1 << 16,
        system_time: FileTime(0),
        start_time: FileTime(0),
        token: &[],
        contexts: Vec::new(),
    }
}

fn entered() -> TreeConnectResponse {
    TreeConnectResponse {
        share_type: ShareType::DISK,
        flags: ShareFlags::empty(),
        capabilities: ShareCapabilities::empty(),
        maximal_access: AccessMask::empty(),
    }
}

#[tokio::test]
async fn a_client_leaves_a_3_x_server_that_validates_no_negotiation() {
    for signs in [true, false] {
        for refusal in [NtStatus::NOT_SUPPORTED, NtStatus::FILE_CLOSED, NtStatus::ACCESS_DENIED] {
            for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_0_2] {
                assert!(!enters(dialect, refusal, signs).await, "{dialect} {refusal} {signs}");
            }
        }
        assert!(enters(Dialect::SMB_2_1, NtStatus::NOT_SUPPORTED, signs).await);
        assert!(!enters(Dialect::SMB_2_1, NtStatus::ACCESS_DENIED, signs).await);
    }
}

const SCHEDULE: KeySchedule = KeySchedule::Smb30 { encryption: true };
