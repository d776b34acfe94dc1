//! State that all queue pairs of an engine share. A single thread uses it: nothing here is locked.

use std::sync::Arc;

use super::fetches::Fetches;
use super::regions::Regions;
use super::workers::Workers;
use crate::common::poller::Poller;
use crate::interface::{EngineStats, Event, WireHook};

/// See the module.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) regions: Regions,
    pub(super) workers: Workers,
    pub(super) fetches: Fetches,
    pub(super) poller: Poller,
    /// Events that the owner has not polled yet.
    pub(super) events: Vec<Event>,
    pub(super) stats: EngineStats,
    /// Where every socket is received into; stays in the processor's second-level cache.
    pub(super) bounce: Vec<u8>,
    pub(super) hook: Option<Arc<dyn WireHook>>,
    /// Number of the current round; wraps to zero.
    pub(super) round: u32,
}

/// Who looks at the sockets when a round is done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Looks {
    /// This round.
    Now,
    /// The sleep that follows if the round finds nothing else.
    AtTheSleep,
}
