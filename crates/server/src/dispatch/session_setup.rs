//! SESSION_SETUP: authentication, keys, and at the end of it a session, or one more channel of one.
//!
//! ```text
//!  no session id ------> a new session
//!  a session of ours --> the same user proves it again; the keys stay
//!  BINDING ------------> this connection joins a session of another one (`binding`)
//! ```
//!
//! A logon that takes the place of a session its client has lost is answered when that session is
//! settled: nothing it was asked for changes a file from then on, and nothing it had open is there.
//!
//! Where a share takes guests, who says the name of no account, or none, gets a session without keys. A
//! wrong password for an account is refused all the same.
//!
//! Who guesses passwords is answered later (`connections/throttle.rs`): what comes of such an attempt happens when
//! its time has come, in a task of its own, and other requests of the connection go on meanwhile.
//!
//! Spec: MS-SMB2 §3.3.5.5.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smb::NtStatus;
use smb::auth::ntlm::{AcceptorConfig, Freshness};
use smb::auth::{Accept, Accepted, DenyReason, IdentityKind};
use smb::crypto::{ChannelSigner, KeySchedule, PreauthHash, Role, SessionKey, SessionKeys, Turn};
use smb::negotiate::{Dialect, SecurityMode};
use smb::{Header, HeaderFlags, SessionId};
use smb::{SessionFlags, SessionSetupRequest, SessionSetupResponse};
use tracing::{debug, info, warn};

use super::binding::{self, Refusal, Signatory};
use super::connection::{Authentication, Connection, Purpose, Violation};
use super::frame::{self, Terms};
use crate::access::Identity;
use crate::config::SigningPolicy;
use crate::connections::session::SessionParts;
use crate::connections::work::Work;
use crate::connections::{Agreed, Channel, Decision, Later, Link, Logon, Session};
use crate::limits::{
    GUESTS_PER_CONNECTION_MAX, SESSIONS_PER_CONNECTION_MAX, UNAUTHENTICATED_FRAME_MAX,
    USER_NAME_MAX,
};
use crate::panics::Owed;
use crate::service::Core;
use crate::state::Resource;
use crate::time::file_time;

/// What one leg came to.
struct Leg {
    status: NtStatus,
    session_id: u64,
    flags: SessionFlags,
    token: Vec<u8>,
    /// Signs this answer.
    signer: Option<Signatory>,
    /// The preauthentication hash of an authentication that goes on.
    continues: bool,
    /// The answer waits until this is settled.
    replaces: Option<Arc<Work>>,
}

impl Leg {
    fn refused(status: NtStatus, session_id: u64) -> Self {
        let (flags, token) = (SessionFlags::empty(), Vec::new());
        Self { status, session_id, flags, token, signer: None, continues: false, replaces: None }
    }

    fn signed_by(self, signer: Option<Signatory>) -> Self {
        Self { signer, ..self }
    }
}

/// What comes of a request.
enum Progress {
    Answer(Leg),
    /// The answer is held back.
    Later(Box<(Later, Ending)>),
}

impl From<Leg> for Progress {
    fn from(leg: Leg) -> Self {
        Self::Answer(leg)
    }
}

/// An authentication whose last token has come.
struct Ending {
    session_id: u64,
    going: Authentication,
    security_mode: SecurityMode,
    previous: u64,
    /// Until there is a key of the connection's own.
    signer: Option<Signatory>,
}

