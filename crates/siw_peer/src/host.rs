//! The engine on this side, and the memory that the peer reaches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pmem::Medium;
use rdma::{Engine, EngineConfig, Event, Provider, SoftProvider};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// An engine with room for hardly more than one connection, so that a leaked connection is noticed
/// soon.
pub(crate) struct Host {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) events: Vec<Event>,
    pub(crate) memory: Arc<dyn Medium>,
}

impl Host {
    pub(crate) fn open() -> Result<Self, Failure> {
        let config = EngineConfig { qps_max: 2, regions_max: 4, ..EngineConfig::default() };
        let engine = SoftProvider.open_engine(config)?;
        let memory = pmem::anonymous(MEMORY_LEN)?;
        Ok(Self { engine, events: Vec::new(), memory })
    }

    /// Waits for the first event for which `wanted` returns a value, and takes it.
    pub(crate) fn wait_for<T>(
        &mut self,
        patience: Duration,
        mut wanted: impl FnMut(&Event) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(index) = self.events.iter().position(|event| wanted(event).is_some()) {
                return wanted(&self.events.remove(index));
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            self.engine.wait(Some(left));
            self.engine.poll(&mut self.events);
        }
    }
}

/// Who dialled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Asks {
    We,
    Peer,
}

/// How long one step of the other end, an emulated machine, may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// More bytes than TCP and an emulated network hold between them.
pub(crate) const MEMORY_LEN: u64 = 32 << 20;
