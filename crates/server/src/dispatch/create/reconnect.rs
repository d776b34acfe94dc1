//! CREATE that opens nothing: it takes back an open whose connection was lost, or is the second
//! copy of a CREATE that was answered.
//!
//! Spec: MS-SMB2 §3.3.5.9.7, §3.3.5.9.10, §3.3.5.9.12.

use std::sync::Arc;

use smb::create::{CreateAction, CreateResponseContext, Lease, LeaseVersion, OplockLevel};
use smb::{FileId, NtStatus};
use tracing::{debug, info};
use tree::{InlineIo, Naming, SharePath, StreamPart};

use super::answer::{Facts, lease_context, respond};
use super::durable::{Back, Durability};
use super::extras::Extras;
use super::grant::holder;
use super::open::close;
use crate::access::Identity;
use crate::access::Tree;
use crate::dispatch::call::{Call, Lasting};
use crate::dispatch::frame::Outcome;
use crate::dispatch::{levels, push};
use crate::limits::RECONNECT_PATIENCE;
use crate::state::caching::Caching;
use crate::state::durable::Moving;
use crate::state::lease::{Granted, Owner};
use crate::state::open::NewPlace;
use crate::state::{Open, OpenSerial};
use crate::status::OrStatus as _;

/// DHnC and DH2C: an open comes back to its client.
pub(super) async fn take_back(
    call: &mut Call,
    tree: &Arc<Tree>,
    back: Back,
    extras: &Extras,
    out: &mut Vec<u8>,
) -> Outcome {
    let serial = OpenSerial(back.file_id.persistent);
    bring_back(call, tree, serial).await?;
    let (old, _moving) = claim(call, serial, |open| check(call, tree, back, extras, open)).await?;
    if let Some(Lease { state, version: LeaseVersion::V2 { epoch, .. }, .. }) = extras.lease {
        old.node.lock().leases.catch_up(old.owner, Caching(state.bits()), epoch);
    }
    let open = attach(call, tree, old).await?;
    info!(serial = serial.0, path = open.path().to_wire(), "a durable open is back");
    answer(call, &open, extras, Durability::Nothing, CreateAction::OPENED, out).await
}

