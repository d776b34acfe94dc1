//! CREATE: opening and creating, with every disposition.
//!
//! ```text
//!  wish (checked request) -> attempt ----------------------> open, lease, answer
//!                            ^     | a lease or a push region stands in the way
//!                            |     v
//!                            +-- wait until it is given back or taken
//! ```
//!
//! An attempt does all the work on the file system and in the node's table in one go, on a worker
//! where that may block, and leaves nothing behind unless it succeeds.
//!
//! Spec: MS-SMB2 §3.3.5.9, MS-FSA §2.1.5.1.

mod attempt;
mod wish;

use std::sync::Arc;

use smb::create::{
    CreateAction, CreateRequest, CreateResponse, CreateResponseContext, Lease, LeaseKey,
    LeaseVersion, OplockLevel,
};
use smb::info::FileAttributes;
use smb::push::RecallReason;
use smb::{FileId, FileTime, NtStatus};
use tracing::{debug, warn};

use self::attempt::{Attempt, Created};
pub(crate) use self::wish::PushWish;
use self::wish::{Caching as WantedCaching, Wish};
use super::call::Call;
use super::frame::Outcome;
use super::{malformed, oplock_break};
use crate::push::Region;
use crate::state::lease::{Caching, Granted};
use crate::state::node::{Holder, Node};
use crate::state::open::OpenParts;
use crate::state::{Open, Tree};

/// Opens or creates a file or directory.
pub(super) async fn handle(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    let tree = call.asker().tree()?;
    let request = CreateRequest::parse(call.pdu()).map_err(malformed)?;
    let share = tree.share().cloned().ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let client = call.link.agreed.get().ok_or(NtStatus::INVALID_PARAMETER)?;
    let serial = call.link.core.next_serial();
    let wish = Arc::new(Wish::check(&request, &tree, client, serial)?);
    let created = settle(call, &share, &wish).await?;
    let is_directory = created.entry.is_directory();
    let (metadata, action) = (created.metadata, created.action);
    let (open, file_id) = register(call, &tree, &wish, created)?;
    let granted = grant(call, &wish, &open, file_id);
    call.chain_file = Some(file_id);
    debug!(path = open.path().to_wire(), ?action, directory = is_directory, "opened");
    let mut contexts = Vec::new();
    let oplock_level = match wish.caching {
        WantedCaching::Lease { key, version, parent, .. } if granted.is_some() => {
            let granted = granted.expect("checked by the guard");
            let version = match version {
                LeaseVersion::V1 => LeaseVersion::V1,
                LeaseVersion::V2 { .. } => LeaseVersion::V2 { parent, epoch: granted.epoch },
            };
            contexts.push(CreateResponseContext::Lease(Lease {
                key: LeaseKey(key),
                state: oplock_break::to_state(granted.caching),
                break_in_progress: granted.breaking,
                version,
            }));
            OplockLevel::LEASE
        }
        _ => granted.map_or(OplockLevel::NONE, |granted| oplock_break::to_level(granted.caching)),
    };
    if wish.wants_maximal_access {
        let access = wish.maximal_access(metadata.attributes);
        let status = NtStatus::SUCCESS;
        contexts.push(CreateResponseContext::MaximalAccess { status, access });
    }
    if wish.wants_disk_id {
        let (file_id, volume_id) = (metadata.key.inode, metadata.key.device);
        contexts.push(CreateResponseContext::OnDiskId { file_id, volume_id });
    }
    if let Some(asked) = &wish.push {
        let caching = granted.map_or(Caching::NONE, |granted| granted.caching);
        contexts.push(crate::push::offer(call, &open, asked, caching));
    }
    let response = CreateResponse {
        oplock_level,
        reparse_point: false,
        action,
        creation_time: FileTime(metadata.creation),
        last_access_time: FileTime(metadata.access),
        last_write_time: FileTime(metadata.write),
        change_time: FileTime(metadata.change),
        allocation_size: metadata.allocation,
        end_of_file: metadata.size,
        attributes: FileAttributes::from_bits_retain(metadata.attributes.0),
        file_id,
        contexts,
    };
    response.emit(out);
    Ok(NtStatus::SUCCESS)
}

