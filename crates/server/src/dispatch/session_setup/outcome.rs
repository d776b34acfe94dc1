//! The end of an authentication: a session, one more channel of a session, or a refusal.
//!
//! Spec: MS-SMB2 §3.3.5.5.3.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smb::auth::{Accept, Accepted, DenyReason, IdentityKind};
use smb::crypto::{ChannelSigner, KeySchedule, PreauthHash, Role, SessionKey, SessionKeys, Turn};
use smb::negotiate::{Dialect, SecurityMode};
use smb::{NtStatus, SessionFlags};
use tracing::{debug, info, warn};

use super::leg::{Ending, Leg};
use crate::access::Identity;
use crate::config::SigningPolicy;
use crate::connections::session::SessionParts;
use crate::connections::work::Work;
use crate::connections::{Agreed, Channel, Link, Session};
use crate::dispatch::binding::{self, Signatory};
use crate::dispatch::connection::{Authentication, Purpose};
use crate::limits::{GUESTS_PER_CONNECTION_MAX, USER_NAME_MAX};
use crate::service::Core;
use crate::state::Resource;

/// Where an authentication takes place.
type At<'a> = (&'a Arc<Core>, &'a Arc<Link>);

// What an authentication has come to.
pub(super) fn conclude((core, link): At<'_>, ending: Ending, accept: Accept, turn: &Turn) -> Leg {
    let Ending { session_id, going, security_mode, previous, signer } = ending;
    let reason = match accept {
        Accept::Done(accepted) => {
            let leg =
                finish((core, link), (session_id, turn), going, accepted, security_mode, previous);
            // A new key signs its own first answer, asked or not: MS-SMB2 §3.3.5.5.3.
            let signer = leg.signer.clone().or(signer);
            return leg.signed_by(signer);
        }
        Accept::Denied(reason) => reason,
        Accept::Continue(_) => DenyReason::PeerOutOfSequence,
    };
    // MS-SMB2 §3.3.5.5.3: who fails to prove it again is out. Nobody has looked at one too many.
    let is_failure = reason != DenyReason::PeerTooManyFailures;
    if is_failure && matches!(going.purpose, Purpose::Again(_)) {
        link.remove_channel(session_id);
        core.dissolve_session(session_id);
    }
    core.connections.counters.logons_failed.fetch_add(1, Ordering::Relaxed);
    warn!(peer = %link.peer, user = going.acceptor.name(), %reason, "logon refused");
    Leg::refused(reason.status(), session_id).signed_by(signer)
}

fn finish(
    (core, link): At<'_>,
    (id, turn): (u64, &Turn),
    going: Authentication,
    accepted: Accepted,
    client_mode: SecurityMode,
    previous: u64,
) -> Leg {
    let Some(agreed) = link.agreed.get() else {
        return Leg::refused(NtStatus::INVALID_PARAMETER, id);
    };
    let kind = accepted.identity.kind;
    // What a name costs is kept as long as anything of the session is.
    if accepted.identity.user.chars().count() > USER_NAME_MAX {
        warn!(peer = %link.peer, "logon refused: the user's name is too long");
        return Leg::refused(NtStatus::LOGON_FAILURE, id);
    }
    let identity = match kind {
        IdentityKind::User => Identity::user(&accepted.identity.user),
        IdentityKind::Guest | IdentityKind::Anonymous => {
            Identity::Guest { client: agreed.client_guid }
        }
    };
    let flags_of = |session: &Session| {
        let mut flags = SessionFlags::empty();
        flags.set(SessionFlags::GUEST, kind == IdentityKind::Guest);
        flags.set(SessionFlags::NULL, kind == IdentityKind::Anonymous);
        flags.set(SessionFlags::ENCRYPT_DATA, session.encrypt_required);
        flags
    };
    let leg = |channel: &Arc<Channel>, token| Leg {
        status: NtStatus::SUCCESS,
        session_id: id,
        flags: flags_of(&channel.session),
        token,
        signer: channel.signing.is_some().then(|| Signatory::Channel(Arc::clone(channel))),
        continues: false,
        replaces: None,
    };
    let _reserved = match going.purpose {
        Purpose::New(reserved) => reserved,
        Purpose::Again(channel) => {
            let is_unnamed = match authenticate_again((core, link), &channel, identity, &accepted) {
                Ok(is_unnamed) => is_unnamed,
                Err(status) => return Leg::refused(status, id),
            };
            let leg = leg(&channel, accepted.token);
            // A client that says no name has proved nothing: it is answered as it asked.
            return if is_unnamed { leg.signed_by(None) } else { leg };
        }
        Purpose::Join(session) => {
            let keys = accepted.session_key.as_ref().map(|key| derive(agreed, going.preauth, key));
            return match binding::join(link, session, &identity, keys, turn) {
                Ok(channel) => leg(&channel, accepted.token),
                Err(status) => Leg::refused(status, id),
            };
        }
    };
    let keys = accepted.session_key.as_ref().map(|key| derive(agreed, going.preauth, key));
    let (session, of_channel) = match make((core, link), (id, turn), identity, keys, client_mode) {
        Ok(made) => made,
        Err(status) => return Leg::refused(status, id),
    };
    session.set_expiry(accepted.expires);
    if !core.sessions.add(Arc::clone(&session)) {
        return Leg::refused(NtStatus::INSUFFICIENT_RESOURCES, id);
    }
    let (user, dialect) = (&accepted.identity.user, agreed.dialect);
    info!(peer = %link.peer, user, ?kind, %dialect, "logged on");
    let channel = Arc::new(Channel { session, signing: of_channel });
    if channel.session.join(link, Arc::clone(&channel)).is_err() {
        return Leg::refused(NtStatus::USER_SESSION_DELETED, id);
    }
    // Whoever takes a user away ends the sessions there are; this one may not have been yet.
    if !channel.session.identity.is_welcome_to(&core.identity.users()) {
        core.dissolve_session(id);
        return Leg::refused(NtStatus::LOGON_FAILURE, id);
    }
    let replaces = end_previous(core, previous, &channel.session);
    Leg { replaces, ..leg(&channel, accepted.token) }
}

