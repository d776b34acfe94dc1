//! CREATE: opening and creating, with every disposition.
//!
//! ```text
//!  wish (checked request) -> attempt ----------------------> open, lease, answer
//!                            ^     | a lease or a push region stands in the way
//!                            |     v
//!                            +-- wait until it is given back or taken
//! ```
//!
//! A CREATE that opens nothing goes another way: [`reconnect`] takes back an open whose connection
//! was lost, and gives the answer again to a request that was sent twice.
//!
//! An attempt does all the work on the file system and in the node's table in one go, on a worker
//! where that may block, and leaves nothing behind unless it succeeds.
//!
//! Spec: MS-SMB2 §3.3.5.9, MS-FSA §2.1.5.1.

mod attempt;
mod durable;
mod enter;
mod fresh;
mod grant;
mod reconnect;
mod stream;
#[cfg(test)]
mod tests;
mod wish;

use std::sync::Arc;
use std::time::Duration;

use smb::HeaderFlags;
use smb::create::{
    CreateAction, CreateRequest, CreateResponse, CreateResponseContext, Lease, LeaseKey,
    LeaseVersion, OplockLevel,
};
use smb::info::FileAttributes;
use smb::push::RecallReason;
use smb::{FileId, FileTime, NtStatus};
use tracing::{debug, warn};
use tree::{InlineIo, Metadata, Reach};

use self::attempt::{Attempt, Created};
use self::durable::Durability;
use self::grant::grant;
use self::reconnect::Extras;
pub(crate) use self::wish::PushWish;
use self::wish::{Caching as WantedCaching, Wish};
use super::call::{Call, Lasting};
use super::frame::Outcome;
use super::{flush, malformed, oplock_break, posix};
use crate::push::Region;
use crate::state::caching::{Caching, Flavor};
use crate::state::creates::{Begun, CreateKey};
use crate::state::lease::Granted;
use crate::state::node::Node;
use crate::state::open::{Durable, OpenParts, Origin};
use crate::state::persistent;
use crate::state::session::log_close;
use crate::state::{Hold, Open, Resource, Tree};

