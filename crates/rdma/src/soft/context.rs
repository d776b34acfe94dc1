//! What all queue pairs of one engine share. One thread uses it: nothing here is locked.

use std::sync::Arc;

use super::regions::Regions;
use super::workers::Workers;
use crate::common::poller::Poller;
use crate::verbs::{EngineStats, Event, WireHook};

/// See the module.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) regions: Regions,
    pub(super) workers: Workers,
    pub(super) poller: Poller,
    /// Not yet given to the owner.
    pub(super) events: Vec<Event>,
    pub(super) stats: EngineStats,
    /// Where every socket is received into; stays in the processor's second-level cache.
    pub(super) bounce: Vec<u8>,
    pub(super) hook: Option<Arc<dyn WireHook>>,
    /// How many rounds there were, and begins anew from zero.
    pub(super) round: u32,
}
