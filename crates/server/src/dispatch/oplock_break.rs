//! OPLOCK_BREAK: telling holders to give caching back, and taking their answers.
//!
//! Spec: MS-SMB2 §3.3.4.6, §3.3.4.7 (sending), §3.3.5.22 (acknowledgments).

use std::sync::Arc;

use smb::Command;
use smb::NtStatus;
use smb::create::{LeaseKey, LeaseState, OplockLevel};
use smb::{BreakAck, LeaseBreakAck, LeaseBreakNotification, OplockBreak};
use smb::{FileId, Header, HeaderFlags, MessageId, Route, SessionId, TreeId};
use tracing::debug;

use super::call::Call;
use super::frame::{self, Outcome};
use super::malformed;
use crate::state::Link;
use crate::state::caching::{Caching, Flavor};
use crate::state::holder::Holder;
use crate::state::lease::{AcknowledgeError, Notice, Owner};
use crate::state::node::Node;

/// Tells a holder what it may still cache.
pub(crate) fn notify(link: &Link, notice: &Notice<Holder>) {
    let holder = &notice.notify;
    // MS-SMB2 §3.3.4.6, §3.3.4.7: sealed where the session or the share insists on it; here also
    // where the client has sealed of its own accord. It says which file, so never in the clear instead.
    let seal = link.channel(holder.session_id).filter(|_| holder.is_sealed);
    if holder.is_sealed && seal.is_none() {
        debug!(peer = %link.peer, "no break: the session that would seal it is not here any more");
        return;
    }
    let mut out = Vec::new();
    let start = frame::begin(&mut out, seal.is_some());
    // Nobody asked: message id all ones, and for leases no session and no tree either.
    let mut header = Header::request(Command::OPLOCK_BREAK, MessageId(u64::MAX));
    header.flags = HeaderFlags::RESPONSE;
    if notice.flavor == Flavor::Oplock {
        header.session_id = SessionId(holder.session_id);
        header.route = Route::Sync { process_id: 0, tree_id: TreeId(holder.tree_id) };
    }
    header.emit(&mut out);
    match notice.flavor {
        Flavor::Oplock => {
            let (persistent, volatile) = holder.file_id;
            let level = to_level(notice.to);
            OplockBreak { level, file_id: FileId { persistent, volatile } }.emit(&mut out);
        }
        Flavor::LeaseV1 | Flavor::LeaseV2 => {
            let epoch = if notice.flavor == Flavor::LeaseV2 { notice.epoch } else { 0 };
            let notification = LeaseBreakNotification {
                epoch,
                ack_required: notice.needs_answer,
                lease_key: LeaseKey(holder.lease_key),
                current: to_state(notice.from),
                new: to_state(notice.to),
            };
            notification.emit(&mut out);
        }
    }
    debug!(peer = %link.peer, from = notice.from.0, to = notice.to.0, "caching broken");
    match frame::end(&mut out, start, seal.as_deref()) {
        Ok(()) => link.tell(out),
        Err(_) => link.close(),
    }
}

/// Takes a holder's answer.
pub(super) async fn acknowledge(call: &mut Call, out: &mut Vec<u8>) -> Outcome {
    match BreakAck::parse(call.pdu()).map_err(malformed)? {
        BreakAck::Oplock(ack) => acknowledge_oplock(call, ack, out).await,
        BreakAck::Lease(ack) => acknowledge_lease(call, ack, out).await,
    }
}

// What was mapped under the whole lease ends before anybody goes on that waited for the answer.
// docs/push-mode.md, "Recall".
async fn given_back(call: &Call, node: &Arc<Node>, owner: Owner, answered: Answered) {
    if !answered.0.contains(Caching::READ.union(Caching::WRITE).union(Caching::HANDLE)) {
        crate::push::end_of_lease(&call.link.core, node, owner).await;
    }
    let is_over = answered.1.as_ref().is_none_or(|next| !next.needs_answer);
    if let Some(next) = answered.1 {
        let routed = node.lock().route(vec![next]);
        node.send(routed);
    }
    if is_over {
        node.end_break(owner);
    }
}

