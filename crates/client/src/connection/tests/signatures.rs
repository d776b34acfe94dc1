//! What a client takes for the server's: signatures of answers, of the end of an authentication, and frames of the
//! session that they name.

use smb::auth::ntlm::{AcceptorConfig, Freshness};
use smb::auth::{Accept, Acceptor as _, ClientFreshness, NtlmInitiator, SpnegoAcceptor, UserList};
use smb::{SessionFlags, SessionSetupRequest, SessionSetupResponse};

use super::*;
use crate::error::ClientError;
use crate::options::Protection;
use crate::session;

/// An answer to the first request, signed.
fn signed(server: &Server) -> Vec<u8> {
    let mut pdu = Vec::new();
    let header = Header {
        flags: HeaderFlags::RESPONSE,
        credits: 1,
        session_id: SESSION,
        ..Header::request(Command::FLUSH, MessageId(0))
    };
    header.emit(&mut pdu);
    Empty.emit(&mut pdu);
    sign(&server.keys, &mut pdu);
    pdu
}

#[tokio::test]
async fn an_answer_that_was_changed_after_its_signing_is_refused() {
    let (connection, session, server) = connected(PATIENCE, false);
    let pending = ask(&connection, &session).await;
    let mut pdu = signed(&server);
    *pdu.last_mut().unwrap() ^= 1;
    server.answers.send(pdu).unwrap();
    let expected = ConnectionError::PeerSignature(VerifyError::PeerSignature);
    assert_eq!(pending.await.unwrap_err(), expected);
}

#[tokio::test]
async fn an_unsigned_answer_is_refused_where_the_session_signs() {
    let (connection, session, server) = connected(PATIENCE, false);
    let pending = ask(&connection, &session).await;
    server.answer(false, |_| {});
    let expected = ConnectionError::PeerSignature(VerifyError::PeerUnsigned);
    assert_eq!(pending.await.unwrap_err(), expected);
}

#[tokio::test]
async fn a_sealed_answer_that_names_another_session_is_refused() {
    let (connection, session, server) = connected(PATIENCE, true);
    let pending = ask(&connection, &session).await;
    let mut payload = signed(&server);
    // The session id of the message (MS-SMB2 §2.2.1.2); the transform header names the one that asked.
    payload[40] ^= 1;
    sealed(&server, payload);
    let other = SessionId(SESSION.0 ^ 1);
    assert_eq!(pending.await.unwrap_err(), ConnectionError::PeerSession(other));
}

/// Sends a frame that the first session's key seals.
fn sealed(server: &Server, mut payload: Vec<u8>) {
    let header = TransformHeader {
        signature: [0; 16],
        nonce: [0; 16],
        original_size: u32::try_from(payload.len()).unwrap(),
        session_id: SESSION,
    };
    let mut frame = Vec::new();
    header.emit(&mut frame);
    let key = server.keys.sealing.as_ref().unwrap();
    key.seal(frame.as_mut_slice().try_into().unwrap(), &mut payload).unwrap();
    frame.extend(payload);
    server.answers.send(frame).unwrap();
}

#[tokio::test]
async fn one_session_cannot_seal_the_answer_to_a_request_of_another() {
    let (connection, _, server) = connected(PATIENCE, true);
    let other = SessionId(SESSION.0 ^ 1);
    let keys_here = (keys(Role::Client), connection.lane());
    let session = Arc::new(SessionSecurity::new(other, keys_here, true, true));
    connection.add_session(Arc::clone(&session));
    let pending = ask(&connection, &session).await;
    let mut payload = signed(&server);
    payload[40] ^= 1;
    sealed(&server, payload);
    assert_eq!(pending.await.unwrap_err(), ConnectionError::PeerSession(other));
}

#[tokio::test]
async fn each_answer_of_a_sealed_compound_reaches_its_request() {
    let (connection, session, server) = connected(PATIENCE, true);
    // One credit is there at first.
    let first = ask(&connection, &session).await;
    sealed(&server, answer_to(0, 2));
    first.await.unwrap().success().unwrap();
    let (second, third) = (ask(&connection, &session).await, ask(&connection, &session).await);
    let mut payload = answer_to(1, 1);
    payload.resize(payload.len().next_multiple_of(8), 0);
    // NextCommand (MS-SMB2 §2.2.1.2).
    let next = u32::try_from(payload.len()).unwrap();
    payload[20..24].copy_from_slice(&next.to_le_bytes());
    payload.extend(answer_to(2, 1));
    sealed(&server, payload);
    second.await.unwrap().success().unwrap();
    third.await.unwrap().success().unwrap();
}

fn answer_to(id: u64, credits: u16) -> Vec<u8> {
    let mut pdu = Vec::new();
    let header = Header {
        flags: HeaderFlags::RESPONSE,
        credits,
        session_id: SESSION,
        ..Header::request(Command::FLUSH, MessageId(id))
    };
    header.emit(&mut pdu);
    Empty.emit(&mut pdu);
    pdu
}

