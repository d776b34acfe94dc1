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

mod first_leg;
mod leg;
mod outcome;

use std::sync::Arc;
use std::time::Duration;

use smb::auth::Accept;
use smb::crypto::Turn;
use smb::{Header, NtStatus, SessionFlags, SessionId};
use smb::{SessionSetupRequest, SessionSetupResponse};
use tracing::warn;

use self::first_leg::{begin, join, resume};
use self::leg::{Ending, Leg, Progress};
use self::outcome::conclude;
use super::binding::{self, Signatory};
use super::connection::{Connection, Violation};
use super::frame::{self, Terms};
use crate::connections::work::Work;
use crate::connections::{Channel, Decision, Later, Link};
use crate::limits::UNAUTHENTICATED_FRAME_MAX;
use crate::panics::Owed;
use crate::service::Core;

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

/// When a logon that waits for a session it replaces is worth a line in the log.
const SETTLING_IS_LONG: Duration = Duration::from_secs(10);
