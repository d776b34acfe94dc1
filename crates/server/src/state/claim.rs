//! A file that one request has to itself: nobody opens it, or a stream of it, meanwhile.
//!
//! Spec: MS-FSA §2.1.5.15.11 (rename), §2.1.5.15.6 (link).

use std::sync::Arc;

use smb::NtStatus;

use super::node::{Node, NodeState, OpenRecord};
use super::serial::OpenSerial;

/// A file that one request has to itself until this is dropped.
#[derive(Debug)]
pub(crate) struct Claimed(Arc<Node>);

impl Drop for Claimed {
    fn drop(&mut self) {
        self.0.end_removal();
    }
}

impl NodeState {
    /// Keeps who comes from opening the file of this `node`, or a stream of it, until the returned value is dropped.
    pub(crate) fn begin_claim(&mut self, node: &Arc<Node>) -> Claimed {
        self.removals += 1;
        self.removing = true;
        Claimed(Arc::clone(node))
    }
}

impl Node {
    /// Takes a file that nobody has open, its streams and the open `but` aside: whoever comes waits until it
    /// is given back. Nor may it be mapped, or be about to go.
    pub(crate) fn claim(node: &Arc<Self>, but: Option<OpenSerial>) -> Result<Claimed, NtStatus> {
        let mut state = node.lock();
        let goes = state.opens.iter().any(|open| open.delete_on_close.is_some());
        if goes || !state.delete_pending.is_empty() {
            return Err(NtStatus::DELETE_PENDING);
        }
        if state.removing || state.opens.iter().any(|open| Some(open.serial) != but) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        if state.is_obstructed() {
            return Err(NtStatus::USER_MAPPED_FILE);
        }
        Ok(state.begin_claim(node))
    }

    /// Takes a file whose name another one is to get. Nobody may have it open by this name, or a stream of it, but who
    /// gives way. `None`: its name is just being taken; what comes of that has to be known first.
    pub(crate) fn claim_victim(
        node: &Arc<Self>,
        gives_way: impl Fn(&NodeState, &OpenRecord) -> bool,
    ) -> Result<Option<Claimed>, NtStatus> {
        let mut state = node.lock();
        if state.removing {
            return Ok(None);
        }
        if !state.opens.iter().all(|open| gives_way(&state, open)) || !state.streams.is_empty() {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(Some(state.begin_claim(node)))
    }
}
