//! Joins the engine thread to push mode: the calls of each side to the other.
//!
//! Push names a connection by [`EngineConnection`], the engine by [`PushConnection`]; both are the
//! same number, and this file is the only place that knows both.
//!
//! The server owns push, push holds the bridge, so the bridge holds the server weakly.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Weak};

use pmem::Medium;
use rdma::{Access, MemoryRegion, Rkey};
use smb::NtStatus;

use super::gate::{Admitted, Gate, Refused};
use super::handle::{Handle, HandleError, PushConnection};
use super::request::refusal;
use crate::push::gate;
use crate::push::registrar::{EngineConnection, Later, NotRegistered, Registrar};
use crate::service::Core;

/// See the module.
#[derive(Debug)]
pub(crate) struct PushBridge {
    core: Weak<Core>,
    runtime: tokio::runtime::Handle,
    handle: Handle,
    reaches_files: bool,
}

impl PushBridge {
    /// The bridge between a server and its engine threads.
    pub(crate) fn new(core: &Arc<Core>, handle: Handle, reaches_files: bool) -> Self {
        let runtime = core.runtime.clone();
        Self { core: Arc::downgrade(core), runtime, handle, reaches_files }
    }
}

impl Gate for PushBridge {
    fn admit(
        &self,
        private_data: &[u8],
        _peer: SocketAddr,
        PushConnection(number): PushConnection,
    ) -> Result<Admitted, Refused> {
        let core = self.core.upgrade().ok_or_else(|| refusal(NtStatus::SERVER_UNAVAILABLE))?;
        core.push.admit(private_data, EngineConnection(number))
    }

    fn gone(&self, PushConnection(number): PushConnection) {
        if let Some(core) = self.core.upgrade() {
            gate::gone(&core.push, EngineConnection(number));
        }
    }
}

impl Registrar for PushBridge {
    fn register(
        &self,
        EngineConnection(number): EngineConnection,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
    ) -> Later<Result<MemoryRegion, NotRegistered>> {
        let handle = self.handle.clone();
        Box::pin(async move {
            let registered = handle.register(PushConnection(number), medium, range, access).await;
            registered
                .inspect_err(|error| tracing::info!(%error, "region not registered"))
                .map_err(|error| not_registered(&error))
        })
    }

    fn reaches_files(&self) -> bool {
        self.reaches_files
    }

    fn deregister(&self, EngineConnection(number): EngineConnection, rkey: Rkey) -> Later<()> {
        let handle = self.handle.clone();
        Box::pin(async move {
            // An engine that has stopped no longer touches the region either.
            let _ = handle.deregister(PushConnection(number), rkey).await;
        })
    }

    fn disconnect(&self, EngineConnection(number): EngineConnection) {
        let handle = self.handle.clone();
        self.runtime.spawn(async move { handle.disconnect(PushConnection(number)).await });
    }
}

fn not_registered(error: &HandleError) -> NotRegistered {
    match error {
        HandleError::Refused(refused) if refused.is_for_good() => NotRegistered::Unreachable,
        _ => NotRegistered::Resources,
    }
}

#[cfg(test)]
mod tests {
    use rdma::RegisterError;

    use super::*;

    #[test]
    fn memory_that_no_device_reaches_is_not_reported_as_a_shortage() {
        let unreachable = HandleError::Refused(RegisterError::MediumNotMemory);
        assert_eq!(not_registered(&unreachable), NotRegistered::Unreachable);
        let full = HandleError::Refused(RegisterError::RegionsExhausted { max: 1 });
        assert_eq!(not_registered(&full), NotRegistered::Resources);
        assert_eq!(not_registered(&HandleError::PeerGone), NotRegistered::Resources);
    }
}