/// Answers SESSION_SETUP.
pub(crate) fn handle(
    connection: &mut Connection,
    (header, turn): (&Header, Turn),
    pdu: &mut [u8],
    sealed: Option<&Arc<Channel>>,
    out: &mut Vec<u8>,
) -> Result<(), Violation> {
    let leg = match step(connection, (header, &turn), pdu, sealed)? {
        Progress::Answer(leg) => leg,
        Progress::Later(later) => {
            let counted = connection.begin_holding();
            let (core, link) = (Arc::clone(&connection.core), Arc::clone(&connection.link));
            let runtime = core.runtime.clone();
            let owed = Owed::over(&link);
            let work = answer_later((core, link), (*header, turn), sealed.cloned(), *later);
            drop(runtime.spawn(async move {
                let _owed = owed;
                work.await;
                drop(counted);
            }));
            return Ok(());
        }
    };
    let start = out.len();
    let at = emit(&connection.link, (header, turn), sealed, &leg, out);
    // MS-SMB2 §3.3.5.5.3: the answer as it leaves, signature included.
    if leg.continues
        && let Some(going) = connection.authentications.get_mut(&leg.session_id)
    {
        going.preauth.update(&out[at..]);
    }
    frame::end(out, start, sealed.map(|channel| &**channel))?;
    if let Some(replaced) = leg.replaces {
        let link = Arc::clone(&connection.link);
        let frame = out.split_off(start);
        let owed = Owed::over(&link);
        drop(connection.core.runtime.spawn(async move {
            let _owed = owed;
            answer_when_settled(link, frame, replaced).await;
        }));
    } else if leg.status == NtStatus::SUCCESS {
        note_answered(&connection.link);
    }
    Ok(())
}

// From now on its client can be told of its leases over the connection: what is queued leaves behind
// the answer.
fn note_answered(link: &Arc<Link>) {
    link.enlist();
    if link.is_gone() {
        link.delist();
    }
}

// Appends the answer, and says where its header stands.
fn emit(
    link: &Link,
    (header, turn): (&Header, Turn),
    sealed: Option<&Arc<Channel>>,
    leg: &Leg,
    out: &mut Vec<u8>,
) -> usize {
    frame::begin(out, sealed.is_some());
    let at = frame::begin_pdu(out, header);
    let is_error = leg.status.is_error() && leg.status != NtStatus::MORE_PROCESSING_REQUIRED;
    let outcome = if is_error {
        Err(leg.status)
    } else {
        SessionSetupResponse { flags: leg.flags, token: &leg.token }.emit(out);
        Ok(leg.status)
    };
    let credits = link.window().grant(header.credits);
    let terms = Terms { credits, session_id: SessionId(leg.session_id), route: None };
    frame::end_pdu(out, at, header, outcome, terms);
    if let Some(signer) = leg.signer.as_ref().filter(|_| sealed.is_none()) {
        signer.sign(turn, &mut out[at..]);
    }
    at
}

// The wait is part of what guessing costs: it counts as failed though the connection ends meanwhile.
async fn answer_later(
    (core, link): (Arc<Core>, Arc<Link>),
    (header, turn): (Header, Turn),
    sealed: Option<Arc<Channel>>,
    (later, ending): (Later, Ending),
) {
    tokio::time::sleep_until(later.answer_at.into()).await;
    if link.is_gone() {
        return;
    }
    let id = ending.session_id;
    let leg = conclude((&core, &link), ending, later.open(), &turn);
    let mut out = Vec::new();
    emit(&link, (&header, turn), sealed.as_ref(), &leg, &mut out);
    match (frame::end(&mut out, 0, sealed.as_deref()), leg.replaces) {
        (Err(_), _) => link.close(),
        (Ok(()), Some(replaced)) => answer_when_settled(Arc::clone(&link), out, replaced).await,
        (Ok(()), None) => {
            link.deliver(out);
            if leg.status == NtStatus::SUCCESS {
                note_answered(&link);
            }
        }
    }
    // It has ended meanwhile, perhaps before there was a session to end with it.
    if link.is_gone() {
        let session = link.remove_channel(id).map(|channel| Arc::clone(&channel.session));
        if session.is_some_and(|session| session.leave(&link)) {
            core.dissolve_session(id);
        }
    }
}

