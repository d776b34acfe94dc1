//! OPLOCK_BREAK: the answers of holders that were told to give caching back.
//!
//! Spec: MS-SMB2 §3.3.5.22.

use std::sync::Arc;

use smb::NtStatus;
use smb::create::OplockLevel;
use smb::{BreakAck, LeaseBreakAck, OplockBreak};

use super::call::Call;
use super::frame::Outcome;
use super::frame::malformed;
use super::levels::{to_level, to_state};
use crate::access::Identity;
use crate::state::caching::Caching;
use crate::state::holder::Holder;
use crate::state::lease::{AcknowledgeError, Notice, Owner};
use crate::state::node::Node;

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
        crate::push::end_of_lease(call.push(), node, owner).await;
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
    let now = call.core.now();
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
    // MS-SMB2 §3.3.5.2.11: for the lease it need not be there.
    if call.asker().has_tree() {
        call.asker().tree()?;
    }
    let (node, owner, answered) = take_answer(call, ack)?;
    let state = to_state(answered.0);
    given_back(call, &node, owner, answered).await;
    LeaseBreakAck { lease_key: ack.lease_key, state }.emit(out);
    Ok(NtStatus::SUCCESS)
}

// The lease is the client's: it may answer on any of its connections. A client of several users (a `multiuser` mount of
// Linux) opens a file by one key for all of them, and answers for one in the session of another: where both are logged on
// over this connection, and so by one client.
fn take_answer(call: &Call, ack: LeaseBreakAck) -> Result<(Arc<Node>, Owner, Answered), NtStatus> {
    let own = &call.session().identity;
    let mut outcome = take_answer_of(call, ack, own);
    for session in call.link.sessions() {
        // A guest has proved nothing, and its requests have no signatures.
        let is_of_another = session.identity != *own && !own.is_guest();
        if is_of_another && matches!(outcome, Err(NOT_BREAKING | NO_SUCH_LEASE)) {
            // What the answer is told is what its own user has.
            outcome = take_answer_of(call, ack, &session.identity).or(outcome);
        }
    }
    outcome
}

fn take_answer_of(
    call: &Call,
    ack: LeaseBreakAck,
    user: &Identity,
) -> Result<(Arc<Node>, Owner, Answered), NtStatus> {
    let client = call.link.agreed.get().map_or([0; 16], |agreed| agreed.client_guid);
    let owner = Owner::Lease { client, key: ack.lease_key.0, user: user.mark() };
    let core = &call.core;
    let node = core.files.lease_keys.file(owner).and_then(|file| core.files.nodes.existing(file));
    let node = node.ok_or(NO_SUCH_LEASE)?;
    let outcome = {
        let mut state = node.lock();
        let trees = state.trees_of(owner, user);
        if trees.is_empty() {
            return Err(NO_SUCH_LEASE);
        }
        // MS-SMB2 §3.3.5.2.11 asks the tree that the request names. It may name any, and the lease is
        // that of other trees.
        trees.iter().try_for_each(|tree| call.asker().check_protection(tree))?;
        state.leases.acknowledge(owner, Caching(ack.state.bits()), core.now())
    };
    let answered = outcome.map_err(|error| match error {
        AcknowledgeError::NoSuchLease => NO_SUCH_LEASE,
        AcknowledgeError::NotBreaking => NOT_BREAKING,
        AcknowledgeError::KeepsTooMuch => NtStatus::REQUEST_NOT_ACCEPTED,
    })?;
    Ok((node, owner, answered))
}

const NO_SUCH_LEASE: NtStatus = NtStatus::OBJECT_NAME_NOT_FOUND;
const NOT_BREAKING: NtStatus = NtStatus::UNSUCCESSFUL;
