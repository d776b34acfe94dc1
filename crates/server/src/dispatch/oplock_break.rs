//! OPLOCK_BREAK: telling holders to give caching back, and taking their answers.
//!
//! Spec: MS-SMB2 §3.3.4.6, §3.3.4.7 (sending), §3.3.5.22 (acknowledgments).

use smb::Command;
use smb::NtStatus;
use smb::create::{LeaseKey, LeaseState, OplockLevel};
use smb::{BreakAck, LeaseBreakAck, LeaseBreakNotification, OplockBreak};
use smb::{FileId, Header, HeaderFlags, MessageId, Route, SessionId, TreeId};
use tracing::debug;

use super::call::Call;
use super::frame::{self, Outcome};
use super::malformed;
use crate::state::lease::{AcknowledgeError, Caching, Flavor, Notice, Owner};
use crate::state::node::Holder;
use crate::state::{Link, Open};

/// Tells a holder what it may still cache.
pub(crate) fn notify(link: &Link, notice: &Notice<Holder>) {
    let holder = &notice.notify;
    let channel = link.channel(holder.session_id);
    // MS-SMB2 §3.3.4.6: sealed where the session or the share insists on it.
    let seal = channel.filter(|channel| channel.session.encrypt_required);
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
        Ok(()) => link.deliver(out),
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
async fn given_back(call: &Call, open: &Open, kept: Caching) {
    if !kept.contains(Caching::READ.union(Caching::WRITE).union(Caching::HANDLE)) {
        crate::push::end_of_lease(&call.link.core, &open.node, open.owner).await;
    }
    open.node.changed.notify_waiters();
}

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
    let outcome = open.node.lock().leases.acknowledge(open.owner, kept);
    let kept = outcome.map_err(|error| match error {
        AcknowledgeError::NotBreaking | AcknowledgeError::NoSuchLease => {
            NtStatus::INVALID_DEVICE_STATE
        }
        AcknowledgeError::KeepsTooMuch => NtStatus::INVALID_OPLOCK_PROTOCOL,
    })?;
    given_back(call, &open, kept).await;
    OplockBreak { level: to_level(kept), file_id: ack.file_id }.emit(out);
    Ok(NtStatus::SUCCESS)
}

async fn acknowledge_lease(call: &Call, ack: LeaseBreakAck, out: &mut Vec<u8>) -> Outcome {
    let client = call.link.agreed.get().map_or([0; 16], |agreed| agreed.client_guid);
    let owner = Owner::Lease { client, key: ack.lease_key.0 };
    let open = call.session().open_of(owner).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let outcome = open.node.lock().leases.acknowledge(owner, Caching(ack.state.bits()));
    let kept = outcome.map_err(|error| match error {
        AcknowledgeError::NoSuchLease => NtStatus::OBJECT_NAME_NOT_FOUND,
        AcknowledgeError::NotBreaking => NtStatus::UNSUCCESSFUL,
        AcknowledgeError::KeepsTooMuch => NtStatus::REQUEST_NOT_ACCEPTED,
    })?;
    given_back(call, &open, kept).await;
    LeaseBreakAck { lease_key: ack.lease_key, state: to_state(kept) }.emit(out);
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