/// Opens or creates a file or directory.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let tree = call.asker().tree()?;
    if call.session().is_unnamed() {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let request = CreateRequest::parse(call.pdu()).map_err(malformed)?;
    let share = tree.share().cloned().ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let client = call.link.agreed.get().ok_or(NtStatus::INVALID_PARAMETER)?;
    let asked = Durability::check(&request.contexts, client.dialect)?;
    let client_guid = client.client_guid;
    if let Durability::Back(back) = asked {
        let extras = Extras::of(&request);
        return reconnect::take_back(call, &tree, back, &extras, out).await;
    }
    let origin = |action| Origin {
        user: call.session().identity.clone(),
        client: client_guid,
        create_guid: asked.create_guid(),
        action,
    };
    let mut reservation = None;
    if let Some(key) = origin(CreateAction::OPENED).key() {
        match begin(call, key)? {
            Begun::First(first) => {
                // Whoever loses this connection and has another asks again there, and is told to
                // wait until it is known what came of this.
                call.pending.outlive();
                reservation = Some(first);
            }
            Begun::Opened(open) => {
                let extras = Extras::of(&request);
                return reconnect::repeat(call, &tree, open, asked, &extras, out).await;
            }
            Begun::UnderWay => return Err(NtStatus::FILE_NOT_AVAILABLE),
        }
    }
    let core = &call.link.core;
    let serial = core.next_serial();
    let wish = Arc::new(Wish::check(&request, &tree, client, &call.session().identity, serial)?);
    let place = call.session().account.try_take(Resource::Opens, wish.descriptors());
    let place = place.ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
    let created = match settle(call, &share, &wish).await {
        Err(NtStatus::STOPPED_ON_SYMLINK) => {
            let path = wish.path.clone();
            let work = move || {
                let mut body = Vec::new();
                posix::stopped(&share, &path, &mut body).map(|status| (status, body))
            };
            let (status, body) = call.blocking(InlineIo::CachedReads, work).await??;
            out.extend_from_slice(&body);
            return Ok(status);
        }
        other => other?,
    };
    let is_directory = created.entry.is_directory();
    let (metadata, action) = (created.metadata, created.action);
    let open = register(call, &tree, &wish, created, origin(action), place).await?;
    write_through(call, &open).await?;
    let file_id = FileId { persistent: serial.0, volatile: open.volatile };
    let granted = grant(call, &wish, &open, metadata.allocation);
    let keeps = share.journal().is_some()
        && !is_directory
        && !open.entry.is_stream()
        && wish.path.is_presentable();
    // A guest who came back could not show that it is theirs.
    let may_come_back = !call.session().identity.is_guest();
    let durable = match asked.grant(granted, keeps).filter(|_| may_come_back) {
        Some(durable) if durable.persistent => write_down(call, &open, durable, granted).await,
        durable => durable,
    };
    call.chain_file = Some(file_id);
    debug!(path = open.path().to_wire(), ?action, directory = is_directory, ?durable, "opened");
    let mut contexts = Vec::new();
    let oplock_level = match (wish.caching, granted) {
        (WantedCaching::Lease { key, version, .. }, Some(granted)) => {
            contexts.push(lease_context(key, version, granted));
            OplockLevel::LEASE
        }
        _ => granted.map_or(OplockLevel::NONE, |granted| oplock_break::to_level(granted.caching)),
    };
    if let Some(durable) = durable {
        open.set_durable(&call.link.core, durable);
        contexts.extend(asked.context(durable));
        // Closed while it was being noted, by who did not know of the note.
        if durable.persistent && open.node.lock().record(serial).is_none() {
            let open = Arc::clone(&open);
            call.blocking(InlineIo::CachedReads, move || open.forget_note()).await?;
        }
    }
    if wish.wants_maximal_access {
        let access = wish.grant.maximal_access(metadata.attributes);
        let status = NtStatus::SUCCESS;
        contexts.push(CreateResponseContext::MaximalAccess { status, access });
    }
    if wish.wants_disk_id {
        let (file_id, volume_id) = (share.file_id(metadata.key), metadata.key.device);
        contexts.push(CreateResponseContext::OnDiskId { file_id, volume_id });
    }
    if wish.is_posix {
        contexts.push(CreateResponseContext::Posix(posix::facts(&metadata)));
    }
    if let Some(asked) = &wish.push {
        let caching = granted.map_or(Caching::NONE, |granted| granted.caching);
        contexts.push(crate::push::offer(call, &open, asked, caching));
    }
    if let Some(reservation) = reservation {
        reservation.settle(&open);
    }
    respond(Facts { oplock_level, action, metadata: &metadata, file_id, contexts }, out);
    Ok(NtStatus::SUCCESS)
}

// A persistent open is one when its note is durable; where that fails it is a durable one at most.
async fn write_down(
    call: &Call,
    open: &Arc<Open>,
    durable: Durable,
    granted: Option<Granted>,
) -> Option<Durable> {
    let noted = Arc::clone(open);
    let work = move || {
        let journal = noted.tree.share().and_then(|share| share.journal());
        let nobody = || std::io::Error::other("nobody in particular has opened it");
        let journal = journal.ok_or_else(nobody)?;
        // Nobody renames it before it is noted.
        let _names = journal.hold_names();
        let note = persistent::note(&noted, durable, granted).ok_or_else(nobody)?;
        if note.identity.is_none() {
            return Err(std::io::Error::other(
                "its file system knows nothing that tells it from a later one",
            ));
        }
        // The note leads to nothing where a crash takes the file's name, or what it was emptied of comes back.
        persist_opened(&noted).map_err(|status| std::io::Error::other(status.to_string()))?;
        journal.open_durably(note)
    };
    match call.blocking(InlineIo::CachedReads, work).await {
        Ok(Ok(())) => Some(durable),
        Ok(Err(error)) => {
            warn!(serial = open.serial.0, %error, "an open is not persistent");
            granted
                .is_some_and(|granted| granted.caching.contains(Caching::HANDLE))
                .then_some(Durable { persistent: false, ..durable })
        }
        Err(_) => None,
    }
}

// What a CREATE has made of the file becomes durable, and its name. Blocks.
fn persist_opened(open: &Open) -> Result<(), NtStatus> {
    match open.origin.action {
        CreateAction::OPENED => flush::persist_name(open),
        _ => flush::persist(open),
    }
}

