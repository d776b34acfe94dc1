//! Joins the engine threads to push mode: the calls of each side to the other.
//!
//! Push names a connection by [`EngineConnection`], the engine by [`PushConnection`]; both are the
//! same number, and this file is the only place that knows both.
//!
//! The server owns push, push holds the bridge, so the bridge holds the server weakly.

use std::ops::Range;
use std::sync::{Arc, Weak};

use pmem::Medium;
use rdma::{Access, MemoryRegion, Rkey};
use remote::host::{Gate, HostError, HostHandle, PushConnection, Request, Verdict};
use smb::NtStatus;
use tracing::info;

use super::gate;
use super::registrar::{EngineConnection, Later, NotRegistered, Registrar};
use super::wanted::{Wanted, refusal, wanted};
use crate::service::Core;

/// See the module.
#[derive(Debug)]
pub(crate) struct PushBridge {
    core: Weak<Core>,
    runtime: tokio::runtime::Handle,
    handle: HostHandle,
    reaches_files: bool,
}

impl PushBridge {
    /// The bridge between a server and its engine threads.
    pub(crate) fn new(core: &Arc<Core>, handle: HostHandle, reaches_files: bool) -> Self {
        let runtime = core.runtime.clone();
        Self { core: Arc::downgrade(core), runtime, handle, reaches_files }
    }
}

impl Gate for PushBridge {
    fn admit(&self, request: &Request, PushConnection(number): PushConnection) -> Verdict {
        match wanted(&request.private_data, request.is_same_host) {
            Wanted::SmbDirect => Verdict::NotPush,
            Wanted::Refuse(status) => {
                info!(peer = %request.peer, %status, "push connection refused");
                Verdict::Refuse(refusal(status))
            }
            Wanted::Push => {
                let Some(core) = self.core.upgrade() else {
                    return Verdict::Refuse(refusal(NtStatus::SERVER_UNAVAILABLE));
                };
                match core.push.admit(&request.private_data, EngineConnection(number)) {
                    Ok(answer) => Verdict::Admit(answer),
                    Err(answer) => Verdict::Refuse(answer),
                }
            }
        }
    }

    fn gone(&self, PushConnection(number): PushConnection) {
        if let Some(core) = self.core.upgrade() {
            gate::gone(&core, EngineConnection(number));
        }
    }

    fn no_room(&self) -> Vec<u8> {
        refusal(NtStatus::INSUFFICIENT_RESOURCES)
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

fn not_registered(error: &HostError) -> NotRegistered {
    match error {
        HostError::Refused(refused) if refused.is_for_good() => NotRegistered::Unreachable,
        _ => NotRegistered::Resources,
    }
}

#[cfg(test)]
mod tests {
    use rdma::RegisterError;

    use super::*;

    #[test]
    fn memory_that_no_device_reaches_is_not_reported_as_a_shortage() {
        let unreachable = HostError::Refused(RegisterError::MediumNotMemory);
        assert_eq!(not_registered(&unreachable), NotRegistered::Unreachable);
        let full = HostError::Refused(RegisterError::RegionsExhausted { max: 1 });
        assert_eq!(not_registered(&full), NotRegistered::Resources);
        assert_eq!(not_registered(&HostError::PeerGone), NotRegistered::Resources);
    }
}