/// The second copy of a CREATE, the first of which has opened this.
pub(super) async fn repeat(
    call: &mut Call,
    tree: &Arc<Tree>,
    open: Arc<Open>,
    asked: Durability,
    extras: &Extras,
    out: &mut Vec<u8>,
) -> Outcome {
    if open.origin.user != call.session().identity {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let same_holder = match (open.owner, &extras.lease) {
        (Owner::Lease { key, .. }, Some(lease)) => key == lease.key.0,
        (Owner::Open(_), None) => true,
        _ => false,
    };
    if !same_holder || !same_share(&open, tree) || !tree.rights.may(open.access) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let open = if open.is_orphan() {
        let (old, _moving) = claim(call, open.serial, |_| Ok(())).await?;
        attach(call, tree, old).await?
    } else if open.is_of(call.session()) {
        open
    } else {
        // Its session is still being taken down, or another one works with it.
        return Err(NtStatus::FILE_NOT_AVAILABLE);
    };
    let action = open.origin.action;
    debug!(serial = open.serial.0, "a CREATE came again");
    answer(call, &open, extras, asked, action, out).await
}

// An open from before the server started that could not be opened then may be now. Until it is its client has
// to ask again.
async fn bring_back(call: &Call, tree: &Arc<Tree>, serial: OpenSerial) -> Result<(), NtStatus> {
    let (Some(share), Identity::User(user)) = (tree.share(), &call.session().identity) else {
        return Ok(());
    };
    if !share.left_over().has(serial.0, user) {
        return Ok(());
    }
    let (core, share_too) = (Arc::clone(&call.core), Arc::clone(share));
    let work = move |may_wait| core.restorer(may_wait).restore_one(&share_too, serial);
    call.waiting(work).await?;
    if share.left_over().has(serial.0, user) {
        return Err(NtStatus::FILE_NOT_AVAILABLE);
    }
    Ok(())
}

// Finds an orphan. A client may be back before we know that it was gone; then it waits a little.
async fn claim(
    call: &Call,
    serial: OpenSerial,
    check: impl Fn(&Open) -> Result<(), NtStatus>,
) -> Result<(Arc<Open>, Moving), NtStatus> {
    let core = &call.core;
    let deadline = core.now() + RECONNECT_PATIENCE;
    let arrivals = core.files.orphans.await_arrival(serial);
    let look = || {
        if let Some(claimed) = core.files.orphans.claim(serial, &check) {
            return Some(claimed);
        }
        // Only what another connection of the same user holds can still become an orphan.
        let open = core.files.durable_opens.open(serial);
        let is_held = open.is_some_and(|open| open.is_held_beside(&**call.session()));
        if !is_held && !core.files.orphans.is_moving(serial) {
            // It may have arrived since it was looked for.
            let arrived = core.files.orphans.claim(serial, &check);
            return Some(arrived.unwrap_or(Err(NtStatus::OBJECT_NAME_NOT_FOUND)));
        }
        None
    };
    let claimed = basics::found(arrivals.event(), look);
    let in_time = tokio::time::timeout_at(deadline.into(), claimed);
    let claimed = call.wait_unless_ready(Lasting::Bounded, in_time).await?;
    claimed.unwrap_or(Err(NtStatus::OBJECT_NAME_NOT_FOUND))
}

// MS-SMB2 §3.3.5.9.7 and §3.3.5.9.12, in their order.
fn check(
    call: &Call,
    tree: &Tree,
    back: Back,
    extras: &Extras,
    open: &Open,
) -> Result<(), NtStatus> {
    let unknown = NtStatus::OBJECT_NAME_NOT_FOUND;
    if back.create_guid.is_some_and(|guid| guid != open.origin.create_guid)
        || open.is_persistent() != back.persistent
        || !same_share(open, tree)
    {
        return Err(unknown);
    }
    let client = call.link.agreed.get().map_or([0; 16], |agreed| agreed.client_guid);
    match (open.owner, &extras.lease) {
        // Whose it is comes last.
        (Owner::Lease { client: holder, key, .. }, Some(lease)) => {
            if key != lease.key.0 || holder != client {
                return Err(unknown);
            }
            if !is_named(open, &extras.name) {
                return Err(NtStatus::INVALID_PARAMETER);
            }
        }
        (Owner::Open(_), None) => {}
        _ => return Err(unknown),
    }
    if open.origin.user != call.session().identity || !tree.rights.may(open.access) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(())
}

// Of a stream the disk alone knows which name it has by now: that it is one has to do.
fn is_named(open: &Open, name: &str) -> bool {
    let path = open.path();
    let named = match path.naming() {
        Naming::Windows => SharePath::parse_with_stream(name),
        Naming::Posix => SharePath::parse_posix(name).map(|path| (path, StreamPart::Absent)),
    };
    let is_stream = |part| matches!(part, StreamPart::Named(_));
    named.is_ok_and(|(named, part)| named == path && is_stream(part) == open.entry.is_stream())
}

fn same_share(open: &Open, tree: &Tree) -> bool {
    match (open.tree.share(), tree.share()) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
}

// From here on the open is the client's again, under its new session and tree.
async fn attach(call: &mut Call, tree: &Arc<Tree>, old: Arc<Open>) -> Result<Arc<Open>, NtStatus> {
    // docs/push-mode.md, "Recall": its regions ended with its connection, those that its client mapped through other opens
    // of its lease too. Nobody learns that it is back before nothing touches them any more.
    crate::push::end_of_open(call.push(), &old).await;
    crate::push::end_of_lost(call.push(), &old, call.session().id).await;
    // Nor while a request of the lost connection still writes.
    let before = Arc::clone(&old);
    call.blocking(InlineIo::CachedReads, move || before.settle_changes()).await?;
    let client = call.link.agreed.get().map_or([0; 16], |agreed| agreed.client_guid);
    let session = Arc::clone(call.session());
    let sequence = call.header.channel_sequence();
    let place = |volatile| NewPlace {
        tree: Arc::clone(tree),
        session: Arc::downgrade(&session) as _,
        client,
        volatile,
        sequence,
    };
    let durable = &call.core.files.durable_opens;
    let added = session.add_open(|volatile| Open::handed_over(durable, &old, place(volatile)));
    let Ok(open) = added else {
        close(call, old).await;
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    };
    open.take_create_from(&old, &call.core.files.creates);
    let holder = holder(call, &open);
    let kept = {
        let mut state = open.node.lock();
        let holds = state.leases.is_held_with(open.owner, Caching::HANDLE);
        if let Some(record) = state.record_mut(open.serial) {
            record.orphan = None;
            record.holder = Some(holder);
            record.open = Arc::downgrade(&open);
            open.node.note_come();
        }
        // Asked for while it was on its way back: nobody was there to be told.
        holds || open.is_persistent()
    };
    // A session or tree that ended meanwhile has closed its opens, but not this one.
    if !kept || session.is_closed() || session.tree(tree.id).is_none() {
        // Who ended the session may have found it, and then it waits for its client again already.
        if session.remove_open(open.serial.0, open.volatile).is_some() {
            let waits = kept && session.is_closed();
            let (files, users) = (&call.core.files, call.core.identity.users());
            if !waits || !files.adopt(&users, &open) {
                close(call, open).await;
            }
        }
        return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
    }
    // What was asked of a persistent open while nobody was there to be told, or over the connection
    // that was lost: it follows the answer. Whoever waits for it need not wait until time is over.
    open.node.repeat_break(open.owner);
    Ok(open)
}

async fn answer(
    call: &mut Call,
    open: &Arc<Open>,
    extras: &Extras,
    asked: Durability,
    action: CreateAction,
    out: &mut Vec<u8>,
) -> Outcome {
    let file_id = FileId { persistent: open.serial.0, volatile: open.volatile };
    call.chain_file = Some(file_id);
    let looked_at = Arc::clone(open);
    let work = move || {
        crate::push::settle_times(&looked_at.node);
        looked_at.entry.metadata()
    };
    let metadata = call.blocking(open.entry.inline_io(), work).await?.or_status()?;
    let granted = open.node.lock().leases.granted(open.owner);
    let mut contexts = Vec::new();
    let oplock_level = level(open, extras, asked, granted);
    if let (Some(lease), Some(granted)) = (&extras.lease, granted) {
        contexts.push(lease_context(lease.key.0, lease.version, granted));
    }
    let keeps_handles = matches!(oplock_level, OplockLevel::LEASE | OplockLevel::BATCH);
    if let Some(durable) = open.durable()
        && (keeps_handles || durable.persistent)
    {
        contexts.extend(asked.context(durable));
    }
    if extras.wants_disk_id {
        let key = metadata.key;
        let file_id = open.tree.share().map_or(key.inode, |share| share.file_id(key));
        let volume_id = key.device;
        contexts.push(CreateResponseContext::OnDiskId { file_id, volume_id });
    }
    if let Some(push) = &extras.push {
        let caching = granted.map_or(Caching::NONE, |granted| granted.caching);
        contexts.push(push::offer(call, open, push, caching));
    }
    respond(Facts { oplock_level, action, metadata: &metadata, file_id, contexts }, out);
    Ok(NtStatus::SUCCESS)
}

// A copy of a CREATE is told the oplock it asks for, as Windows does, but never more than is held.
fn level(open: &Open, extras: &Extras, asked: Durability, granted: Option<Granted>) -> OplockLevel {
    if matches!(open.owner, Owner::Lease { .. }) {
        return OplockLevel::LEASE;
    }
    let held = granted.map_or(Caching::NONE, |granted| granted.caching);
    match asked {
        Durability::V2(_) => {
            let wanted = levels::from_level(extras.oplock_level);
            levels::to_level(Caching(wanted.0 & held.0))
        }
        _ => levels::to_level(held),
    }
}
