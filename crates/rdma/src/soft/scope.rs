//! The state that the halves of a queue pair work on, borrowed for one step.

use iwarp::Stream;

use super::byte_queue::ByteQueue;
use super::deferral::Deferral;
use super::fetches::Fetches;
use super::regions::Regions;
use crate::interface::{EngineStats, Event, QpId};

/// The connection and the engine's tables, as a requester or responder sees them.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    pub(super) id: QpId,
    pub(super) stream: &'a mut Stream,
    pub(super) transmit: &'a mut ByteQueue,
    pub(super) deferral: &'a mut Deferral,
    pub(super) regions: &'a mut Regions,
    pub(super) fetches: &'a mut Fetches,
    pub(super) events: &'a mut Vec<Event>,
    pub(super) stats: &'a mut EngineStats,
    /// The engine's round.
    pub(super) round: u32,
}

/// The outcome of a step of transmission.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// A message, or as much of one as there was room for, was framed.
    Progress,
    /// There is nothing to do, or nothing that can be done now.
    Rest,
    /// There is more to do, once TCP has taken the queued bytes.
    Full,
}

impl Step {
    /// The outcome of a step that ended for lack of room.
    pub(super) fn or_full(self) -> Self {
        if self == Self::Rest { Self::Full } else { self }
    }
}
