//! SESSION_SETUP from the client's side.
//!
//! ```text
//!   Initiator --token--> SESSION_SETUP --> MORE_PROCESSING --token--> Initiator ...
//!                                     \--> SUCCESS: keys, signature of the answer, flags
//! ```
//!
//! Spec: MS-SMB2 §3.2.4.2.3, §3.2.5.3.

use std::sync::Arc;

use smb::auth::{Initiate, Initiator};
use smb::crypto::{KeySchedule, Role};
use smb::negotiate::{Capabilities, Dialect, SecurityMode};
use smb::{Command, NtStatus, SessionFlags, SessionId, SessionSetupRequest, SessionSetupResponse};

use crate::connection::{Connection, Negotiated, Request, Response, SessionSecurity};
use crate::error::ClientError;
use crate::options::{ConnectOptions, Protection};

/// Authenticates and gives the session's keys to the connection.
pub(crate) async fn set_up(
    connection: &Connection,
    initiator: &mut dyn Initiator,
    options: &ConnectOptions,
) -> Result<Arc<SessionSecurity>, ClientError> {
    let negotiated = connection.negotiated();
    let mut preauth = negotiated.preauth();
    let mut session = SessionSecurity::without_keys(SessionId(0));
    let mut from_server: Option<Vec<u8>> = None;
    loop {
        let Initiate::Send(token) = initiator.step(from_server.as_deref())? else {
            // The server asks for more although the authentication has no more to send.
            return Err(ClientError::PeerNegotiation);
        };
        let request = SessionSetupRequest {
            binding: false,
            security_mode: security_mode(options),
            capabilities: Capabilities::empty(),
            previous_session_id: options.previous_session.unwrap_or(SessionId(0)),
            token: &token,
        };
        let target = Request::new(Command::SESSION_SETUP).session(&session);
        let (sent, response) =
            connection.exchange_recorded(target, |out| request.emit(out)).await?;
        preauth.update(&sent);
        let response = response.accept(&[NtStatus::MORE_PROCESSING_REQUIRED])?;
        let answer = response.parse(SessionSetupResponse::parse)?;
        let id = response.header().session_id;
        if response.header().status == NtStatus::SUCCESS {
            let schedule = schedule(negotiated, preauth);
            return finish(connection, initiator, options, &response, &answer, schedule);
        }
        preauth.update(response.pdu());
        session = SessionSecurity::without_keys(id);
        from_server = Some(answer.token.to_vec());
    }
}

fn finish(
    connection: &Connection,
    initiator: &mut dyn Initiator,
    options: &ConnectOptions,
    response: &Response,
    answer: &SessionSetupResponse<'_>,
    schedule: KeySchedule,
) -> Result<Arc<SessionSecurity>, ClientError> {
    let id = response.header().session_id;
    if answer.flags.intersects(SessionFlags::GUEST | SessionFlags::NULL) {
        if options.encryption == Protection::Required {
            return Err(ClientError::ConfigEncryption);
        }
        if options.signing == Protection::Required {
            return Err(ClientError::ConfigSigning);
        }
        let session = Arc::new(SessionSecurity::without_keys(id));
        connection.add_session(Arc::clone(&session));
        return Ok(session);
    }
    let negotiated = connection.negotiated();
    let sign = options.signing == Protection::Required || negotiated.server_requires_signing;
    let is_signed = negotiated.dialect >= Dialect::SMB_3_0 || sign;
    // Where no signature proves the server, its last token must.
    if !answer.token.is_empty() || !is_signed {
        initiator.step(Some(answer.token))?;
    }
    let key = initiator.session_key().ok_or(ClientError::ConfigSigning)?;
    let keys = schedule.derive(&key, Role::Client);
    let encrypt = options.encryption == Protection::Required
        || answer.flags.contains(SessionFlags::ENCRYPT_DATA);
    if encrypt && keys.sealing.is_none() {
        return Err(ClientError::ConfigEncryption);
    }
    let session = SessionSecurity::new(id, (keys, connection.lane()), sign, encrypt);
    // MS-SMB2 §3.2.5.3.1: in 3.x the last answer is signed in any case. With 3.1.1 its signature
    // proves that the negotiation was not changed.
    if is_signed {
        session.verify_final(response.pdu()).map_err(ClientError::PeerUnproven)?;
    }
    let session = Arc::new(session);
    connection.add_session(Arc::clone(&session));
    Ok(session)
}

fn schedule(negotiated: &Negotiated, preauth: smb::crypto::PreauthHash) -> KeySchedule {
    match negotiated.dialect {
        Dialect::SMB_2_0_2 | Dialect::SMB_2_1 => KeySchedule::Smb2,
        Dialect::SMB_3_1_1 => {
            KeySchedule::Smb311 { preauth, signing: negotiated.signing, cipher: negotiated.cipher }
        }
        _ => KeySchedule::Smb30 { encryption: negotiated.cipher.is_some() },
    }
}

fn security_mode(options: &ConnectOptions) -> SecurityMode {
    match options.signing {
        Protection::Required => SecurityMode::SIGNING_ENABLED | SecurityMode::SIGNING_REQUIRED,
        Protection::IfRequired => SecurityMode::SIGNING_ENABLED,
    }
}
