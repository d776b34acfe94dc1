//! Multichannel: a connection becomes one more channel of a session that another one has set up.
//!
//! ```text
//!  BINDING, signed with the session's key      the same user, the same negotiation
//!  ------------------------------------> admit ----------------------------------> join
//!                                          |  no                                    |
//!                                          v                                        v
//!                              refused; the session is as it was        a signing key of its own
//! ```
//!
//! Nothing a stranger sends changes the session it names: it has to sign with a key that only the
//! session's owner knows, and then prove again who it is.
//!
//! Until the connection has a key, the session's signs for it, as far as that can be done safely
//! ([`Signatory`]).
//!
//! Spec: MS-SMB2 §3.3.5.5.2 (which requests), §3.3.5.5.3 (keys).

use std::sync::Arc;

use smb::crypto::{
    ChannelSigner, SessionKeys, SessionSigner, SigningAlgorithm, SigningKey, Turn, VerifyError,
};
use smb::{Header, HeaderFlags, NtStatus};
use tracing::{debug, info, warn};

use crate::access::Identity;
use crate::connections::session::NoChannel;
use crate::connections::{Channel, Link, Session, Sessions};
use crate::service::Core;

/// Whose key signs an answer to SESSION_SETUP.
#[derive(Clone, Debug)]
pub(super) enum Signatory {
    /// The connection's own, from the first success on.
    Channel(Arc<Channel>),
    /// That of the session it wants to join. MS-SMB2 §3.3.4.1.1. Deviates: under AES-GMAC the key
    /// signs only what it can without repeating a nonce: `smb::crypto::SessionSigner`. What stays
    /// unsigned then says nothing that the client takes on trust: a challenge, which the binding proves
    /// genuine by its end, or a refusal.
    Session(Arc<Session>),
}

impl Signatory {
    pub(super) fn verify(&self, pdu: &mut [u8]) -> Result<(), VerifyError> {
        match self {
            Self::Channel(channel) => channel.signing.as_ref().map(|key| key.verify(pdu)),
            Self::Session(session) => session.signing.as_ref().map(|key| key.verify(pdu)),
        }
        .unwrap_or(Err(VerifyError::PeerUnsigned))
    }

    pub(super) fn sign(&self, turn: Turn, pdu: &mut [u8]) {
        let signed = match self {
            Self::Channel(channel) => channel.signing.as_ref().map(|key| key.sign(turn, pdu)),
            Self::Session(session) => session.signing.as_ref().map(|key| key.sign(pdu)),
        };
        if let Some(Err(error)) = signed {
            debug!(%error, "an answer to SESSION_SETUP stays unsigned");
        }
    }
}

/// Why a connection does not join, and who signs that answer.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: NtStatus,
    pub(super) signer: Option<Signatory>,
}

impl From<NtStatus> for Refusal {
    fn from(status: NtStatus) -> Self {
        Self { status, signer: None }
    }
}

/// The session that a request with the BINDING flag may join.
pub(super) fn admit(
    core: &Core,
    link: &Link,
    header: &Header,
    pdu: &mut [u8],
) -> Result<Arc<Session>, Refusal> {
    let agreed = link.agreed.get().ok_or(NtStatus::INVALID_PARAMETER)?;
    let session = core.sessions.get(header.session_id.0).filter(|session| !session.is_closed());
    let session = session.ok_or(NtStatus::USER_SESSION_DELETED)?;
    // An anonymous session has no key to prove anything with.
    if session.signing.is_none() {
        return Err(NtStatus::NOT_SUPPORTED.into());
    }
    let joined = link.channel(session.id);
    let is_joined = joined.is_some();
    let of_session = || Signatory::Session(Arc::clone(&session));
    let key = joined.map_or_else(of_session, Signatory::Channel);
    // Nothing is signed for a peer that has not signed: whoever can name a session is no proof of
    // its key.
    let is_signed = header.flags.contains(HeaderFlags::SIGNED);
    let signer = (is_signed && key.verify(pdu).is_ok()).then_some(key);
    let is_proven = signer.is_some();
    let refuse = |status| Err(Refusal { status, signer });
    // MS-SMB2 §3.3.5.5.2: the session's key is for its own algorithm, and GMAC is not mixed with
    // those before it.
    let gmac = |algorithm| algorithm == SigningAlgorithm::AesGmac;
    match (gmac(session.agreed.signing), gmac(agreed.signing)) {
        (true, false) => return refuse(NtStatus::REQUEST_OUT_OF_SEQUENCE),
        (false, true) => return refuse(NtStatus::NOT_SUPPORTED),
        _ => {}
    }
    if !is_signed {
        return refuse(NtStatus::INVALID_PARAMETER);
    }
    if !is_proven {
        return refuse(NtStatus::ACCESS_DENIED);
    }
    if session.is_expired(&core.environment.clock) {
        return refuse(NtStatus::NETWORK_SESSION_EXPIRED);
    }
    // MS-SMB2 §3.3.5.5: multichannel is 3.0 and later.
    if !agreed.is_smb3() || is_joined {
        return refuse(NtStatus::REQUEST_NOT_ACCEPTED);
    }
    // The keys that seal are the session's, on each of its connections.
    if session.agreed.dialect != agreed.dialect || session.agreed.cipher != agreed.cipher {
        return refuse(NtStatus::INVALID_PARAMETER);
    }
    // A session is of one machine: its leases are known by the machine's GUID.
    if session.agreed.client_guid != agreed.client_guid {
        return refuse(NtStatus::USER_SESSION_DELETED);
    }
    Ok(session)
}

/// Who signs that a session of another connection is not there for this one: its owner signed the
/// question.
pub(super) fn signer_elsewhere(
    sessions: &Sessions,
    header: &Header,
    pdu: &mut [u8],
) -> Option<Signatory> {
    let signer = Signatory::Session(sessions.get(header.session_id.0)?);
    signer.verify(pdu).is_ok().then_some(signer)
}

/// Gives a connection the key that was made on it.
pub(super) fn divide(link: &Link, turn: &Turn, key: SigningKey) -> (ChannelSigner, SessionSigner) {
    let window = link.window();
    // The answer that brings the key is the first it signs.
    key.divide(window.lane(), window.low().min(turn.message_id()))
}

/// Makes the connection a channel of the session, once it is known who is there.
pub(super) fn join(
    link: &Arc<Link>,
    session: Arc<Session>,
    identity: &Identity,
    keys: Option<SessionKeys>,
    turn: &Turn,
) -> Result<Arc<Channel>, NtStatus> {
    let keys = keys.filter(|_| session.identity == *identity).ok_or_else(|| {
        warn!(peer = %link.peer, session = session.id, "another user may not join a session");
        NtStatus::ACCESS_DENIED
    })?;
    if !link.count_for(&session.account) {
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    }
    let (signing, _) = divide(link, turn, keys.signing);
    let channel = Arc::new(Channel { session, signing: Some(signing) });
    channel.session.join(link, Arc::clone(&channel)).map_err(|error| match error {
        NoChannel::Ended => NtStatus::USER_SESSION_DELETED,
        NoChannel::TooMany => NtStatus::INSUFFICIENT_RESOURCES,
    })?;
    info!(peer = %link.peer, session = channel.session.id, "joined a session");
    Ok(channel)
}