// However long it takes: who is answered relies on it.
async fn answer_when_settled(link: Arc<Link>, frame: Vec<u8>, replaced: Arc<Work>) {
    if tokio::time::timeout(SETTLING_IS_LONG, replaced.settled()).await.is_err() {
        warn!(peer = %link.peer, "a logon waits: the session it replaces is still busy with a file");
        replaced.settled().await;
    }
    link.deliver(frame);
    note_answered(&link);
}

fn step(
    connection: &mut Connection,
    (header, turn): (&Header, &Turn),
    pdu: &mut [u8],
    sealed: Option<&Arc<Channel>>,
) -> Result<Progress, Violation> {
    let session_id = header.session_id.0;
    // MS-SMB2 §3.3.5.2.1.1: a seal proves the session of its key, and no other.
    if sealed.is_some_and(|channel| channel.session.id != session_id) {
        return Ok(Leg::refused(NtStatus::ACCESS_DENIED, session_id).into());
    }
    // As long as a stranger's may be: its signature and its hash are computed here.
    if pdu.len() > UNAUTHENTICATED_FRAME_MAX {
        return Ok(Leg::refused(NtStatus::INVALID_PARAMETER, session_id).into());
    }
    let request = match SessionSetupRequest::parse(pdu) {
        Ok(request) => request,
        Err(error) => return Ok(Leg::refused(error.status(), session_id).into()),
    };
    let (security_mode, previous) = (request.security_mode, request.previous_session_id.0);
    let (is_binding, token) = (request.binding, request.token.to_vec());
    // Until there is a key of this connection's own, the session's signs for it.
    let mut signer = None;
    let session_id = if is_binding {
        let session = match binding::admit(&connection.core, &connection.link, header, pdu) {
            Ok(session) => session,
            Err(refusal) => {
                let leg = Leg::refused(refusal.status, session_id);
                return Ok(leg.signed_by(refusal.signer).into());
            }
        };
        signer = Some(Signatory::Session(Arc::clone(&session)));
        if let Err(status) = join(connection, session)? {
            return Ok(Leg::refused(status, session_id).signed_by(signer).into());
        }
        session_id
    } else if session_id == 0 {
        match begin(connection)? {
            Ok(id) => id,
            Err(status) => return Ok(Leg::refused(status, 0).into()),
        }
    } else {
        match resume(connection, header, pdu, sealed)? {
            Ok(key) => signer = key,
            Err(refusal) => {
                let leg = Leg::refused(refusal.status, session_id);
                return Ok(leg.signed_by(refusal.signer).into());
            }
        }
        session_id
    };
    let going = connection.authentications.get_mut(&session_id).expect("begun or resumed above");
    going.preauth.update(pdu);
    let decision = match going.acceptor.step(&token) {
        Decision::Now(Accept::Continue(token)) => {
            let leg = Leg {
                status: NtStatus::MORE_PROCESSING_REQUIRED,
                session_id,
                flags: SessionFlags::empty(),
                token,
                signer,
                continues: true,
                replaces: None,
            };
            return Ok(leg.into());
        }
        last => last,
    };
    let going = connection.authentications.remove(&session_id).expect("found above");
    let ending = Ending { session_id, going, security_mode, previous, signer };
    Ok(match decision {
        Decision::Now(accept) => {
            conclude((&connection.core, &connection.link), ending, accept, turn).into()
        }
        Decision::Later(later) => Progress::Later(Box::new((later, ending))),
    })
}

/// Where an authentication takes place.
type At<'a> = (&'a Arc<Core>, &'a Arc<Link>);

// What an authentication has come to.
fn conclude((core, link): At<'_>, ending: Ending, accept: Accept, turn: &Turn) -> Leg {
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

// A first leg.
fn begin(connection: &mut Connection) -> Result<Result<u64, NtStatus>, Violation> {
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
fn join(
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
fn resume(
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

/// When a logon that waits for a session it replaces is worth a line in the log.
const SETTLING_IS_LONG: Duration = Duration::from_secs(10);
/// What NTLM challenges call this server.
const COMPUTER_NAME: &str = "LANDFAST";
