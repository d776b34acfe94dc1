//! Attempts at a CREATE until one opens the file, and the open that the client gets.
//!
//! Spec: MS-SMB2 §3.3.5.9, MS-FSA §2.1.5.1.

use std::sync::Arc;
use std::time::Duration;

use smb::NtStatus;
use smb::create::CreateAction;
use smb::push::RecallReason;
use tracing::warn;
use tree::{InlineIo, Metadata, Reach};

use super::admit::{Admission, origin};
use super::outcome::{Attempt, Created};
use super::wish::Wish;
use super::{attempt, take_over};
use crate::access::Tree;
use crate::connections::session::log_close;
use crate::dispatch::call::{Call, Lasting};
use crate::dispatch::persist;
use crate::push::Region;
use crate::state::node::Node;
use crate::state::open::{OpenParts, Origin};
use crate::state::{Hold, Open};

/// Opens what `admission` asks for. What the open changed by coming into being is durable where it writes through.
pub(super) async fn open(
    call: &Call,
    admission: &mut Admission,
) -> Result<(Arc<Open>, Metadata), NtStatus> {
    let created = settle(call, &admission.share, &admission.wish).await?;
    let metadata = created.metadata;
    let origin = origin(call, admission.asked, created.action)?;
    let place = admission.place.take().ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
    let open = register(call, &admission.tree, &admission.wish, created, origin, place).await?;
    write_through(call, &open).await?;
    Ok((open, metadata))
}

/// What a CREATE has made of the file becomes durable, and its name. Blocks.
pub(super) fn persist_opened(open: &Open) -> Result<(), NtStatus> {
    match open.origin.action {
        CreateAction::OPENED => persist::persist_name(open),
        _ => persist::persist(open),
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
        let (files, wish_too) = (Arc::clone(&call.core.files), Arc::clone(wish));
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
        let takings = &call.core.files.nodes.takings;
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
        let work = move |may_wait| attempt::attempt(&files, &share_too, &wish_too, reach, may_wait);
        let attempted = call.somewhere(inline, work).await??;
        // What it waits for from here on may wait for them.
        drop((held, scan));
        match attempted {
            Attempt::Done(created) => return Ok(*created),
            Attempt::Again => sent_back += 1,
            Attempt::Farther => reach = reach.farther(),
            Attempt::Going(node) => call.wait(node.removed()).await?,
            Attempt::Making { making, found } => call.wait_for_work(making.settled(found)).await?,
            Attempt::WrittenAgain(ended) => call.wait(ended).await?,
            Attempt::TakenByOthers { node, serials } => {
                call.wait(take_over::settled(&call.core.files, &node, &serials)).await?;
            }
            Attempt::Moving(path) => {
                let core = &call.core;
                call.wait(core.files.nodes.takings.settled(share, &path)).await?;
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
    crate::push::recall(call.push(), node, reason, in_the_way).await;
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
        session: Some(Arc::downgrade(session) as _),
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

/// Nobody is to get what was opened. Waited for: who takes the place of the session relies on it.
pub(super) async fn close(call: &Call, open: Arc<Open>) {
    let files = Arc::clone(&call.core.files);
    let closed = call.waiting(move |may_wait| log_close(&open, open.close(&files, may_wait)));
    // It fails when the server stops: then everything is closed.
    let _ = closed.await;
}

/// Attempts before an open is given up: more than the holders of leases a file can have in turn.
const ATTEMPTS_MAX: usize = 64;
/// How often an attempt is overtaken by others who take names before renames wait for it.
const SENT_BACK_MAX: usize = 8;
/// How long such a look-up waits for renames under way before it looks all the same.
const HOLD_PATIENCE: Duration = Duration::from_secs(1);
