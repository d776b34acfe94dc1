//! Entering an open in the node of its file: beside those that are there, or not.
//!
//! ```text
//!  removed, moved, looked up too early? --> wait, or look again
//!  an older instance of its application --> look again, to take it over
//!  to be deleted, left over?            --> refused
//!  caching, regions of others           --> told to go; waited for where they stand in the way
//!  share modes, streams                 --> refused
//!  none of these                        --> entered, all in one hold of the node's lock
//! ```
//!
//! Spec: MS-FSA §2.1.5.1.2.2 (sharing check), §2.1.4.12 (breaks).

use std::sync::{Arc, Weak};

use smb::NtStatus;
use smb::push::RecallReason;
use tree::{FileKey, Share, SharePath};

use super::outcome::Attempt;
use super::wish::Wish;
use crate::state::caching::Intent;
use crate::state::changes::Change;
use crate::state::changing::Changing;
use crate::state::claim::Claimed;
use crate::state::files::Files;
use crate::state::node::{Node, NodeState, OpenRecord, Resizing};
use crate::state::range::LockRange;
use crate::state::sharing::Sharing;
use crate::state::taking::Seen;

/// What entering an open in its node came to.
pub(super) enum Entered {
    /// It is there. Who overwrites keeps it from being mapped and cached until it is empty, and its streams from
    /// being opened.
    Now(Option<Emptying>),
    /// Something has to go first.
    Wait(Attempt),
}

/// A file is being emptied, until this is dropped.
#[derive(Debug)]
pub(super) struct Emptying {
    _resizing: Resizing,
    _changing: Changing,
    _claimed: Claimed,
}

// Enters the open in its node, or says what has to be waited for.
pub(super) fn enter(
    files: &Files,
    node: &Arc<Node>,
    wish: &Wish,
    record: OpenRecord,
    seen: &Seen,
) -> Result<Entered, NtStatus> {
    let sharing = wish.sharing_to_enter(record.sharing);
    let now = files.now();
    let mut state = node.lock();
    if let Some(wait) = comes_too_early(files, node, &state, wish, &record, seen) {
        return Ok(Entered::Wait(wait));
    }
    if state.is_record_to_go(&record) {
        return Err(NtStatus::DELETE_PENDING);
    }
    // A persistent open of it that could not be brought back yet may share nothing.
    if files.is_left_over(&record.share, node.key()) {
        return Err(NtStatus::SHARING_VIOLATION);
    }
    state.expire_breaks(now);
    let is_beside = |open: &OpenRecord| wish.pushes_beside(open, sharing);
    let admitted = state.admits(sharing, wish.overwrites(), is_beside);
    let intent = match (admitted, wish.overwrites(), wish.only_looks()) {
        (false, ..) => Some(Intent::OpenAgainstSharing),
        (true, true, _) => Some(Intent::Overwrite),
        (true, false, false) if wish.deletes_on_close() => Some(Intent::OpenToDelete),
        (true, false, false) => Some(Intent::Open),
        (true, false, true) if wish.looks_at_security() => Some(Intent::LookAtSecurity),
        (true, false, true) => None,
    };
    let mut notices = Vec::new();
    let mut wait = None;
    if let Some(intent) = intent {
        notices = state.leases.start_breaks(wish.owner, intent, now);
        if state.leases.must_wait(wish.owner, intent) {
            wait = Some(Attempt::Breaking { node: Arc::clone(node), intent });
        }
    }
    let overwrites = wish.overwrites();
    let is_mapped = state.obstacles().any(|one| overwrites || one.owner() != wish.owner);
    if wait.is_none() && is_mapped && !wish.only_looks() {
        let reason = if wish.overwrites() {
            RecallReason::TRUNCATION
        } else {
            RecallReason::SHARING_CONFLICT
        };
        wait = Some(Attempt::Mapped { node: Arc::clone(node), reason });
    }
    if wait.is_none()
        && !wish.only_looks()
        && let Some(ended) = state.changes.again_by_another(wish.owner)
    {
        wait = Some(Attempt::WrittenAgain(ended));
    }
    let outcome = match wait {
        Some(wait) => Ok(Entered::Wait(wait)),
        None if !admitted => Err(NtStatus::SHARING_VIOLATION),
        None => {
            let (owner, serial, range) = (record.owner, record.serial, LockRange::WHOLE);
            state.opens.push(record);
            Ok(Entered::Now(overwrites.then(|| Emptying {
                _resizing: state.begin_resize(node),
                _changing: state.begin_change(node, Change { owner, serial, range }),
                _claimed: state.begin_claim(node),
            })))
        }
    };
    let routed = state.route(notices);
    drop(state);
    node.send(routed);
    outcome
}

// What has to be over, or looked up again, before anything is decided.
fn comes_too_early(
    files: &Files,
    node: &Arc<Node>,
    state: &NodeState,
    wish: &Wish,
    record: &OpenRecord,
    seen: &Seen,
) -> Option<Attempt> {
    if state.removing {
        return Some(Attempt::Going(Arc::clone(node)));
    }
    if files.nodes.takings.is_moving(&record.share, &record.path) {
        return Some(Attempt::Moving(record.path.clone()));
    }
    // An older instance that has come since this attempt looked is taken over, whatever it shares.
    let is_older_instance = |open: &OpenRecord| wish.succeeds(open);
    let takes_over = record.base.is_none() && state.opens.iter().any(is_older_instance);
    let is_stale = !node.has_kept_names_since(seen) || takes_over;
    is_stale.then_some(Attempt::Again)
}

/// The open as its node will know it.
pub(super) fn new_record(
    files: &Files,
    wish: &Wish,
    share: &Arc<Share>,
    sharing: Sharing,
    path: SharePath,
    file: FileKey,
) -> Result<OpenRecord, NtStatus> {
    // MS-SMB2 §3.3.5.9.8: a key names one file.
    let claim = files.lease_keys.claim(wish.owner, file).ok_or(NtStatus::INVALID_PARAMETER)?;
    Ok(OpenRecord {
        serial: wish.serial,
        sharing,
        owner: wish.owner,
        has_lease: false,
        share: Arc::clone(share),
        path,
        delete_on_close: wish.grant.deletes_on_close(),
        base: None,
        holder: None,
        orphan: None,
        _key_claim: claim,
        instance: wish.instance.clone(),
        open: Weak::new(),
    })
}
