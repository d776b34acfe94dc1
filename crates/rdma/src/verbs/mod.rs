//! Provider `verbs`: the RDMA adapters of this machine, through libibverbs and librdmacm.
//!
//! ```text
//!   engine          the owner's calls, and waiting
//!   connecting      listening, dialling, answering; the events of the connection manager
//!   connection      one queue pair: its requests that have not ended, its memory
//!   working         from work requests to the device's, and from its completions to ours
//!   news            the events that devices report
//!   ring            where inline payloads wait until the device has sent them
//!   greeting        what both ends say in their private data
//!   sys             the libraries: the only unsafe code
//! ```
//!
//! | of the seam | here |
//! |---|---|
//! | engine | an event channel of librdmacm, a completion channel per device |
//! | queue pair | a queue pair, a completion queue and a protection domain of its own: a key of one connection is worth nothing on another, and nobody's completions push out another's |
//! | region | pinned memory; where the host cannot pin, on-demand paging if the device has it; else refused |
//! | remote address | the offset in the medium; over iWARP, whose drivers know no other, the address in this process |
//! | inline payload | copied into a ring of registered memory |
//! | flush, atomic write | where device, driver and library have them at both ends |
//! | verify, fetch-and-add, compare-and-swap, immediate of 8 bytes | not there |
//!
//! What differs from `soft`: registering pins pages, so its cost grows with the length; the device
//! places bytes by itself, so no code of this process runs when they arrive
//! ([`crate::MemoryRegion::unseen`]); the reason for the end of a connection is known only as far
//! as completions and the connection manager report it.
//!
//! Spec: rdma_cm(7), verbs(7), ibv_wr_post(3) of rdma-core; InfiniBand Architecture 1.6 as those
//! cite it.

mod connecting;
mod connection;
mod count;
mod engine;
mod greeting;
mod news;
mod ring;
mod sys;
mod working;

use crate::interface::{Engine, EngineConfig, EngineError, Provider};

/// RDMA adapters of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct VerbsProvider;

impl VerbsProvider {
    /// Whether this machine has the libraries and a device.
    ///
    /// # Errors
    ///
    /// The part that is missing, and what to do.
    pub fn check(self) -> Result<(), EngineError> {
        sys::device::check()
    }
}

impl Provider for VerbsProvider {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn is_device(&self) -> bool {
        true
    }

    fn open_engine(&self, config: EngineConfig) -> Result<Box<dyn Engine>, EngineError> {
        Ok(Box::new(engine::VerbsEngine::open(config)?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::interface::{WireHook, WireVerdict};

    #[test]
    fn the_error_without_an_adapter_says_what_to_do() {
        // The provider opens on a machine with an adapter; `cargo xtask guest verbs` has two kinds.
        if let Err(error) = VerbsProvider.open_engine(EngineConfig::default()) {
            assert_eq!(VerbsProvider.check(), Err(error));
            let advice = error.to_string();
            let is_advice = advice.contains("apt-get install") || advice.contains("rdma link");
            assert!(is_advice, "{advice}");
        }
    }

    #[derive(Debug)]
    struct Deaf;

    impl WireHook for Deaf {
        fn opened(&self, _: u64, _: std::net::SocketAddr, _: std::net::SocketAddr, _: bool) {}
        fn sent(&self, _: u64, _: &[u8]) {}
        fn received(&self, _: u64, _: &mut [u8]) -> WireVerdict {
            WireVerdict::Pass
        }
        fn closed(&self, _: u64) {}
    }

    #[test]
    fn an_adapter_refuses_a_wire_hook() {
        let config = EngineConfig { wire_hook: Some(Arc::new(Deaf)), ..EngineConfig::default() };
        let refused = VerbsProvider.open_engine(config).err();
        assert_eq!(refused, Some(EngineError::ConfigWireHook));
    }
}