/// Logs on at a server that ends the authentication as `last` has it, given the session's keys.
async fn logs_on(
    last: impl Fn(&SessionKeys, &mut Vec<u8>) + Send + 'static,
) -> Result<(), ClientError> {
    logs_on_as(Dialect::SMB_3_0, |_| {}, |_| {}, last).await
}

/// The same by another dialect, with other options, and with the last token as `token` has it.
async fn logs_on_as(
    dialect: Dialect,
    options: impl FnOnce(&mut ConnectOptions),
    token: impl Fn(&mut Vec<u8>) + Send + 'static,
    last: impl Fn(&SessionKeys, &mut Vec<u8>) + Send + 'static,
) -> Result<(), ClientError> {
    session_of(dialect, options, token, last).await.map(drop)
}

/// The same; returns the session.
async fn session_of(
    dialect: Dialect,
    options: impl FnOnce(&mut ConnectOptions),
    token: impl Fn(&mut Vec<u8>) + Send + 'static,
    last: impl Fn(&SessionKeys, &mut Vec<u8>) + Send + 'static,
) -> Result<Arc<SessionSecurity>, ClientError> {
    let (connection, _, mut server) =
        connected_as(PATIENCE, |_| SessionSecurity::without_keys(SessionId(0)));
    let mut given = ConnectOptions { dialects: vec![dialect], ..ConnectOptions::default() };
    options(&mut given);
    let options = given;
    let mode = match options.signing {
        Protection::Required => SecurityMode::SIGNING_ENABLED | SecurityMode::SIGNING_REQUIRED,
        Protection::IfRequired => SecurityMode::SIGNING_ENABLED,
    };
    let mut users = UserList::new();
    users.add_password("user", "secret");
    let fresh = Freshness { challenge: [1; 8], now_filetime: 1 };
    let mut acceptor =
        SpnegoAcceptor::new(Arc::new(AcceptorConfig::new("server")), Arc::new(users), fresh);
    tokio::spawn(async move {
        while let Some(pdu) = server.requests.recv().await {
            let request = Header::parse(&pdu).unwrap();
            let mut header = request.response(NtStatus::SUCCESS);
            (header.credits, header.session_id) = (4, SESSION);
            if request.command == Command::NEGOTIATE {
                let capabilities = Capabilities::ENCRYPTION;
                let answer = NegotiateResponse { capabilities, ..hello(dialect) };
                server.say(false, header, |out| answer.emit(out));
                continue;
            }
            let asked = SessionSetupRequest::parse(&pdu).unwrap();
            assert_eq!(asked.security_mode, mode, "as the options say");
            let answer = |token: &[u8], header: Header| {
                let mut pdu = Vec::new();
                header.emit(&mut pdu);
                SessionSetupResponse { flags: SessionFlags::empty(), token }.emit(&mut pdu);
                pdu
            };
            let pdu = match acceptor.step(asked.token) {
                Accept::Continue(token) => {
                    header.status = NtStatus::MORE_PROCESSING_REQUIRED;
                    answer(&token, header)
                }
                Accept::Done(mut accepted) => {
                    let key = accepted.session_key.unwrap();
                    token(&mut accepted.token);
                    let mut pdu = answer(&accepted.token, header);
                    let schedule =
                        if dialect < Dialect::SMB_3_0 { KeySchedule::Smb2 } else { SCHEDULE };
                    last(&schedule.derive(&key, Role::Server), &mut pdu);
                    pdu
                }
                Accept::Denied(reason) => panic!("{reason:?}"),
            };
            server.answers.send(pdu).unwrap();
        }
    });
    super::super::negotiate(&connection, &options, "host").await.unwrap();
    let fresh = ClientFreshness::new(&[2; 24], 1);
    let mut initiator = NtlmInitiator::with_password("user", "", "secret", "host", fresh).unwrap();
    session::set_up(&connection, &mut initiator, &options).await
}

#[tokio::test]
async fn the_last_answer_of_an_authentication_needs_the_signature_of_its_key() {
    logs_on(|keys, pdu| sign(keys, pdu)).await.unwrap();
    let refused = logs_on(|_, _| {}).await;
    assert!(matches!(refused, Err(ClientError::PeerUnproven(VerifyError::PeerUnsigned))));
    let refused = logs_on(|_, pdu| sign(&keys(Role::Server), pdu)).await;
    assert!(matches!(refused, Err(ClientError::PeerUnproven(VerifyError::PeerSignature))));
}

#[tokio::test]
async fn a_client_that_requires_signatures_takes_no_last_answer_of_smb_2_without_one() {
    let requires = |options: &mut ConnectOptions| options.signing = Protection::Required;
    let dialect = Dialect::SMB_2_1;
    logs_on_as(dialect, requires, |_| {}, |keys, pdu| sign(keys, pdu)).await.unwrap();
    let refused = logs_on_as(dialect, requires, |_| {}, |_, _| {}).await;
    assert!(matches!(refused, Err(ClientError::PeerUnproven(VerifyError::PeerUnsigned))));
}

