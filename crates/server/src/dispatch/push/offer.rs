//! The create context: whether this open gets push, and the reason if not.
//!
//! Spec: docs/push-mode.md, "Create context" and "Security rules".

use std::net::SocketAddr;
use std::sync::Arc;

use pmem::DurabilityClass;
use smb::create::CreateResponseContext;
use smb::negotiate::Dialect;
use smb::push::{
    Capabilities, Durability, PushAddress, PushGrant, PushRefusal, PushRequest, PushResponse,
    PushToken, Refusal, Rights, TOKEN_LEN,
};
use tracing::{debug, warn};
use tree::Share;

use crate::access::{self, Look};
use crate::connections::Session;
use crate::dispatch::call::Call;
use crate::dispatch::create::PushWish;
use crate::push::Push;
use crate::push::mapping::REGION_LENGTH_MAX;
use crate::push::recall::milliseconds;
use crate::state::Open;
use crate::state::caching::Caching;
use crate::state::open_push::OpenPush;

/// Answers the push context of a CREATE. A refusal never fails the CREATE.
pub(crate) fn offer(
    call: &Call,
    open: &Arc<Open>,
    wish: &PushWish,
    caching: Caching,
) -> CreateResponseContext<'static> {
    let answer = match wish {
        PushWish::UnknownVersion => Err(Refusal::VERSION),
        PushWish::Asked(asked) => grant(call, open, asked, caching),
    };
    CreateResponseContext::Push(match answer {
        Ok(grant) => PushResponse::Granted(grant),
        Err(reason) => {
            debug!(%reason, "push refused");
            PushResponse::Refused(refused(open, reason))
        }
    })
}

/// A refusal that names the class of the file: a client that works by messages then knows what its flushes are worth.
fn refused(open: &Open, reason: Refusal) -> PushRefusal {
    let Some(share) = open.tree.share().filter(|_| open.entry.has_bytes()) else {
        return reason.into();
    };
    let class = open.entry.class();
    let is_emulated = class == DurabilityClass::Volatile && can_commit(share, class);
    PushRefusal { reason, durability: durability(class), is_emulated }
}

fn grant(
    call: &Call,
    open: &Arc<Open>,
    asked: &PushRequest,
    caching: Caching,
) -> Result<PushGrant, Refusal> {
    let push = call.push();
    if !push.policy().enabled {
        return Err(Refusal::DISABLED);
    }
    let listener = push.rdma_address().ok_or(Refusal::NO_LISTENER)?;
    check_session(call, open)?;
    let share = open.tree.share().ok_or(Refusal::NOT_A_FILE)?;
    if !open.entry.has_bytes() {
        return Err(Refusal::NOT_A_FILE);
    }
    // The control codes carry both access bits.
    access::admit(open, Look::Push).map_err(|_| Refusal::ACCESS)?;
    if caching != RWH {
        return Err(Refusal::LEASE_REQUIRED);
    }
    // The bytes may be of a kind that is read and written by messages only.
    let mappable = open.entry.body().map(|body| body.mappable().is_ok());
    if mappable != Ok(true) {
        return Err(Refusal::SHARE_NOT_CAPABLE);
    }
    // An RDMA device reaches only memory, and a file that is written by system calls has none.
    let reaches_files = push.registrar().is_some_and(|registrar| registrar.reaches_files());
    let class = open.entry.class();
    if class == DurabilityClass::Storage && !reaches_files {
        return Err(Refusal::SHARE_NOT_CAPABLE);
    }
    let durability = durability(class);
    let commits = can_commit(share, class);
    let emulated = class == DurabilityClass::Volatile && commits;
    if durability < asked.durability && !(emulated && asked.accept_emulated) {
        return Err(Refusal::DURABILITY);
    }
    let rights = asked.rights & KNOWN_RIGHTS;
    let address = match listener.ip().is_unspecified() {
        true => SocketAddr::new(call.link.local.ip(), listener.port()),
        false => listener,
    };
    let mut grant = PushGrant {
        capabilities: capabilities(emulated),
        durability,
        store_granularity: granularity(class),
        regions_max: push.policy().regions_per_open_max,
        region_length_max: REGION_LENGTH_MAX,
        rights,
        token_lifetime_ms: milliseconds(push.policy().token_lifetime),
        token: PushToken::new([0; TOKEN_LEN]),
        recall_grace_ms: milliseconds(push.policy().grace),
        addresses: vec![address],
        // A client of another host would look for a name that only this one has.
        same_host: push.same_host().filter(|_| call.link.peer.ip() == call.link.local.ip()),
    };
    grant.token = issue(call, push, &grant.places())?;
    let _ = open.push.set(Arc::new(OpenPush::new(rights)));
    Ok(grant)
}

