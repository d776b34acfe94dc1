//! What a leg belongs to: a new session, one more channel of a session, or a session that authenticates again.
//!
//! Spec: MS-SMB2 §3.3.5.5, §3.3.5.5.2.

use std::sync::Arc;

use smb::auth::ntlm::{AcceptorConfig, Freshness};
use smb::crypto::PreauthHash;
use smb::{Header, HeaderFlags, NtStatus};

use crate::connections::{Channel, Logon, Session};
use crate::dispatch::binding::{self, Refusal, Signatory};
use crate::dispatch::connection::{Authentication, Connection, Purpose, Violation};
use crate::limits::SESSIONS_PER_CONNECTION_MAX;
use crate::time::file_time;

// A first leg.
pub(super) fn begin(connection: &mut Connection) -> Result<Result<u64, NtStatus>, Violation> {
    if connection.is_busy_authenticating()
        || connection.link.channel_count() >= SESSIONS_PER_CONNECTION_MAX
    {
        return Ok(Err(NtStatus::INSUFFICIENT_RESOURCES));
    }
    let reserved = connection.core.sessions.reserve(&connection.core.environment.random);
    let reserved = reserved.map_err(Violation::HostRandom)?;
    let (id, preauth) = (reserved.id(), connection.preauth);
    let purpose = Purpose::New(reserved);
    let acceptor = acceptor(connection, &purpose)?;
    connection.authentications.insert(id, Authentication { acceptor, preauth, purpose });
    Ok(Ok(id))
}

// A leg of a connection that joins a session.
pub(super) fn join(
    connection: &mut Connection,
    session: Arc<Session>,
) -> Result<Result<(), NtStatus>, Violation> {
    let id = session.id;
    if connection.authentications.contains_key(&id) {
        return Ok(Ok(()));
    }
    if connection.is_busy_authenticating()
        || connection.link.channel_count() >= SESSIONS_PER_CONNECTION_MAX
    {
        return Ok(Err(NtStatus::INSUFFICIENT_RESOURCES));
    }
    let (preauth, purpose) = (connection.preauth, Purpose::Join(session));
    let acceptor = acceptor(connection, &purpose)?;
    connection.authentications.insert(id, Authentication { acceptor, preauth, purpose });
    Ok(Ok(()))
}

// A later leg, or the first of a session that authenticates again. Who signed is answered signed.
pub(super) fn resume(
    connection: &mut Connection,
    header: &Header,
    pdu: &mut [u8],
    sealed: Option<&Arc<Channel>>,
) -> Result<Result<Option<Signatory>, Refusal>, Violation> {
    let id = header.session_id.0;
    let is_signed = sealed.is_none() && header.flags.contains(HeaderFlags::SIGNED);
    let channel = connection.link.channel(id);
    let key = channel.clone().filter(|channel| is_signed && channel.signing.is_some());
    let key = key.map(Signatory::Channel);
    // MS-SMB2 §3.3.5.2.4: who is there already signs this too, where signing is required. Where it is not,
    // Samba's client signs all but this.
    let must_sign = sealed.is_none()
        && channel.as_ref().is_some_and(|channel| channel.session.signing_required);
    let is_proven = key.as_ref().map_or(!must_sign, |key| key.verify(pdu).is_ok());
    if !is_proven {
        // On a channel of another algorithm its owner may have signed with the session's own key.
        let signer = binding::signer_elsewhere(&connection.core.sessions, header, pdu);
        return Ok(Err(Refusal { status: NtStatus::ACCESS_DENIED, signer }));
    }
    match connection.authentications.get(&id).map(|going| &going.purpose) {
        // MS-SMB2 §3.3.5.5.2: who joins says so, and signs, in each message.
        Some(Purpose::Join(_)) => return Ok(Err(NtStatus::INVALID_PARAMETER.into())),
        Some(Purpose::New(_) | Purpose::Again(_)) => return Ok(Ok(key)),
        None => {}
    }
    let Some(existing) = channel else {
        let signer = binding::signer_elsewhere(&connection.core.sessions, header, pdu);
        return Ok(Err(Refusal { status: NtStatus::USER_SESSION_DELETED, signer }));
    };
    if connection.is_busy_authenticating() {
        return Ok(Err(NtStatus::INSUFFICIENT_RESOURCES.into()));
    }
    let (preauth, purpose) = (PreauthHash::new(), Purpose::Again(existing));
    let acceptor = acceptor(connection, &purpose)?;
    connection.authentications.insert(id, Authentication { acceptor, preauth, purpose });
    Ok(Ok(key))
}

fn acceptor(connection: &Connection, purpose: &Purpose) -> Result<Logon, Violation> {
    let core = &connection.core;
    let (allow_guests, allow_anonymous) = match purpose {
        Purpose::New(_) => (core.files.takes_guests(), core.files.takes_guests()),
        Purpose::Join(_) => (false, false),
        // Whoever it belongs to may take the name back.
        Purpose::Again(channel) => (channel.session.identity.is_guest(), true),
    };
    let mut challenge = [0; 8];
    core.environment.random.fill(&mut challenge).map_err(Violation::HostRandom)?;
    let config = AcceptorConfig {
        computer: COMPUTER_NAME.to_owned(),
        dns: COMPUTER_NAME.to_lowercase(),
        allow_anonymous,
        allow_guests,
    };
    let fresh = Freshness { challenge, now_filetime: file_time(&core.environment.clock).0 };
    let throttle = (Arc::clone(&core.connections.throttle), connection.link.peer.ip());
    let users = core.identity.users();
    let ticket = users.tickets().map(|tickets| tickets.one(&core.environment)).transpose();
    let ticket = ticket.map_err(Violation::HostRandom)?;
    Ok(Logon::new(config, users.store(), fresh, ticket, throttle, core.environment.clock.clone()))
}

/// What NTLM challenges call this server.
const COMPUTER_NAME: &str = "LANDFAST";