// An open that writes through begins with what its CREATE has changed.
async fn write_through(call: &Call, open: &Arc<Open>) -> Result<(), NtStatus> {
    if !open.is_write_through() || open.origin.action == CreateAction::OPENED {
        return Ok(());
    }
    let created = Arc::clone(open);
    let work = move || persist_opened(&created);
    let persisted = call.blocking(InlineIo::CachedReads, work).await.and_then(|done| done);
    if persisted.is_err() && call.session().remove_open(open.serial.0, open.volatile).is_some() {
        discard(call, Arc::clone(open)).await;
    }
    persisted
}

// MS-SMB2 §3.3.5.9.10: without the replay flag a GUID in use is refused.
fn begin(call: &Call, key: CreateKey) -> Result<Begun<Open>, NtStatus> {
    let begun = call.link.core.creates.begin(key);
    let replays = call.header.flags.contains(HeaderFlags::REPLAY);
    if !replays && !matches!(begun, Begun::First(_)) {
        return Err(NtStatus::DUPLICATE_OBJECTID);
    }
    Ok(begun)
}

/// What an answer says.
struct Facts<'a> {
    oplock_level: OplockLevel,
    action: CreateAction,
    metadata: &'a Metadata,
    file_id: FileId,
    contexts: Vec<CreateResponseContext<'static>>,
}

fn respond(facts: Facts<'_>, out: &mut Vec<u8>) {
    let metadata = facts.metadata;
    let response = CreateResponse {
        oplock_level: facts.oplock_level,
        reparse_point: metadata.posix.is_link,
        action: facts.action,
        creation_time: FileTime(metadata.creation),
        last_access_time: FileTime(metadata.access),
        last_write_time: FileTime(metadata.write),
        change_time: FileTime(metadata.change),
        allocation_size: metadata.allocation,
        end_of_file: metadata.size,
        attributes: FileAttributes::from_bits_retain(metadata.attributes.0),
        file_id: facts.file_id,
        contexts: facts.contexts,
    };
    response.emit(out);
}

// The layout is that of the lease, which the first of its opens chose.
fn lease_context(
    key: [u8; 16],
    asked: LeaseVersion,
    granted: Granted,
) -> CreateResponseContext<'static> {
    let parent = match asked {
        LeaseVersion::V1 => None,
        LeaseVersion::V2 { parent, .. } => parent,
    };
    let version = match granted.flavor {
        Flavor::LeaseV2 => LeaseVersion::V2 { parent, epoch: granted.epoch },
        Flavor::LeaseV1 | Flavor::Oplock => LeaseVersion::V1,
    };
    CreateResponseContext::Lease(Lease {
        key: LeaseKey(key),
        state: oplock_break::to_state(granted.caching),
        break_in_progress: granted.breaking,
        version,
    })
}

// Attempts until it works or fails for good. Every wait ends: leases and regions are taken by
// force when their time is over.
async fn settle(
    call: &Call,
    share: &Arc<tree::Share>,
    wish: &Arc<Wish>,
) -> Result<Created, NtStatus> {
    // Kept from one attempt to the next: else the client's other opens could map faster than we
    // take back.
    let mut _resizing = None;
    let on_the_spot = share.reach_on_the_spot().filter(|_| !wish.is_much());
    let mut reach = on_the_spot.unwrap_or(Reach::FewNames);
    let mut sent_back = 0;
    for _ in 0..ATTEMPTS_MAX {
        let (core, wish_too) = (Arc::clone(&call.link.core), Arc::clone(wish));
        let share_too = Arc::clone(share);
        let is_at_hand = match reach {
            Reach::TopFileSystem => true,
            Reach::FewNames => wish.takes_what_is_there() && share.has_at_hand(&wish.path),
            Reach::Everywhere => false,
        };
        let inline = if is_at_hand { InlineIo::Everything } else { InlineIo::CachedReads };
        let scan = match reach {
            Reach::Everywhere => Some(call.scan().await?),
            Reach::FewNames | Reach::TopFileSystem => None,
        };
        let takings = &call.link.core.nodes.takings;
        let held = match sent_back == SENT_BACK_MAX {
            // Not for ever: renames of another share may hang in its file system. Nor in a row: it may be no rename
            // that sends it back.
            true => {
                sent_back = 0;
                let held = tokio::time::timeout(HOLD_PATIENCE, takings.hold_names());
                call.wait_for_work(held).await?.ok()
            }
            false => None,
        };
        let work = move || attempt::attempt(&core, &share_too, &wish_too, reach);
        let attempted = call.blocking(inline, work).await??;
        // What it waits for from here on may wait for them.
        drop((held, scan));
        match attempted {
            Attempt::Done(created) => return Ok(*created),
            Attempt::Again => sent_back += 1,
            Attempt::Farther => reach = reach.farther(),
            Attempt::Going(node) => call.wait(node.removed()).await?,
            Attempt::Making { making, found } => call.wait_for_work(making.settled(found)).await?,
            Attempt::Moving(path) => {
                let core = &call.link.core;
                call.wait(core.nodes.takings.settled(share, &path)).await?;
            }
            Attempt::Breaking { node, intent } => {
                // Whoever maps the file learns it at once, and its grace runs meanwhile.
                let unmapped = unmap(call, wish, &node, RecallReason::SHARING_CONFLICT);
                let yielded = node.yield_caching(wish.owner, intent);
                let both = async { tokio::join!(yielded, unmapped) };
                call.wait_pending(Lasting::Bounded, both).await?;
            }
            Attempt::Mapped { node, reason } => {
                _resizing = wish.overwrites().then(|| node.begin_resize());
                let unmapped = unmap(call, wish, &node, reason);
                call.wait_pending(Lasting::Bounded, unmapped).await?;
            }
        }
    }
    warn!(path = wish.path.to_wire(), "a file changed under every attempt to open it");
    Err(NtStatus::SHARING_VIOLATION)
}