/// A token that opens a push connection to one of the places.
fn issue(call: &Call, push: &Push, places: &[PushAddress]) -> Result<PushToken, Refusal> {
    let mut token = [0; TOKEN_LEN];
    if let Err(error) = call.core.environment.random.fill(&mut token) {
        warn!(%error, "push refused: no random numbers");
        return Err(Refusal::RESOURCES);
    }
    let session = call.session();
    let bearer = (session.id, session.identity.clone());
    push.issue(token, places, bearer).ok_or(Refusal::RESOURCES)
}

// Pushed bytes are neither signed nor sealed: push is only for sessions whose user is proven, and
// not for clients that were promised encryption.
fn check_session(call: &Call, open: &Open) -> Result<(), Refusal> {
    let session = call.session();
    if call.link.dialect() < Dialect::SMB_3_0 {
        return Err(Refusal::DIALECT);
    }
    if session.identity.is_guest() {
        return Err(Refusal::GUEST);
    }
    if is_encryption_promised(session, open) {
        return Err(Refusal::ENCRYPTION_REQUIRED);
    }
    let is_signed = call.header.flags.contains(smb::HeaderFlags::SIGNED);
    if call.channel.signing.is_none() || !(session.signing_required || is_signed || call.sealed) {
        return Err(Refusal::UNSIGNED_SESSION);
    }
    Ok(())
}

/// Whether a client was promised that the bytes of an open are encrypted in transit.
pub(super) fn is_encryption_promised(session: &Session, open: &Open) -> bool {
    session.encrypt_required || open.tree.is_encrypt_required()
}

/// The class as the wire names it.
pub(super) fn durability(class: DurabilityClass) -> Durability {
    match class {
        DurabilityClass::Pmem => Durability::PMEM,
        DurabilityClass::Storage => Durability::STORAGE,
        DurabilityClass::Volatile => Durability::VOLATILE,
    }
}

/// Whether a commit can succeed at all on a file of this class.
pub(super) fn can_commit(share: &Share, class: DurabilityClass) -> bool {
    class != DurabilityClass::Volatile || share.emulates_persistence()
}

/// The operations that this side of a push connection supports.
pub(super) fn capabilities(emulated: bool) -> Capabilities {
    let mut all = Capabilities::FLUSH
        | Capabilities::VERIFY
        | Capabilities::ATOMIC_WRITE
        | Capabilities::ATOMIC;
    all.set(Capabilities::EMULATED_PERSISTENCE, emulated);
    all
}

fn granularity(class: DurabilityClass) -> u32 {
    match class {
        DurabilityClass::Pmem => 64,
        DurabilityClass::Storage => 4096,
        DurabilityClass::Volatile => 1,
    }
}

const RWH: Caching = Caching(7);
const KNOWN_RIGHTS: Rights = Rights::READ
    .union(Rights::WRITE)
    .union(Rights::FLUSH)
    .union(Rights::ATOMIC_WRITE)
    .union(Rights::VERIFY)
    .union(Rights::ATOMIC);