// Attempts until it works or fails for good. Every wait ends: leases and regions are taken by
// force when their time is over.
async fn settle(
    call: &Call,
    share: &Arc<crate::share::Share>,
    wish: &Arc<Wish>,
) -> Result<Created, NtStatus> {
    // Kept from one attempt to the next: else the client's other opens could map faster than we
    // take back.
    let mut _resizing = None;
    for _ in 0..ATTEMPTS_MAX {
        let (core, share, wish_too) =
            (Arc::clone(&call.link.core), Arc::clone(share), Arc::clone(wish));
        let inline = share.inline_io();
        let work = move || attempt::attempt(&core, &share, &wish_too);
        match call.blocking(inline, work).await?? {
            Attempt::Done(created) => return Ok(*created),
            Attempt::Again => {}
            Attempt::Breaking { node, intent } => {
                call.go_pending();
                // Whoever maps the file learns it at once, and its grace runs meanwhile.
                let unmapped = unmap(call, wish, &node, RecallReason::SHARING_CONFLICT);
                let yielded = node.yield_caching(wish.owner, intent);
                tokio::select! {
                    _ = async { tokio::join!(yielded, unmapped) } => {}
                    () = call.pending.cancelled() => return Err(NtStatus::CANCELLED),
                }
            }
            Attempt::Mapped { node, reason } => {
                call.go_pending();
                _resizing = wish.overwrites().then(|| node.begin_resize());
                unmap(call, wish, &node, reason).await;
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
fn register(
    call: &Call,
    tree: &Arc<Tree>,
    wish: &Wish,
    created: Created,
) -> Result<(Arc<Open>, FileId), NtStatus> {
    let open = Arc::new(Open::new(OpenParts {
        serial: wish.serial,
        tree: Arc::clone(tree),
        node: created.node,
        entry: Arc::new(created.entry),
        access: match created.action {
            CreateAction::CREATED => wish.requested(),
            _ => wish.requested_on(created.metadata.attributes),
        },
        owner: wish.owner,
        mode: wish.mode(),
        write_through: wish.is_write_through(),
    }));
    let session = call.session();
    let added = session.add_open(|_| Arc::clone(&open));
    let Ok(volatile) = added else {
        close_in_background(call, open);
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    };
    let file_id = FileId { persistent: wish.serial.0, volatile: volatile.0 };
    // A session or tree that ended meanwhile has closed its opens, but not this one.
    if session.is_closed() || session.tree(tree.id).is_none() {
        session.remove_open(file_id.persistent, file_id.volatile);
        close_in_background(call, open);
        return Err(NtStatus::USER_SESSION_DELETED);
    }
    Ok((open, file_id))
}

fn close_in_background(call: &Call, open: Arc<Open>) {
    let core = Arc::clone(&call.link.core);
    call.link.core.runtime.spawn_blocking(move || open.close(&core));
}

// MS-SMB2 §3.3.5.9.8, §3.3.5.9.11. `None`: nothing was asked for, or it is a directory.
fn grant(call: &Call, wish: &Wish, open: &Open, file_id: FileId) -> Option<Granted> {
    let (wanted, flavor, first_epoch) = wish.caching.wanted()?;
    if open.entry.is_directory() {
        return None;
    }
    let holder = Holder {
        link: Arc::downgrade(&call.link),
        session_id: call.session().id,
        tree_id: open.tree.id,
        file_id: (file_id.persistent, file_id.volatile),
        lease_key: wish.caching.key(),
    };
    let mut state = open.node.lock();
    let alone = state.is_alone(wish.owner);
    Some(state.leases.grant(wish.owner, flavor, wanted, alone, first_epoch, holder))
}

/// Attempts before an open is given up: more than the holders of leases a file can have in turn.
const ATTEMPTS_MAX: usize = 64;
