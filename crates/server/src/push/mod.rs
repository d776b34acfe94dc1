//! Push mode: regions of files that clients read and write by RDMA.

use std::net::SocketAddr;
use std::sync::Arc;

use smb::create::CreateResponseContext;
use smb::push::{PushResponse, RecallReason, Refusal};
use smb::{ControlCode, NtStatus};

use crate::dispatch::PushWish;
use crate::dispatch::call::Call;
use crate::service::Core;
use crate::state::Open;
use crate::state::lease::{Caching, Owner};
use crate::state::node::Node;

/// A mapped region as its file's node knows it.
#[derive(Clone, Debug)]
pub(crate) struct RegionHandle {
    pub(crate) owner: Owner,
}

/// Everything about push that connections share.
#[derive(Debug, Default)]
pub(crate) struct Push {
    address: Option<SocketAddr>,
}

impl Push {
    /// Where the RDMA listener is.
    pub(crate) fn rdma_address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// An open ends, and its regions with it.
    pub(crate) fn end_of_open(&self, _open: &Open) {}
}

/// Answers the push context of a CREATE.
pub(crate) fn offer(
    _call: &Call,
    _open: &Arc<Open>,
    wish: &PushWish,
    _caching: Caching,
) -> CreateResponseContext<'static> {
    match wish {
        PushWish::Asked(request) => {
            tracing::debug!(?request, "push refused: there is no RDMA listener");
            CreateResponseContext::Push(PushResponse::Refused(Refusal::NO_LISTENER))
        }
        PushWish::UnknownVersion => {
            CreateResponseContext::Push(PushResponse::Refused(Refusal::VERSION))
        }
    }
}

/// Takes regions of a file back from everyone but `by`.
pub(crate) async fn recall(
    _core: &Core,
    _node: &Arc<Node>,
    _by: Option<Owner>,
    _reason: RecallReason,
) {
}

/// Carries out one of push mode's controls.
pub(crate) async fn control(
    _call: &mut Call,
    _open: &Arc<Open>,
    _code: ControlCode,
    _input: &[u8],
) -> Result<Vec<u8>, NtStatus> {
    Err(NtStatus::NOT_SUPPORTED)
}