// MS-SMB2 §3.3.5.5.3: the keys stay; another user would inherit them. Who says no name keeps what is open and gets nothing
// new, until it has said the old one again: true for who says none.
fn authenticate_again(
    (core, link): At<'_>,
    channel: &Channel,
    identity: Identity,
    accepted: &Accepted,
) -> Result<bool, NtStatus> {
    let id = channel.session.id;
    let of_guest = channel.session.identity.is_guest();
    let is_unnamed = accepted.identity.kind == IdentityKind::Anonymous && !of_guest;
    if channel.session.identity != identity && !is_unnamed {
        link.remove_channel(id);
        core.dissolve_session(id);
        return Err(NtStatus::ACCESS_DENIED);
    }
    channel.session.set_unnamed(is_unnamed);
    if !is_unnamed {
        channel.session.set_expiry(accepted.expires);
    }
    debug!(peer = %link.peer, session = id, is_unnamed, "authenticated again");
    Ok(is_unnamed)
}

// The session that a logon makes, and the key that signs its answers on this connection.
fn make(
    (core, link): At<'_>,
    (id, turn): (u64, &Turn),
    identity: Identity,
    keys: Option<SessionKeys>,
    client_mode: SecurityMode,
) -> Result<(Arc<Session>, Option<ChannelSigner>), NtStatus> {
    let agreed = link.agreed.get().ok_or(NtStatus::INVALID_PARAMETER)?;
    if identity.is_guest() && link.guest_count() >= GUESTS_PER_CONNECTION_MAX {
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    }
    let can_seal = keys.as_ref().is_some_and(|keys| keys.sealing.is_some());
    if core.identity.encrypt_required && !can_seal {
        warn!(peer = %link.peer, "logon refused: this server requires encryption");
        return Err(NtStatus::ACCESS_DENIED);
    }
    let signing_required = keys.is_some()
        && (core.identity.signing == SigningPolicy::Required
            || client_mode.contains(SecurityMode::SIGNING_REQUIRED));
    let (signing, sealing, opening) = match keys {
        Some(keys) => (Some(keys.signing), keys.sealing, keys.opening),
        None => (None, None, None),
    };
    let account = core.connections.accounts.of(&identity);
    let counted = identity.is_guest() || link.count_for(&account);
    let Some(place) = account.try_take(Resource::Sessions, 1).filter(|_| counted) else {
        warn!(peer = %link.peer, "logon refused: this user has too many sessions or connections");
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    };
    let (of_channel, signing) = signing.map(|key| binding::divide(link, turn, key)).unzip();
    let session = Arc::new(Session::new(SessionParts {
        id,
        identity,
        account,
        place: Some(place),
        agreed: agreed.clone(),
        signing,
        sealing,
        opening,
        signing_required,
        encrypt_required: core.identity.encrypt_required,
        since: core.now(),
    }));
    Ok((session, of_channel))
}

// MS-SMB2 §3.3.5.5.3: which keys there are follows from the dialect.
fn derive(agreed: &Agreed, preauth: PreauthHash, key: &SessionKey) -> SessionKeys {
    let (signing, cipher) = (agreed.signing, agreed.cipher);
    let schedule = match agreed.dialect {
        Dialect::SMB_3_1_1 => KeySchedule::Smb311 { preauth, signing, cipher },
        dialect if dialect >= Dialect::SMB_3_0 => {
            KeySchedule::Smb30 { encryption: cipher.is_some() }
        }
        _ => KeySchedule::Smb2,
    };
    schedule.derive(key, Role::Server)
}

// MS-SMB2 §3.3.5.5.3: a client that lost its connection ends what it left behind, if it is the
// same user. It may rely on it: nothing of that happens, or is in its way, once it is answered.
fn end_previous(core: &Arc<Core>, previous: u64, new: &Session) -> Option<Arc<Work>> {
    if previous == 0 || previous == new.id {
        return None;
    }
    core.replace_session(previous, &new.identity)
}