#[tokio::test]
async fn a_last_token_that_was_changed_is_refused_whoever_has_signed_the_answer() {
    // The end of the token is the code over the list of mechanisms.
    let changed = |token: &mut Vec<u8>| *token.last_mut().unwrap() ^= 1;
    for dialect in [Dialect::SMB_2_1, Dialect::SMB_3_0] {
        let refused = logs_on_as(dialect, |_| {}, changed, |keys, pdu| sign(keys, pdu)).await;
        assert!(matches!(refused, Err(ClientError::Authentication(_))), "{dialect:?}: {refused:?}");
    }
}

#[tokio::test]
async fn a_client_that_asks_for_no_signature_believes_what_proves_the_server() {
    let if_required = |options: &mut ConnectOptions| options.signing = Protection::IfRequired;
    // MS-SMB2 §3.2.5.3.1: in 3.x the last answer is signed in any case.
    let refused = logs_on_as(Dialect::SMB_3_0, if_required, |_| {}, |_, _| {}).await;
    assert!(matches!(refused, Err(ClientError::PeerUnproven(VerifyError::PeerUnsigned))));
    // Before, its last token is all there is.
    let dialect = Dialect::SMB_2_1;
    logs_on_as(dialect, if_required, |_| {}, |_, _| {}).await.unwrap();
    let changed = |token: &mut Vec<u8>| *token.last_mut().unwrap() ^= 1;
    let refused = logs_on_as(dialect, if_required, changed, |_, _| {}).await;
    assert!(matches!(refused, Err(ClientError::Authentication(_))), "{refused:?}");
    let refused = logs_on_as(dialect, if_required, Vec::clear, |_, _| {}).await;
    assert!(matches!(refused, Err(ClientError::Authentication(_))), "{refused:?}");
}

#[tokio::test]
async fn a_session_that_signs_takes_no_unsigned_message() {
    let header = Header {
        flags: HeaderFlags::RESPONSE,
        session_id: SESSION,
        ..Header::request(Command::FLUSH, MessageId(0))
    };
    let mut pdu = Vec::new();
    header.emit(&mut pdu);
    Empty.emit(&mut pdu);
    let (connection, ..) = connected(PATIENCE, false);
    let verified = |signs| {
        let keys_here = (keys(Role::Client), connection.lane());
        let session = SessionSecurity::new(SESSION, keys_here, signs, false);
        session.verify(&header, &mut pdu.clone())
    };
    assert_eq!(verified(true), Err(ConnectionError::PeerSignature(VerifyError::PeerUnsigned)));
    assert_eq!(verified(false), Ok(()));
}

#[tokio::test]
async fn a_session_is_encrypted_where_either_side_requires_it() {
    for (required, flags) in [
        (Protection::Required, SessionFlags::empty()),
        (Protection::IfRequired, SessionFlags::ENCRYPT_DATA),
        (Protection::IfRequired, SessionFlags::empty()),
    ] {
        let asks = |options: &mut ConnectOptions| options.encryption = required;
        let says = move |keys: &SessionKeys, pdu: &mut Vec<u8>| {
            // SessionFlags (MS-SMB2 §2.2.6).
            pdu[Header::LEN + 2] = u8::try_from(flags.bits()).unwrap();
            sign(keys, pdu);
        };
        let session = session_of(Dialect::SMB_3_0, asks, |_| {}, says).await.unwrap();
        let is_required = required == Protection::Required || !flags.is_empty();
        assert_eq!(session.encrypts(), is_required, "{required:?} {flags:?}");
    }
}

#[tokio::test]
async fn a_share_that_requires_encryption_is_not_entered_by_a_session_that_cannot_seal() {
    let (connection, session, mut server) = connected_as(PATIENCE, |(_, lane)| {
        let keys = KeySchedule::Smb2.derive(&SessionKey::new(&[3; 16]), Role::Client);
        SessionSecurity::new(SESSION, (keys, lane), true, false)
    });
    server.keys = KeySchedule::Smb2.derive(&SessionKey::new(&[3; 16]), Role::Server);
    tokio::spawn(async move {
        while let Some(pdu) = server.requests.recv().await {
            let request = Header::parse(&pdu).unwrap();
            let mut header = request.response(NtStatus::SUCCESS);
            header.credits = 4;
            match request.command {
                Command::NEGOTIATE => {
                    server.say(false, header, |out| hello(Dialect::SMB_2_1).emit(out));
                }
                Command::TREE_CONNECT => {
                    let flags = ShareFlags::ENCRYPT_DATA;
                    let answer = TreeConnectResponse { flags, ..entered() };
                    server.say(true, header, |out| answer.emit(out));
                }
                _ => {}
            }
        }
    });
    super::super::negotiate(&connection, &ConnectOptions::default(), "host").await.unwrap();
    let refused = Tree::enter(connection, session, "host", "share", false).await;
    assert!(matches!(refused, Err(ClientError::ConfigEncryption)), "{refused:?}");
}