/// What a holder keeps, and the next step of the break if more is wanted.
type Answered = (Caching, Option<Notice<Holder>>);

async fn acknowledge_oplock(call: &mut Call, ack: OplockBreak, out: &mut Vec<u8>) -> Outcome {
    let open = call.open(ack.file_id)?;
    if matches!(open.owner, Owner::Lease { .. }) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let kept = match ack.level {
        OplockLevel::NONE => Caching::NONE,
        OplockLevel::II => Caching::READ,
        _ => return Err(NtStatus::INVALID_PARAMETER),
    };
    let now = call.link.core.now();
    let outcome = open.node.lock().leases.acknowledge(open.owner, kept, now);
    let answered = outcome.map_err(|error| match error {
        AcknowledgeError::NotBreaking
        | AcknowledgeError::NoSuchLease
        | AcknowledgeError::KeepsTooMuch => NtStatus::INVALID_OPLOCK_PROTOCOL,
    })?;
    let level = to_level(answered.0);
    given_back(call, &open.node, open.owner, answered).await;
    OplockBreak { level, file_id: ack.file_id }.emit(out);
    Ok(NtStatus::SUCCESS)
}

async fn acknowledge_lease(call: &Call, ack: LeaseBreakAck, out: &mut Vec<u8>) -> Outcome {
    let client = call.link.agreed.get().map_or([0; 16], |agreed| agreed.client_guid);
    let owner = Owner::Lease { client, key: ack.lease_key.0 };
    // MS-SMB2 §3.3.5.2.11: for the lease it need not be there.
    if call.asker().has_tree() {
        call.asker().tree()?;
    }
    // The lease is the client's: it may answer on any of its connections.
    let core = &call.link.core;
    let node = core.lease_keys.file(owner).and_then(|file| core.nodes.existing(file));
    let node = node.ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let outcome = {
        let mut state = node.lock();
        let trees = state.trees_of(owner, &call.session().identity);
        if trees.is_empty() {
            return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
        }
        // MS-SMB2 §3.3.5.2.11 asks the tree that the request names. It may name any, and the lease is
        // that of other trees.
        trees.iter().try_for_each(|tree| call.asker().check_protection(tree))?;
        state.leases.acknowledge(owner, Caching(ack.state.bits()), core.now())
    };
    let answered = outcome.map_err(|error| match error {
        AcknowledgeError::NoSuchLease => NtStatus::OBJECT_NAME_NOT_FOUND,
        AcknowledgeError::NotBreaking => NtStatus::UNSUCCESSFUL,
        AcknowledgeError::KeepsTooMuch => NtStatus::REQUEST_NOT_ACCEPTED,
    })?;
    let state = to_state(answered.0);
    given_back(call, &node, owner, answered).await;
    LeaseBreakAck { lease_key: ack.lease_key, state }.emit(out);
    Ok(NtStatus::SUCCESS)
}

pub(crate) fn to_state(caching: Caching) -> LeaseState {
    LeaseState::from_bits_retain(caching.0)
}

/// The oplock level that grants the same caching.
pub(crate) fn to_level(caching: Caching) -> OplockLevel {
    let has = |bits: Caching| caching.contains(bits);
    match (has(Caching::READ), has(Caching::WRITE), has(Caching::HANDLE)) {
        (true, true, true) => OplockLevel::BATCH,
        (true, true, false) => OplockLevel::EXCLUSIVE,
        (true, false, _) => OplockLevel::II,
        (false, ..) => OplockLevel::NONE,
    }
}

/// The caching an oplock level means.
pub(crate) fn from_level(level: OplockLevel) -> Caching {
    match level {
        OplockLevel::BATCH => Caching::READ.union(Caching::WRITE).union(Caching::HANDLE),
        OplockLevel::EXCLUSIVE => Caching::READ.union(Caching::WRITE),
        OplockLevel::II => Caching::READ,
        _ => Caching::NONE,
    }
}
