//! What a client takes for the server's: signatures of answers, of the end of an authentication, and frames of the
//! session that they name.

use smb::auth::ntlm::{AcceptorConfig, Freshness};
use smb::auth::{Accept, Acceptor as _, ClientFreshness, NtlmInitiator, SpnegoAcceptor, UserList};
use smb::{SessionFlags, SessionSetupRequest, SessionSetupResponse};

use super::*;
use crate::error::ClientError;
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
    let other = SessionId(SESSION.0 ^ 1);
    assert_eq!(pending.await.unwrap_err(), ConnectionError::PeerSession(other));
}

/// Logs on at a server that ends the authentication as `last` has it, given the session's keys.
async fn logs_on(
    last: impl Fn(&SessionKeys, &mut Vec<u8>) + Send + 'static,
) -> Result<(), ClientError> {
    let (connection, _, mut server) =
        connected_as(PATIENCE, |_| SessionSecurity::without_keys(SessionId(0)));
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
                server.say(false, header, |out| hello(Dialect::SMB_3_0).emit(out));
                continue;
            }
            let asked = SessionSetupRequest::parse(&pdu).unwrap();
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
                Accept::Done(accepted) => {
                    let key = accepted.session_key.unwrap();
                    let mut pdu = answer(&accepted.token, header);
                    last(&SCHEDULE.derive(&key, Role::Server), &mut pdu);
                    pdu
                }
                Accept::Denied(reason) => panic!("{reason:?}"),
            };
            server.answers.send(pdu).unwrap();
        }
    });
    let options = ConnectOptions::default();
    super::super::negotiate(&connection, &options, "host").await.unwrap();
    let fresh = ClientFreshness::new(&[2; 24], 1);
    let mut initiator = NtlmInitiator::with_password("user", "", "secret", "host", fresh).unwrap();
    session::set_up(&connection, &mut initiator, &options).await.map(drop)
}

#[tokio::test]
async fn the_last_answer_of_an_authentication_needs_the_signature_of_its_key() {
    logs_on(|keys, pdu| sign(keys, pdu)).await.unwrap();
    let refused = logs_on(|_, _| {}).await;
    assert!(matches!(refused, Err(ClientError::PeerUnproven(VerifyError::PeerUnsigned))));
    let refused = logs_on(|_, pdu| sign(&keys(Role::Server), pdu)).await;
    assert!(matches!(refused, Err(ClientError::PeerUnproven(VerifyError::PeerSignature))));
}