async fn unmap(call: &Call, wish: &Wish, node: &Arc<Node>, reason: RecallReason) {
    let overwrites = wish.overwrites();
    let in_the_way = |region: &Region| overwrites || region.owner != wish.owner;
    crate::push::recall(&call.link.core, node, reason, in_the_way).await;
}

// From here on the open exists for the client.
async fn register(
    call: &Call,
    tree: &Arc<Tree>,
    wish: &Wish,
    created: Created,
    origin: Origin,
    place: Hold,
) -> Result<Arc<Open>, NtStatus> {
    let session = call.session();
    let access = match created.action {
        CreateAction::CREATED => wish.grant.of_new(),
        _ => wish.grant.of(created.metadata.attributes),
    };
    let parts = |volatile| OpenParts {
        serial: wish.serial,
        tree: Arc::clone(tree),
        node: created.node,
        entry: Arc::new(created.entry),
        access,
        owner: wish.owner,
        mode: wish.mode(),
        origin,
        session: Arc::downgrade(session),
        volatile,
        sequence: call.header.channel_sequence(),
        place: Some(place),
    };
    let open = match session.add_open(|volatile| Arc::new(Open::new(parts(volatile)))) {
        Ok(open) => open,
        Err(make) => {
            discard(call, make(0)).await;
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
    };
    // A session or tree that ended meanwhile has closed its opens, but not this one.
    if session.is_closed() || session.tree(tree.id).is_none() {
        session.remove_open(open.serial.0, open.volatile);
        discard(call, open).await;
        return Err(NtStatus::USER_SESSION_DELETED);
    }
    Ok(open)
}

// A CREATE has failed whose file is open already: what was there stays, though it was to go with this open.
async fn discard(call: &Call, open: Arc<Open>) {
    if open.origin.action != CreateAction::CREATED
        && let Some(record) = open.node.lock().record_mut(open.serial)
    {
        record.delete_on_close = None;
    }
    close(call, open).await;
}

// Nobody is to get what was opened. Waited for: who takes the place of the session relies on it.
async fn close(call: &Call, open: Arc<Open>) {
    let core = Arc::clone(&call.link.core);
    let closed = call.blocking(InlineIo::CachedReads, move || log_close(&open, open.close(&core)));
    // It fails when the server stops: then everything is closed.
    let _ = closed.await;
}

/// Attempts before an open is given up: more than the holders of leases a file can have in turn.
const ATTEMPTS_MAX: usize = 64;
/// How often an attempt is overtaken by others who take names before renames wait for it.
const SENT_BACK_MAX: usize = 8;
/// How long such a look-up waits for renames under way before it looks all the same.
const HOLD_PATIENCE: Duration = Duration::from_secs(1);
